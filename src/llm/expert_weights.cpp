#include "llm/expert_weights.hpp"

#include <limits>

#include "weft/ops.hpp"

namespace weft::llm {
namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();

/// 1 for the `count` largest of each row of `scores` [T, n], else 0; of equal ones the first. The best is taken away again and
/// again.
Tensor best_of(const Tensor& scores, Extent count) {
  const Extent n = scores.dim(1);
  const Tensor number(
      cast(expand(unsqueeze(arange(n, DType::i32, scores.device()), 0), {scores.dim(0), n}), DType::i32));
  Tensor left = scores, chosen = zeros_like(scores);
  for (Extent i = 0; i < count; ++i) {
    const Tensor best = elementwise("eq", {number, argmax(left, 1, {.keepdims = true})});
    chosen = elementwise("where", {best, ones_like(chosen), chosen});
    left = elementwise("where", {best, scalar_like(kNone, left), left});
  }
  return chosen;
}

/// `choice` [T, E] without the experts of all but the best groups: those whose best experts, one or two, have the largest sum.
Tensor in_best_groups(const Tensor& choice, Extent groups, Extent used, bool by_two) {
  const Extent tokens = choice.dim(0), each = choice.dim(1) / groups;
  const Tensor parts = reshape(choice, {tokens * groups, each});
  Tensor score = amax(parts, {1});
  if (by_two && each > 1)
    score = score +
            amax(elementwise("where", {best_of(parts, 1) > zeros_like(parts), scalar_like(kNone, parts), parts}), {1});
  const Tensor best = unsqueeze(best_of(reshape(score, {tokens, groups}), used), 2),
               grouped = reshape(choice, {tokens, groups, each});
  const Tensor is_in = expand(best, grouped.shape());
  return reshape(elementwise("where", {is_in > zeros_like(is_in), grouped, scalar_like(kNone, grouped)}),
                 choice.shape());
}

}  // namespace

Tensor expert_weights(const Tensor& logits, const Tensor& correction, const ExpertChoice& c) {
  const Tensor scores = c.is_sigmoid ? elementwise("sigmoid", {logits}) : logits;
  Tensor choice = correction.defined() ? scores + correction : scores;
  if (c.groups > 1) choice = in_best_groups(choice, c.groups, c.groups_used, c.is_sigmoid);
  const Tensor chosen = best_of(choice, c.used);
  const Tensor taken = chosen > zeros_like(chosen);
  Tensor weight;
  if (c.is_sigmoid) {
    weight = scores * chosen;
    if (c.are_shares) weight = weight / (sum(weight, {1}, {.keepdims = true}) + 1e-20);
  } else {
    weight = c.are_shares ? softmax(elementwise("where", {taken, scores, scalar_like(kNone, scores)}), 1)
                          : softmax(scores, 1) * chosen;
  }
  return c.factor == 1 ? weight : weight * c.factor;
}

Tensor clamped(const Tensor& x, double limit) {
  return elementwise("minimum", {elementwise("maximum", {x, scalar_like(-limit, x)}), scalar_like(limit, x)});
}

Tensor clamped_swiglu(const Tensor& gate, const Tensor& up, double alpha, double limit) {
  const Tensor g = elementwise("minimum", {gate, scalar_like(limit, gate)});
  return g * elementwise("sigmoid", {g * alpha}) * (clamped(up, limit) + 1.0);
}

}  // namespace weft::llm
