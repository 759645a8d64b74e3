#include "optim/rule.hpp"

namespace weft::optim {
namespace {

template <class Options>
std::vector<StateRow> adam_states(const Options& o, int /*kind*/) {
  std::vector<StateRow> rows = {{.name = "exp_avg", .older_name = "moment_1"},
                                {.name = "exp_avg_sq", .older_name = "moment_2"}};
  if (o.amsgrad) rows.push_back({.name = "max_exp_avg_sq"});
  return rows;
}

template <class Options>
Tensor adam_update(const Options& o, Update& u) {
  u.state[0] = moved(u.state[0], u.gradient, o.beta_1);
  u.state[1] = moved(u.state[1], square(u.gradient), o.beta_2);
  Tensor v = u.state[1];
  if (o.amsgrad) v = u.state[2] = maximum(u.state[2], v);
  // Everything that does not depend on the element is a rank-0 value, computed once.
  const Tensor rate = u.rate / bias_correction(o.beta_1, u.step);
  const Tensor scale = rsqrt(bias_correction(o.beta_2, u.step));
  return u.parameter - rate * u.state[0] / (sqrt(v) * scale + o.epsilon);
}

template <class O>
Rule<O> adam_rule(const char* name, const char* title, const char* doc) {
  return {.name = name,
          .title = title,
          .doc = doc,
          .fields = {{"beta_1", &O::beta_1, Range::share, "decay rate of the mean"},
                     {"beta_2", &O::beta_2, Range::share, "decay rate of the mean square"},
                     {"epsilon", &O::epsilon, Range::positive, "added to the root of the mean square"},
                     {"amsgrad", &O::amsgrad, {}, "takes the largest mean square so far"}},
          .states = adam_states<O>,
          .update = adam_update<O>};
}

}  // namespace

const Rule<AdamOptions>& rule_of(const AdamOptions& /*options*/) {
  static const auto rule = adam_rule<AdamOptions>("adam", "Adam", "Adam");
  return rule;
}

const Rule<AdamWOptions>& rule_of(const AdamWOptions& /*options*/) {
  static const auto rule = [] {
    auto decoupled = adam_rule<AdamWOptions>("adamw", "AdamW", "Adam with decoupled weight decay");
    decoupled.decay = [](const AdamWOptions&) { return Decay::decoupled; };
    return decoupled;
  }();
  return rule;
}

}  // namespace weft::optim
