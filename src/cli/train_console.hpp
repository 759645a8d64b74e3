// A training run on the screen: what it is, a line that shows how it goes, and its end.
#pragma once

#include <optional>
#include <string>

#include "cli/console.hpp"
#include "weft/train/observer.hpp"

namespace weft::cli {

class TrainConsole : public train::Observer {
 public:
  /// `quiet`: warnings only, on standard error.
  explicit TrainConsole(bool quiet);

  void begin(const train::RunStart& run) override;
  void validating(const train::Metrics& metrics) override;
  void validation(const train::Validation& validation) override;
  void step(const train::Metrics& metrics) override;
  void sample(const train::Sample& sample) override;
  void warning(std::string_view text) override;
  void profile(const Profile& profile) override;
  void end(const train::RunEnd& run) override;

 private:
  std::string status_line(const train::Metrics& metrics);
  double remaining(const train::Metrics& metrics) const;

  const bool quiet_;
  Console console_;
  std::optional<train::RunStart> run_;
  double smooth_loss_ = 0;
  std::int64_t smoothed_step_ = -1;  // the last one that it holds
  std::optional<train::Validation> validation_;
};

}  // namespace weft::cli
