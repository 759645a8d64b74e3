#include "weft/optim/loss_scale.hpp"

#include <fmt/format.h>

#include <cmath>

#include "graph/autocast.hpp"
#include "optim/flat.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"

namespace weft::optim {
namespace {

constexpr double kLeast = 0x1p-24, kLargest = 0x1p24;

Variable counter(std::string_view name, Device device) {
  const std::int32_t none = 0;
  return Variable(tensor_from_bytes(&none, {}, DType::i32, device), name, false);
}

const LossScaleOptions& checked(const LossScaleOptions& o) {
  if (!(o.initial >= kLeast && o.initial <= kLargest))
    throw UsageError(fmt::format("LossScale: the initial factor {} must be in [2^-24, 2^24]", o.initial));
  if (!(o.growth_factor > 1) || std::isinf(o.growth_factor))
    throw UsageError(fmt::format("LossScale: the growth factor {} must be above 1", o.growth_factor));
  if (!(o.backoff_factor > 0 && o.backoff_factor < 1))
    throw UsageError(fmt::format("LossScale: the backoff factor {} must be in (0, 1)", o.backoff_factor));
  if (o.growth_interval < 1 || o.growth_interval > INT32_MAX)
    throw UsageError(fmt::format("LossScale: the growth interval {} must be at least 1", o.growth_interval));
  return o;
}

}  // namespace

LossScale::LossScale(LossScaleOptions options, Device device)
    : options_(checked(options)),
      factor_(float_variable(options.initial, "loss_scale.factor", device)),
      good_steps_(counter("loss_scale.good_steps", device)),
      skipped_steps_(counter("loss_scale.skipped_steps", device)) {}

Tensor LossScale::apply(const Tensor& loss) const { return loss * detach(factor()); }

void LossScale::update(const Tensor& finite) {
  const NoGrad no_grad;
  const graph::NoAutocast in_given_types;
  const Tensor factor = factor_.value(), good = good_steps_.value() + 1.0, one = cast(finite, DType::i32);
  const Tensor grows = elementwise("ge", {good, scalar_like(static_cast<double>(options_.growth_interval), good)});
  const Tensor larger = elementwise("minimum", {factor * options_.growth_factor, scalar_like(kLargest, factor)});
  const Tensor smaller = elementwise("maximum", {factor * options_.backoff_factor, scalar_like(kLeast, factor)});
  factor_.assign(elementwise("where", {finite, elementwise("where", {grows, larger, factor}), smaller}));
  good_steps_.assign(good * one * cast(!grows, DType::i32));
  skipped_steps_.assign(skipped_steps_.value() + 1.0 - one);
}

double LossScale::value() const { return static_cast<double>(factor().item<float>()); }
std::int64_t LossScale::good_steps() const { return good_steps_.value().item<std::int32_t>(); }
std::int64_t LossScale::skipped_steps() const { return skipped_steps_.value().item<std::int32_t>(); }

std::vector<nn::NamedVariable> LossScale::variables() const {
  return {{"factor", factor_}, {"good_steps", good_steps_}, {"skipped_steps", skipped_steps_}};
}

nn::StateDict LossScale::state_dict() const { return nn::read_state(variables()); }

void LossScale::load_state_dict(const nn::StateDict& state) { nn::write_state(variables(), state, true, "loss scale"); }

}  // namespace weft::optim
