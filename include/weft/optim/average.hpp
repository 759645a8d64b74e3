// Averages of a model's weights over training.
#pragma once

#include <vector>

#include "weft/nn/module.hpp"
#include "weft/nn/state.hpp"
#include "weft/optim/base.hpp"

namespace weft::optim {

/// Weights that are averaged over training, which often generalise better than the last ones:
///
///     optim::AveragedWeights average(model, {.decay = 0.999});
///     for (...) { step(x, y); average.update(); }
///     average.swap();  // the model has the averages; again: what it had before
///
/// With a decay, a = decay * a + (1 - decay) * p (exponential moving average); with 0 it is the equal mean of all updates
/// (stochastic weight averaging). The first update copies the parameters. `update` may be part of a compiled function.
/// Sources: Polyak and Juditsky 1992; Izmailov et al. 2018, arXiv:1803.05407.
class AveragedWeights {
 public:
  struct Options {
    double decay = 0;  // in [0, 1)
  };
  /// Errors  UsageError: no parameters, or a decay outside of [0, 1).
  explicit AveragedWeights(ParameterList parameters, Options options);
  explicit AveragedWeights(ParameterList parameters) : AveragedWeights(std::move(parameters), Options{}) {}
  void update();
  /// Exchanges the averages with the parameters.
  void swap();
  /// The average of each parameter, in their order.
  std::vector<Tensor> values() const;
  std::int64_t update_count() const;

  /// "n_averaged", and the averages by the names of parameters.
  nn::StateDict state_dict() const;
  /// Errors  UsageError that lists what is missing, unknown, or of another shape; nothing is changed then.
  void load_state_dict(const nn::StateDict& state);

 private:
  std::vector<nn::NamedVariable> variables() const;

  Options options_;
  std::vector<nn::NamedParameter> parameters_;
  std::vector<Variable> averages_;
  Variable count_;
};

}  // namespace weft::optim
