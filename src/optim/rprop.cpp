#include "optim/rule.hpp"

namespace weft::optim {
namespace {

std::vector<StateRow> rprop_states(const RpropOptions& /*options*/, int /*kind*/) {
  return {{.name = "prev"}, {.name = "step_size"}};
}

Tensor rprop_update(const RpropOptions& o, Update& u) {
  const Tensor& g = u.gradient;
  const Tensor agreement = sign(g) * sign(u.state[0]);
  const Tensor turned = agreement < 0.0;
  const Tensor factor =
      where(agreement > 0.0, scalar_like(o.grow, g), where(turned, scalar_like(o.shrink, g), scalar_like(1, g)));
  const Tensor size = where(u.step <= 1.0, u.rate, u.state[1]) * factor;
  u.state[1] = minimum(maximum(size, o.least_step), o.largest_step);
  u.state[0] = where(turned, 0.0, g);
  return u.parameter - sign(u.state[0]) * u.state[1];
}

void check_rprop(const RpropOptions& o) {
  if (!(o.shrink < 1 && o.grow > 1))
    throw UsageError(
        fmt::format("Rprop: shrink is {} and grow is {}; they must be below and above 1", o.shrink, o.grow));
  if (o.least_step > o.largest_step)
    throw UsageError(
        fmt::format("Rprop: least_step is {} and largest_step is {}; swap them", o.least_step, o.largest_step));
}

}  // namespace

const Rule<RpropOptions>& rule_of(const RpropOptions& /*options*/) {
  using O = RpropOptions;
  static const Rule<O> rule = {
      .name = "rprop",
      .title = "Rprop",
      .doc = "steps by the signs of gradients of whole batches",
      .fields = {{"shrink", &O::shrink, Range::positive, "factor of the step size where the sign changes"},
                 {"grow", &O::grow, Range::positive, "factor of the step size where the sign stays"},
                 {"least_step", &O::least_step, Range::not_negative, "least step size"},
                 {"largest_step", &O::largest_step, Range::positive, "largest step size"}},
      .states = rprop_states,
      .update = rprop_update,
      .check = check_rprop};
  return rule;
}

}  // namespace weft::optim
