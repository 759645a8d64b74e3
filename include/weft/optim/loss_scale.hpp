// Loss scaling: small gradients survive f16, whose least positive number is 6e-8.
#pragma once

#include <cstdint>

#include "weft/nn/state.hpp"
#include "weft/tensor.hpp"

namespace weft::optim {

struct LossScaleOptions {
  double initial = 65536;
  double growth_factor = 2;             // above 1
  double backoff_factor = 0.5;          // in (0, 1)
  std::int64_t growth_interval = 2000;  // updates in a row after which the scale grows
};

/// A factor of the loss, and so of all gradients, that adapts to them:
///
///     optimizer.step(grad(scale.apply(loss), optimizer.parameters()), rate, scale);
///
/// The optimiser divides by the factor in f32. A step whose gradients have a norm that is not finite changes neither
/// parameters nor state of the optimiser; the factor then falls by `backoff_factor`. After `growth_interval` updates in a row
/// it grows by `growth_factor`. All of it is values on the device: a compiled step decides there, and never waits for the host.
/// The factor stays in [2^-24, 2^24].
class LossScale {
 public:
  /// Errors  UsageError: a number out of its range.
  explicit LossScale(LossScaleOptions options = {}, Device device = default_device());

  /// loss * factor, as f32 or wider. Shapes: any. Gradient: that of the product, to the loss alone.
  Tensor apply(const Tensor& loss) const;
  /// The factor, f32 of rank 0.
  Tensor factor() const { return factor_.value(); }
  /// Moves on after a step, whose gradients were finite or not (bool of rank 0). Optimizer::step does it.
  void update(const Tensor& finite);

  /// The factor, updates in a row since it last changed, and steps left out so far; these wait for the device.
  double value() const;
  std::int64_t good_steps() const;
  std::int64_t skipped_steps() const;

  /// "factor", "good_steps", "skipped_steps".
  nn::StateDict state_dict() const;
  /// Errors  UsageError that lists what is missing, unknown, or of another shape; nothing is changed then.
  void load_state_dict(const nn::StateDict& state);

 private:
  std::vector<nn::NamedVariable> variables() const;

  LossScaleOptions options_;
  Variable factor_, good_steps_, skipped_steps_;
};

}  // namespace weft::optim
