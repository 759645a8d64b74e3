#include "optim/rule.hpp"

namespace weft::optim {
namespace {

// The product of the momenta is the same for all parameters; PyTorch keeps it with each, and so do files of this one.
std::vector<StateRow> nadam_states(const NAdamOptions& /*options*/, int /*kind*/) {
  return {{.name = "mu_product", .initial = 1, .shape = [](const Shape&) { return Shape{}; }},
          {.name = "exp_avg"},
          {.name = "exp_avg_sq"}};
}

// The momentum of a step.
Tensor nadam_momentum(const NAdamOptions& o, const Tensor& step) {
  return (1.0 - power_of(0.96, step * o.momentum_decay) * 0.5) * o.beta_1;
}

Tensor nadam_update(const NAdamOptions& o, Update& u) {
  const Tensor now = nadam_momentum(o, u.step), next = nadam_momentum(o, u.step + 1.0);
  u.state[0] = u.state[0] * now;
  const Tensor product = reshape(narrow(u.state[0], 0, 0, 1), {});
  u.state[1] = moved(u.state[1], u.gradient, o.beta_1);
  u.state[2] = moved(u.state[2], square(u.gradient), o.beta_2);
  const Tensor of_gradient = u.rate * (1.0 - now) / (1.0 - product), of_mean = u.rate * next / (1.0 - product * next);
  const Tensor scale = rsqrt(bias_correction(o.beta_2, u.step));
  return u.parameter - (of_gradient * u.gradient + of_mean * u.state[1]) / (sqrt(u.state[2]) * scale + o.epsilon);
}

}  // namespace

const Rule<NAdamOptions>& rule_of(const NAdamOptions& /*options*/) {
  using O = NAdamOptions;
  static const Rule<O> rule = {
      .name = "nadam",
      .title = "NAdam",
      .doc = "Adam with Nesterov's momentum",
      .fields = {{"beta_1", &O::beta_1, Range::share, "decay rate of the mean, and the last momentum"},
                 {"beta_2", &O::beta_2, Range::share, "decay rate of the mean square"},
                 {"epsilon", &O::epsilon, Range::positive, "added to the root of the mean square"},
                 {"momentum_decay", &O::momentum_decay, Range::not_negative, "how fast the momentum grows from a half"},
                 {"decoupled", &O::decoupled, {}, "decays as AdamW"}},
      .states = nadam_states,
      .update = nadam_update,
      .decay = [](const O& o) { return o.decoupled ? Decay::decoupled : Decay::coupled; }};
  return rule;
}

}  // namespace weft::optim
