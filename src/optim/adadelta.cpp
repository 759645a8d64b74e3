#include "optim/rule.hpp"

namespace weft::optim {
namespace {

std::vector<StateRow> adadelta_states(const AdadeltaOptions& /*options*/, int /*kind*/) {
  return {{.name = "square_avg"}, {.name = "acc_delta"}};
}

Tensor adadelta_update(const AdadeltaOptions& o, Update& u) {
  u.state[0] = moved(u.state[0], square(u.gradient), o.rho);
  const Tensor delta = sqrt(u.state[1] + o.epsilon) / sqrt(u.state[0] + o.epsilon) * u.gradient;
  u.state[1] = moved(u.state[1], square(delta), o.rho);
  return u.parameter - u.rate * delta;
}

}  // namespace

const Rule<AdadeltaOptions>& rule_of(const AdadeltaOptions& /*options*/) {
  using O = AdadeltaOptions;
  static const Rule<O> rule = {.name = "adadelta",
                               .title = "Adadelta",
                               .doc = "gradients in the units of the parameters",
                               .fields = {{"rho", &O::rho, Range::share, "decay rate of both mean squares"},
                                          {"epsilon", &O::epsilon, Range::positive, "added to both mean squares"}},
                               .states = adadelta_states,
                               .update = adadelta_update};
  return rule;
}

}  // namespace weft::optim
