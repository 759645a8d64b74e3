#include "optim/rule.hpp"

namespace weft::optim {
namespace {

std::vector<StateRow> sgd_states(const SgdOptions& o, int /*kind*/) {
  if (o.momentum == 0) return {};
  return {{.name = "momentum_buffer", .older_name = "momentum"}};
}

Tensor sgd_update(const SgdOptions& o, Update& u) {
  Tensor g = u.gradient;
  if (o.momentum != 0) {
    Tensor b = u.state[0] * o.momentum + g * (1 - o.dampening);
    if (o.dampening != 0) b = where(u.step <= 1.0, g, b);
    u.state[0] = b;
    g = o.nesterov ? g + b * o.momentum : b;
  }
  return u.parameter - u.rate * g;
}

void check_sgd(const SgdOptions& o) {
  if (o.nesterov && (o.momentum <= 0 || o.dampening != 0))
    throw UsageError("SGD: Nesterov's form needs momentum above 0 and dampening 0");
}

}  // namespace

const Rule<SgdOptions>& rule_of(const SgdOptions& /*options*/) {
  using O = SgdOptions;
  static const Rule<O> rule = {
      .name = "sgd",
      .title = "SGD",
      .doc = "stochastic gradient descent",
      .fields = {{"momentum", &O::momentum, Range::not_negative, "share of the previous direction that is kept"},
                 {"dampening", &O::dampening, {}, "share of the gradient that is left out of the direction"},
                 {"nesterov", &O::nesterov, {}, "looks ahead"}},
      .states = sgd_states,
      .update = sgd_update,
      .check = check_sgd};
  return rule;
}

}  // namespace weft::optim
