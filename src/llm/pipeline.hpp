// Passes on their way through the stages of a model. States go from device to device through the host.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "llm/stage.hpp"

namespace weft::llm::detail {

/// Stages work at the same time: while one has a pass, the one before it has the pass behind. A single thread gives all of them
/// their work, because devices beside the host return at once; a stage on the CPU comes after they have begun.
class Pipeline {
 public:
  using Stages = std::vector<std::unique_ptr<Stage>>;
  explicit Pipeline(const Stages& stages) : stages_(stages) {}

  /// Sends a pass and all passes before it through; gives what the last stage gives.
  Tensor run(PassNumbers numbers, std::string* profile = nullptr);
  /// Sends a pass on its way. With one stage, all of it; with several, the later stages have it when passes behind it come, or
  /// `drain` is called.
  void feed(PassNumbers numbers) { advance(std::move(numbers), nullptr); }
  void drain();
  /// Forgets the passes that are on their way.
  void clear() { waiting_.clear(); }

 private:
  /// A pass between two stages.
  struct Moving {
    PassNumbers numbers;
    Tensor states;                                // on the device that made them
    std::unique_ptr<backend::Readback> readback;  // of a device that works beside the host
  };
  bool is_empty() const;
  Tensor advance(std::optional<PassNumbers> next, std::string* profile);
  static Tensor arrived(Moving& moving, Device device);

  const Stages& stages_;
  std::vector<std::optional<Moving>> waiting_;  // for each stage, what it computes next
};

}  // namespace weft::llm::detail
