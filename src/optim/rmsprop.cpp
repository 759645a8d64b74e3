#include "optim/rule.hpp"

namespace weft::optim {
namespace {

std::vector<StateRow> rmsprop_states(const RMSpropOptions& o, int /*kind*/) {
  std::vector<StateRow> rows = {{.name = "square_avg"}};
  if (o.momentum > 0) rows.push_back({.name = "momentum_buffer"});
  if (o.centered) rows.push_back({.name = "grad_avg"});
  return rows;
}

Tensor rmsprop_update(const RMSpropOptions& o, Update& u) {
  Tensor v = u.state[0] = moved(u.state[0], square(u.gradient), o.alpha);
  if (o.centered) {
    Tensor& mean = u.state.back();
    mean = moved(mean, u.gradient, o.alpha);
    v = maximum(v - square(mean), 0.0);  // rounding may make it negative
  }
  Tensor direction = u.gradient / (sqrt(v) + o.epsilon);
  if (o.momentum > 0) direction = u.state[1] = u.state[1] * o.momentum + direction;
  return u.parameter - u.rate * direction;
}

}  // namespace

const Rule<RMSpropOptions>& rule_of(const RMSpropOptions& /*options*/) {
  using O = RMSpropOptions;
  static const Rule<O> rule = {
      .name = "rmsprop",
      .title = "RMSprop",
      .doc = "gradients over the root of their mean square",
      .fields = {{"alpha", &O::alpha, Range::share, "decay rate of the mean square"},
                 {"epsilon", &O::epsilon, Range::positive, "added to the root of the mean square"},
                 {"momentum", &O::momentum, Range::not_negative, "share of the previous direction that is kept"},
                 {"centered", &O::centered, {}, "takes the variance in place of the mean square"}},
      .states = rmsprop_states,
      .update = rmsprop_update};
  return rule;
}

}  // namespace weft::optim
