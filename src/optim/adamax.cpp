#include "optim/rule.hpp"

namespace weft::optim {
namespace {

std::vector<StateRow> adamax_states(const AdamaxOptions& /*options*/, int /*kind*/) {
  return {{.name = "exp_avg"}, {.name = "exp_inf"}};
}

Tensor adamax_update(const AdamaxOptions& o, Update& u) {
  u.state[0] = moved(u.state[0], u.gradient, o.beta_1);
  u.state[1] = maximum(u.state[1] * o.beta_2, abs(u.gradient) + o.epsilon);
  return u.parameter - u.rate / bias_correction(o.beta_1, u.step) * u.state[0] / u.state[1];
}

}  // namespace

const Rule<AdamaxOptions>& rule_of(const AdamaxOptions& /*options*/) {
  using O = AdamaxOptions;
  static const Rule<O> rule = {.name = "adamax",
                               .title = "Adamax",
                               .doc = "Adam with a decaying maximum in place of the mean square",
                               .fields = {{"beta_1", &O::beta_1, Range::share, "decay rate of the mean"},
                                          {"beta_2", &O::beta_2, Range::share, "decay rate of the maximum"},
                                          {"epsilon", &O::epsilon, Range::positive, "added to the size of gradients"}},
                               .states = adamax_states,
                               .update = adamax_update};
  return rule;
}

}  // namespace weft::optim
