#include "optim/rule.hpp"

namespace weft::optim {
namespace {

std::vector<StateRow> radam_states(const RAdamOptions& /*options*/, int /*kind*/) {
  return {{.name = "exp_avg"}, {.name = "exp_avg_sq"}};
}

// 1 - y / (e^y - 1) for y > 0. For small y the quotient would cancel; the series' next term is below 1e-16 of the sum there.
Tensor rise(const Tensor& y) {
  const Tensor z = square(y);
  const Tensor tail = 1.0 / 30240 - z * (1.0 / 1209600 - z * (1.0 / 47900160));
  const Tensor series = y * 0.5 - z * (1.0 / 12 - z * (1.0 / 720 - z * tail));
  return where(y < 0.25, series, 1.0 - y / expm1(y));
}

// r of the formula. 2 / (1 - b2) - 2 t b2^t / (1 - b2^t) is a difference of large numbers, which f32 would not survive. With
// L = -ln(b2) it is a number near 1 plus 2 / L * rise(L t).
Tensor samples(double beta_2, const Tensor& step) {
  const double l = -std::log(beta_2), limit = 2 / (1 - beta_2) - 1;
  return rise(step * l) * (2 / l) + (limit - 2 / l);
}

Tensor radam_update(const RAdamOptions& o, Update& u) {
  u.state[0] = moved(u.state[0], u.gradient, o.beta_1);
  u.state[1] = moved(u.state[1], square(u.gradient), o.beta_2);
  const Tensor r = samples(o.beta_2, u.step);
  const Tensor rectified = r > 5.0;
  const double limit = 2 / (1 - o.beta_2) - 1;
  // Kept positive where it is not used, so that no NaN is made.
  const Tensor used = maximum(r, 5.0);
  const Tensor factor = sqrt((used - 4.0) * (used - 2.0) / used * (limit / ((limit - 4) * (limit - 2))) *
                             bias_correction(o.beta_2, u.step));
  const Tensor rate = u.rate / bias_correction(o.beta_1, u.step);
  const Tensor adaptive = rate * factor * u.state[0] / (sqrt(u.state[1]) + o.epsilon);
  return u.parameter - where(rectified, adaptive, rate * u.state[0]);
}

void check_radam(const RAdamOptions& o) {
  if (!(o.beta_2 > 0.6))
    throw UsageError(fmt::format("RAdam: beta_2 is {}; it must be above 0.6, or else no step is rectified", o.beta_2));
}

}  // namespace

const Rule<RAdamOptions>& rule_of(const RAdamOptions& /*options*/) {
  using O = RAdamOptions;
  static const Rule<O> rule = {
      .name = "radam",
      .title = "RAdam",
      .doc = "Adam with a rectified rate in the first steps",
      .fields = {{"beta_1", &O::beta_1, Range::share, "decay rate of the mean"},
                 {"beta_2", &O::beta_2, Range::share, "decay rate of the mean square"},
                 {"epsilon", &O::epsilon, Range::positive, "added to the root of the mean square"},
                 {"decoupled", &O::decoupled, {}, "decays as AdamW"}},
      .states = radam_states,
      .update = radam_update,
      .decay = [](const O& o) { return o.decoupled ? Decay::decoupled : Decay::coupled; },
      .check = check_radam};
  return rule;
}

}  // namespace weft::optim
