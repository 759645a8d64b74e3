#include "optim/rule.hpp"

namespace weft::optim {
namespace {

std::vector<StateRow> asgd_states(const ASGDOptions& /*options*/, int /*kind*/) { return {{.name = "ax"}}; }

Tensor asgd_update(const ASGDOptions& o, Update& u) {
  const Tensor before = u.step - 1.0;
  const Tensor slowed = log1p(before * u.rate * o.lambd) * o.alpha;
  const Tensor rate = u.rate * exp(-slowed);
  const Tensor next = u.parameter * (1.0 - rate * o.lambd) - rate * u.gradient;
  const Tensor share = 1.0 / maximum(before - o.averaging_start, 1.0);
  u.state[0] = u.state[0] + (next - u.state[0]) * share;
  return next;
}

}  // namespace

const Rule<ASGDOptions>& rule_of(const ASGDOptions& /*options*/) {
  using O = ASGDOptions;
  static const Rule<O> rule = {.name = "asgd",
                               .title = "ASGD",
                               .doc = "stochastic gradient descent with the mean of the last parameters",
                               .fields = {{"lambd", &O::lambd, Range::not_negative, "decay of parameters and rate"},
                                          {"alpha", &O::alpha, Range::not_negative, "power of the rate's decay"},
                                          {"averaging_start", &O::averaging_start, Range::not_negative,
                                           "the step after which the mean is taken"}},
                               .states = asgd_states,
                               .update = asgd_update};
  return rule;
}

}  // namespace weft::optim
