#include "optim/rule.hpp"

namespace weft::optim {
namespace {

std::vector<StateRow> lion_states(const LionOptions& /*options*/, int /*kind*/) { return {{.name = "exp_avg"}}; }

Tensor lion_update(const LionOptions& o, Update& u) {
  const Tensor direction = sign(moved(u.state[0], u.gradient, o.beta_1));
  u.state[0] = moved(u.state[0], u.gradient, o.beta_2);
  return u.parameter - u.rate * direction;
}

}  // namespace

const Rule<LionOptions>& rule_of(const LionOptions& /*options*/) {
  using O = LionOptions;
  static const Rule<O> rule = {.name = "lion",
                               .title = "Lion",
                               .doc = "steps by the sign of the momentum",
                               .fields = {{"beta_1", &O::beta_1, Range::share, "share of the mean in the direction"},
                                          {"beta_2", &O::beta_2, Range::share, "decay rate of the mean"}},
                               .states = lion_states,
                               .update = lion_update,
                               .decay = [](const O&) { return Decay::decoupled; }};
  return rule;
}

}  // namespace weft::optim
