#include "llm/mixture.hpp"

#include <limits>

#include "runtime/packed_matrix.hpp"
#include "weft/grad.hpp"
#include "weft/inference.hpp"
#include "weft/ops.hpp"
#include "weft/ops/grouped.hpp"
#include "weft/ops/indexing.hpp"
#include "weft/ops/order.hpp"

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

Tensor clamped_swiglu(const Tensor& gate, const Tensor& up, double alpha, double limit) {
  const Tensor g = elementwise("minimum", {gate, scalar_like(limit, gate)});
  return g * elementwise("sigmoid", {g * alpha}) * (clamped(up, limit) + 1.0);
}

Tensor squared_above_zero(const Tensor& x) {
  const Tensor positive = elementwise("relu", {x});
  return positive * positive;
}

/// Products of rows with the matrices of their experts.
class ExpertProducts {
 public:
  virtual ~ExpertProducts() = default;
  /// Rows of x for the experts, in the order of these products, each times its weight [T, used] if there are weights; and results in
  /// the order [T, used, n] again.
  virtual Tensor begun(const Tensor& x, const Tensor& weights) const = 0;
  virtual Tensor ended(const Tensor& y) const = 0;
  Tensor operator()(const Tensor& x, const Expert& expert) const {
    Tensor y = product(x, expert.weight, false);
    if (y.dim(-1) > expert.rows) y = narrow(y, -1, 0, expert.rows);
    if (!expert.bias.defined()) return y;
    const Tensor biases = embedding(expert.bias, reshape(numbers(), {-1}));
    return y + cast(reshape(biases, y.shape()), y.dtype());
  }
  /// B A x for the expert of each row. Low ranks are small products, so they are exact.
  Tensor changed(const Tensor& x, const ExpertChange& change) const {
    return product(product(x, change.a, true), change.b, true);
  }

 private:
  virtual Tensor product(const Tensor& x, const Tensor& weight, bool is_exact) const = 0;
  /// The expert of each row.
  virtual Tensor numbers() const = 0;
};

/// Of weights in blocks. Each row has its matrices where it is.
class PackedExperts final : public ExpertProducts {
 public:
  PackedExperts(const Tensor& numbers, bool exact) : numbers_(numbers), exact_(exact) {}
  Tensor begun(const Tensor& x, const Tensor& weights) const override {
    return weights.defined() ? unsqueeze(x, 1) * unsqueeze(weights, 2) : x;
  }
  Tensor ended(const Tensor& y) const override { return y; }

 private:
  Tensor product(const Tensor& x, const Tensor& weight, bool is_exact) const override {
    return expert_linear(x, weight, numbers_, exact_ || is_exact);
  }
  Tensor numbers() const override { return numbers_; }

  Tensor numbers_;
  bool exact_;
};

/// Of plain weights, with gradients. Rows are sorted by expert.
class SortedExperts final : public ExpertProducts {
 public:
  SortedExperts(const Tensor& numbers, Extent experts) : used_(numbers.dim(1)) {
    const auto sorted = sort(reshape(numbers, {-1}), 0);
    numbers_ = sorted.values;
    order_ = sorted.positions;
    const Tensor all(arange(experts, DType::i32, numbers.device()));
    ends_ = cast(searchsorted(numbers_, all, true), DType::i32);
  }
  Tensor begun(const Tensor& x, const Tensor& weights) const override {
    const Tensor rows = index_select(x, 0, floor_divide(order_, scalar_like(static_cast<double>(used_), order_)));
    if (!weights.defined()) return rows;
    return rows * cast(unsqueeze(index_select(reshape(weights, {-1}), 0, order_), 1), rows.dtype());
  }
  Tensor ended(const Tensor& y) const override {
    return reshape(index_select(y, 0, argsort(order_, 0)), {y.dim(0) / used_, used_, y.dim(1)});
  }

 private:
  Tensor product(const Tensor& x, const Tensor& weight, bool) const override {
    return cast(grouped_matmul(cast(x, weight.dtype()), weight, ends_, true), x.dtype());
  }
  Tensor numbers() const override { return numbers_; }

  Extent used_;
  Tensor numbers_, order_, ends_;
};

}  // namespace

ChosenExperts choose_experts(const Tensor& logits, const Tensor& correction, const ExpertChoice& c) {
  const bool are_probabilities = c.is_sigmoid || correction.defined();
  const Tensor scores = c.is_sigmoid           ? elementwise("sigmoid", {logits})
                        : correction.defined() ? softmax(logits, 1)
                                               : logits;
  Tensor choice = correction.defined() ? scores + correction : scores;
  if (c.groups > 1) choice = in_best_groups(choice, c.groups, c.groups_used, c.is_sigmoid);
  const Tensor numbers = topk(choice, c.used, 1).positions;
  const auto of_chosen = [&](const Tensor& of_all) { return take_along_axis(of_all, numbers, 1); };
  Tensor weights;
  if (are_probabilities) {
    weights = of_chosen(scores);
    if (c.are_shares) weights = weights / (sum(weights, {1}, {.keepdims = true}) + 1e-20);
  } else {
    weights = c.are_shares ? softmax(of_chosen(scores), 1) : of_chosen(softmax(scores, 1));
  }
  return {numbers, c.factor == 1 ? weights : weights * c.factor};
}

Tensor mixture(const Tensor& x, const ChosenExperts& chosen, const MixtureWeights& w, bool exact) {
  const auto mixed = [&](const ExpertProducts& times) {
    const Tensor rows = times.begun(x, w.are_inputs_weighted ? chosen.weights : Tensor());
    Tensor gate, up = times(rows, w.up);
    if (!w.are_plain) gate = times(rows, w.gate);
    if (w.gate_up.a.defined()) {
      const Tensor change = times.changed(rows, w.gate_up);
      gate = gate + narrow(change, -1, 0, w.gate.rows);
      up = up + narrow(change, -1, w.gate.rows, w.up.rows);
    }
    const Tensor inner = w.are_plain   ? squared_above_zero(up)
                         : w.alpha > 0 ? clamped_swiglu(gate, up, w.alpha, w.limit)
                         : w.is_gelu   ? elementwise("gelu_tanh", {gate}) * up
                                       : swiglu(gate, up);
    Tensor result = times(inner, w.down);
    if (w.down_change.a.defined()) result = result + narrow(times.changed(inner, w.down_change), -1, 0, w.down.rows);
    const Tensor outer = times.ended(result);
    return sum(w.are_inputs_weighted ? outer : outer * cast(unsqueeze(chosen.weights, 2), outer.dtype()), {1});
  };
  const bool is_packed =
      is_packed_matrix(w.gate.weight) && is_packed_matrix(w.up.weight) && is_packed_matrix(w.down.weight);
  if (is_packed) return mixed(PackedExperts(chosen.numbers, exact));
  return mixed(SortedExperts(chosen.numbers, w.gate.weight.dim(0)));
}

Tensor balance_loss(std::span<const Tensor> logits, const Tensor& counted, Extent used) {
  const Tensor mask = unsqueeze(cast(counted, DType::f32), 1);
  Tensor choices, probabilities;  // summed over tokens, [E]
  const auto add = [](Tensor& all, const Tensor& more) { all = all.defined() ? all + more : more; };
  for (const Tensor& each : logits) {
    const Tensor wide = cast(each, DType::f32);
    add(choices, sum(best_of(detach(wide), used) * mask, {0}));
    add(probabilities, sum(softmax(wide, 1) * mask, {0}));
  }
  const Tensor rows = sum(mask) * static_cast<double>(logits.size());
  return sum(choices * probabilities) * static_cast<double>(choices.dim(0)) / (rows * rows);
}

Tensor clamped(const Tensor& x, double limit) {
  return elementwise("minimum", {elementwise("maximum", {x, scalar_like(-limit, x)}), scalar_like(limit, x)});
}

}  // namespace weft::llm
