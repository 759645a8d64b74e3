#include "weft/nn/mixture.hpp"

#include <fmt/format.h>

#include <cmath>

#include "weft/grad.hpp"
#include "weft/ops.hpp"
#include "weft/ops/grouped.hpp"
#include "weft/ops/indexing.hpp"
#include "weft/ops/order.hpp"

namespace weft::nn {
namespace {

Extent checked_experts(Extent width, Extent hidden, Extent experts, Extent top_k) {
  if (width < 1 || hidden < 1 || experts < 1)
    throw ShapeError(
        fmt::format("mixture: width {}, hidden {}, experts {}; each is at least 1", width, hidden, experts));
  if (top_k < 1 || top_k > experts)
    throw UsageError(fmt::format("mixture: top_k {} of {} experts; it is between 1 and their number", top_k, experts));
  return experts;
}

Init uniform_for(Extent inputs) {
  const double bound = 1 / std::sqrt(static_cast<double>(inputs));
  return Init::uniform(-bound, bound);
}

}  // namespace

Routing route(const Tensor& scores, Extent top_k, Where where) {
  if (!scores.defined()) throw UsageError("route: scores has no value");
  if (scores.rank() != 2) throw ShapeError(fmt::format("route: scores are {}, not [n, E]", scores.shape().to_string()));
  const Extent experts = scores.dim(1);
  if (top_k < 1 || top_k > experts)
    throw UsageError(fmt::format("route: top_k {} of {} experts; it is between 1 and their number", top_k, experts));
  Routing r;
  const auto best = topk(scores, top_k, -1, true, where);
  r.weights = softmax(best.values, -1, where);
  r.experts = best.positions;
  r.probabilities = softmax(scores, -1, where);
  const auto sorted = sort(flatten(r.experts, 0, -1, where), -1, false, where);
  r.order = sorted.positions;
  r.ends = cast(searchsorted(sorted.values, arange(experts, DType::i32, scores.device()), true, where), DType::i32);
  return r;
}

Tensor balance_loss(const Routing& r, Where where) {
  const Extent experts = r.probabilities.dim(1);
  const Tensor before =
      concat(std::vector<Tensor>{full({1}, 0, DType::i32, r.ends.device()), narrow(r.ends, 0, 0, experts - 1)}, 0);
  const Tensor counts = cast(r.ends - before, r.probabilities.dtype());
  const double choices = static_cast<double>(r.experts.numel());
  return sum(counts * mean(r.probabilities, {0}, {}, where), {}, {}, where) * (static_cast<double>(experts) / choices);
}

Mixture::Mixture(Extent width, Extent hidden, Extent experts, MixtureOptions options)
    : width_(width),
      hidden_(hidden),
      experts_(checked_experts(width, hidden, experts, options.top_k)),
      top_k_(options.top_k),
      router_(this, "router", width, experts, LinearOptions{.bias = false}),
      gates_(parameter("gates", {experts, hidden, width}, uniform_for(width))),
      ups_(parameter("ups", {experts, hidden, width}, uniform_for(width))),
      downs_(parameter("downs", {experts, width, hidden}, uniform_for(hidden))) {}

MixtureResult Mixture::forward(const Tensor& x, Where where) const {
  if (!x.defined()) throw UsageError("mixture: x has no value");
  if (x.rank() < 1 || x.dim(-1) != width_)
    throw ShapeError(fmt::format("mixture: x is {}, not [..., {}]", x.shape().to_string(), width_));
  const Tensor rows = reshape(x, {-1, width_}, where);
  const Extent n = rows.dim(0);
  MixtureResult result;
  result.routing = route(router_(rows, where), top_k_, where);
  const Routing& r = result.routing;
  const Tensor sorted = index_select(
      rows, 0, floor_divide(r.order, full({}, static_cast<double>(top_k_), DType::i32, x.device())), where);
  const Tensor inner =
      silu(grouped_matmul(sorted, gates_, r.ends, true, where)) * grouped_matmul(sorted, ups_, r.ends, true, where);
  const Tensor outer = grouped_matmul(inner, downs_, r.ends, true, where);
  // Back to the order of rows: place i of the sorted order is choice order[i].
  const Tensor chosen = index_select(outer, 0, argsort(r.order, -1, false, where), where);
  const Tensor weighted = reshape(chosen, {n, top_k_, width_}, where) * unsqueeze(r.weights, 2, where);
  result.output = reshape(sum(weighted, {1}, {}, where), x.shape(), where);
  result.balance_loss = nn::balance_loss(r, where);
  return result;
}

std::string Mixture::describe() const {
  return fmt::format("Mixture {} -> {}, {} of {} experts", width_, hidden_, top_k_, experts_);
}

double Mixture::own_flops() const { return 6.0 * static_cast<double>(top_k_ * width_ * hidden_); }

}  // namespace weft::nn
