// Updates of the weights that train: gradients of a batch, their mean over batches, the optimiser, and the compiled functions of these.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "weft/compile.hpp"
#include "weft/nn/state.hpp"
#include "weft/optim/gradient_sum.hpp"
#include "weft/optim/optimizer.hpp"
#include "weft/tune.hpp"

namespace weft::tune {

/// Bytes of parameters of these names and shapes, of the optimiser's state, and of the sum of gradients if batches accumulate.
std::uint64_t trained_bytes(const TunerOptions& options, std::span<const std::pair<std::string, Shape>> parameters);

class Steps {
 public:
  struct Measure {
    Tensor objective;             ///< whose gradient is taken
    std::vector<Tensor> results;  ///< what is told of a batch, the loss first
  };
  /// Of the arguments of a batch; called while it is compiled.
  using Function = std::function<Measure(std::span<const Tensor> given, bool trains)>;
  using Arguments = std::vector<Tensor>;

  /// Of the options those of the optimiser, `precision` and `accumulate` count. Errors: UsageError for numbers out of range.
  Steps(const std::vector<Variable>& variables, const TunerOptions& options, Device device, Function measured);
  Steps(const Steps&) = delete;
  Steps& operator=(const Steps&) = delete;

  struct Result {
    Tensor norm;                  ///< of the gradient before clipping
    std::vector<Tensor> results;  ///< means over the batches
  };
  /// One update. Errors: UsageError unless there are `accumulate` batches.
  Result step(std::span<const Arguments> batches, double learning_rate);
  /// The results of a batch, without an update.
  std::vector<Tensor> measure(const Arguments& given) { return compiled_loss_(given); }

  /// Bytes of gradients, activations and scratch, as planned for such a batch.
  std::uint64_t planned_bytes(const Arguments& given);
  std::uint64_t planned_measure_bytes(const Arguments& given);
  /// Bytes of the trained tensors and of the optimiser's state, and of the summed gradients if batches accumulate.
  std::uint64_t trained_bytes() const;
  double loss_scale() const { return scale_ ? scale_->value() : 1; }

  /// The state of the optimiser, of the loss scale and of random numbers, beside that of the weights.
  nn::StateDict state_dict(std::span<const nn::NamedVariable> trained) const;
  void load_state_dict(std::span<const nn::NamedVariable> trained, const nn::StateDict& state);

 private:
  std::vector<Tensor> gradients(const Tensor& loss) const;
  Tensor update(std::span<const Tensor> gradients, const Tensor& rate);

  const Extent accumulate_;
  const Device device_;
  const Function measured_;
  const TunerOptions options_;
  const std::unique_ptr<optim::Optimizer> optimizer_;
  std::optional<optim::LossScale> scale_;
  std::optional<optim::GradientSum> sum_;
  Compiled compiled_step_, compiled_add_, compiled_loss_;
};

}  // namespace weft::tune
