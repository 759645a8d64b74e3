#include "optim/rule.hpp"

namespace weft::optim {
namespace {

std::vector<StateRow> lamb_states(const LAMBOptions& /*options*/, int /*kind*/) {
  return {{.name = "exp_avg"}, {.name = "exp_avg_sq"}};
}

Tensor length_of(const Tensor& x) { return sqrt(sum(square(x))); }

Tensor lamb_update(const LAMBOptions& o, Update& u) {
  u.state[0] = moved(u.state[0], u.gradient, o.beta_1);
  u.state[1] = moved(u.state[1], square(u.gradient), o.beta_2);
  const Tensor scale = rsqrt(bias_correction(o.beta_2, u.step));
  Tensor direction = u.state[0] / bias_correction(o.beta_1, u.step) / (sqrt(u.state[1]) * scale + o.epsilon);
  if (u.decay != 0) direction = direction + u.parameter * u.decay;
  std::vector<Tensor> steps = u.parts(direction);
  const std::vector<Tensor> parameters = u.parts(u.parameter);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Tensor weight = length_of(parameters[i]), step = length_of(steps[i]);
    const Tensor trust = where((weight > 0.0) & (step > 0.0), weight / step, 1.0);
    steps[i] = steps[i] * trust;
  }
  return u.parameter - u.rate * Update::join(steps);
}

}  // namespace

const Rule<LAMBOptions>& rule_of(const LAMBOptions& /*options*/) {
  using O = LAMBOptions;
  static const Rule<O> rule = {
      .name = "lamb",
      .title = "LAMB",
      .doc = "Adam with steps in proportion to each parameter's norm, for large batches",
      .fields = {{"beta_1", &O::beta_1, Range::share, "decay rate of the mean"},
                 {"beta_2", &O::beta_2, Range::share, "decay rate of the mean square"},
                 {"epsilon", &O::epsilon, Range::positive, "added to the root of the mean square"}},
      .states = lamb_states,
      .update = lamb_update,
      .decay = [](const O&) { return Decay::own; }};
  return rule;
}

}  // namespace weft::optim
