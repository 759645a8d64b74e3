#include "optim/rule.hpp"

namespace weft::optim {
namespace {

std::vector<StateRow> adagrad_states(const AdagradOptions& o, int /*kind*/) {
  return {{.name = "sum", .initial = o.initial_accumulator}};
}

Tensor adagrad_update(const AdagradOptions& o, Update& u) {
  u.state[0] = u.state[0] + square(u.gradient);
  const Tensor rate = o.rate_decay == 0 ? u.rate : u.rate / (1.0 + (u.step - 1.0) * o.rate_decay);
  return u.parameter - rate * u.gradient / (sqrt(u.state[0]) + o.epsilon);
}

}  // namespace

const Rule<AdagradOptions>& rule_of(const AdagradOptions& /*options*/) {
  using O = AdagradOptions;
  static const Rule<O> rule = {
      .name = "adagrad",
      .title = "Adagrad",
      .doc = "gradients over the root of the sum of all their squares",
      .fields = {{"rate_decay", &O::rate_decay, Range::not_negative,
                  "the rate is divided by 1 + (step - 1) * rate_decay"},
                 {"initial_accumulator", &O::initial_accumulator, Range::not_negative, "first value of the sum"},
                 {"epsilon", &O::epsilon, Range::positive, "added to the root of the sum"}},
      .states = adagrad_states,
      .update = adagrad_update};
  return rule;
}

}  // namespace weft::optim
