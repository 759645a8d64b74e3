#include <fmt/format.h>

#include <cmath>

#include "weft/ops.hpp"
#include "weft/optim/optimizer.hpp"

namespace weft::optim {
namespace {

// 1 - beta^t without cancellation for small t.
Tensor bias_correction(double beta, const Tensor& step) {
  return beta > 0 ? -elementwise("expm1", {step * std::log(beta)}) : ones_like(step);
}

AdamOptions as_adam(const AdamWOptions& o) {
  return {o.learning_rate, o.beta_1, o.beta_2, o.epsilon, o.weight_decay, o.clip_norm, o.decay_filter};
}

}  // namespace

Adam::Adam(ParameterList parameters, AdamOptions options) : Adam(std::move(parameters), std::move(options), false) {}

Adam::Adam(ParameterList parameters, AdamOptions options, bool decoupled)
    : Optimizer(std::move(parameters), {options.learning_rate, options.clip_norm, options.decay_filter},
                {"moment_1", "moment_2"}),
      options_(std::move(options)),
      decoupled_(decoupled) {
  for (const double beta : {options_.beta_1, options_.beta_2})
    if (!(beta >= 0 && beta < 1)) throw UsageError(fmt::format("Adam: beta {} must be in [0, 1)", beta));
  if (!(options_.epsilon > 0) || std::isinf(options_.epsilon))
    throw UsageError(fmt::format("Adam: epsilon {} must be a number above 0", options_.epsilon));
  if (!(options_.weight_decay >= 0) || std::isinf(options_.weight_decay))
    throw UsageError(fmt::format("Adam: weight decay {} must be a number of at least 0", options_.weight_decay));
}

void Adam::update(Group& group, const Tensor& gradient, const Tensor& learning_rate, const Tensor& step) {
  const bool decays = group.decay && options_.weight_decay != 0;
  Tensor p = group.flat.value(), g = gradient;
  if (decays && !decoupled_) g = g + p * options_.weight_decay;
  const Tensor m = group.state[0].value() * options_.beta_1 + g * (1 - options_.beta_1);
  const Tensor v = group.state[1].value() * options_.beta_2 + elementwise("square", {g}) * (1 - options_.beta_2);
  // Everything that does not depend on the element is a rank-0 value, computed once.
  const Tensor rate = learning_rate / bias_correction(options_.beta_1, step);
  const Tensor scale = elementwise("rsqrt", {bias_correction(options_.beta_2, step)});
  if (decays && decoupled_) p = p * (1.0 - learning_rate * options_.weight_decay);
  group.state[0].assign(m);
  group.state[1].assign(v);
  group.flat.assign(p - rate * m / (elementwise("sqrt", {v}) * scale + options_.epsilon));
}

AdamW::AdamW(ParameterList parameters, AdamWOptions options) : Adam(std::move(parameters), as_adam(options), true) {}

}  // namespace weft::optim
