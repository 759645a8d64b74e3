// Composites: named subgraphs. What they are made of here defines what they mean; the planner fuses them.
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "graph/axes.hpp"
#include "graph/describe.hpp"
#include "graph/no_grad.hpp"
#include "graph/node.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"

namespace weft {

using graph::describe;
using graph::NodeRef;

namespace {

void check_float(std::string_view op, const Tensor& x, Where where) {
  if (!x.defined()) throw UsageError(fmt::format("{}: the tensor has no value", op));
  if (!is_float(x.dtype())) throw DTypeError(describe(op, "takes floats; cast x", {{"x", x}}, where));
}

// Composites of narrow types compute in f32 from end to end, and round once.
Tensor widened(const Tensor& x) { return x.defined() && is_narrow(x.dtype()) ? cast(x, compute_type(x.dtype())) : x; }

// x - max x, where the maximum carries no gradient (it cancels).
Tensor centered(const Tensor& x, int axis, Where where) {
  return x - detach(amax(x, {axis}, {.keepdims = true}, where));
}

void check_vector(std::string_view op, const Tensor& x, const Tensor& v, std::string_view name, Where where) {
  if (v.defined() && (v.rank() != 1 || v.dim(0) != x.dim(-1)))
    throw ShapeError(describe(op, fmt::format("{} is not as long as the last axis of x", name),
                              {{"x", x}, {std::string(name), v}}, where));
}

}  // namespace

Tensor softmax(const Tensor& x, int axis, Where where) {
  check_float("softmax", x, where);
  const int a = graph::normalized_axis("softmax", x, axis, where);
  if (x.numel() == 0) return x;
  if (is_narrow(x.dtype())) return cast(softmax(widened(x), axis, where), x.dtype());
  const Tensor e = elementwise("exp", {centered(x, a, where)}, {}, where);
  return e / sum(e, {a}, {.keepdims = true}, where);
}

Tensor log_softmax(const Tensor& x, int axis, Where where) {
  check_float("log_softmax", x, where);
  const int a = graph::normalized_axis("log_softmax", x, axis, where);
  if (x.numel() == 0) return x;
  if (is_narrow(x.dtype())) return cast(log_softmax(widened(x), axis, where), x.dtype());
  const Tensor c = centered(x, a, where);
  return c - elementwise("log", {sum(elementwise("exp", {c}), {a}, {.keepdims = true}, where)}, {}, where);
}

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps, Where where) {
  check_float("layer_norm", x, where);
  if (x.rank() == 0) throw ShapeError(describe("layer_norm", "x is a scalar", {{"x", x}}, where));
  check_vector("layer_norm", x, weight, "weight", where);
  check_vector("layer_norm", x, bias, "bias", where);
  if (is_narrow(x.dtype())) {
    DType type = x.dtype();
    for (const Tensor& v : {weight, bias})
      if (v.defined()) type = promote(type, v.dtype());
    return cast(layer_norm(widened(x), widened(weight), widened(bias), eps, where), type);
  }
  const Tensor c = x - mean(x, {-1}, {.keepdims = true}, where);
  const Tensor variance = mean(elementwise("square", {c}), {-1}, {.keepdims = true}, where);
  Tensor y = c * elementwise("rsqrt", {variance + eps});
  if (weight.defined()) y = elementwise("mul", {y, weight}, {}, where);
  if (bias.defined()) y = elementwise("add", {y, bias}, {}, where);
  return y;
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps, Where where) {
  check_float("rms_norm", x, where);
  if (x.rank() == 0) throw ShapeError(describe("rms_norm", "x is a scalar", {{"x", x}}, where));
  check_vector("rms_norm", x, weight, "weight", where);
  if (is_narrow(x.dtype()))
    return cast(rms_norm(widened(x), widened(weight), eps, where),
                weight.defined() ? promote(x.dtype(), weight.dtype()) : x.dtype());
  const Tensor y = x * elementwise("rsqrt", {mean(elementwise("square", {x}), {-1}, {.keepdims = true}, where) + eps});
  return weight.defined() ? elementwise("mul", {y, weight}, {}, where) : y;
}

Tensor cross_entropy(const Tensor& logits, const Tensor& targets, int ignore_index, Where where) {
  check_float("cross_entropy", logits, where);
  if (!targets.defined()) throw UsageError("cross_entropy: targets have no value");
  const std::vector<std::pair<std::string, Tensor>> operands = {{"logits", logits}, {"targets", targets}};
  if (!is_integer(targets.dtype()))
    throw DTypeError(describe("cross_entropy", "targets are not i32; cast them", operands, where));
  bool fits = logits.rank() == targets.rank() + 1;
  for (int i = 0; fits && i < targets.rank(); ++i) fits = logits.shape()[i] == targets.shape()[i];
  if (!fits)
    throw ShapeError(describe("cross_entropy", "targets are not logits' shape without its last axis", operands, where));
  if (is_narrow(logits.dtype()))
    return cast(cross_entropy(widened(logits), targets, ignore_index, where), logits.dtype());
  if (targets.dtype() != DType::i32)
    return cross_entropy(logits, cast(Tensor(graph::index_type(targets.node())), DType::i32), ignore_index, where);
  const Extent rows = targets.numel(), classes = logits.dim(-1);
  const Tensor flat = reshape(logits, {rows, classes}), target = reshape(targets, {rows, 1});
  const Tensor class_index(graph::iota({rows, classes}, 1, targets.dtype(), logits.device()));
  const Tensor hit = elementwise("eq", {class_index, target});
  // logsumexp - logit of the target, without gathering: one row pass.
  const Tensor c = centered(flat, 1, where);
  const Tensor total = elementwise("log", {sum(elementwise("exp", {c}), {1}, {.keepdims = true})});
  const Tensor picked = sum(elementwise("where", {hit, c, scalar_like(0, c)}), {1}, {.keepdims = true});
  const Tensor counted = elementwise("ne", {target, scalar_like(ignore_index, target)});
  const Tensor valid =
      elementwise("logical_and", {elementwise("ge", {target, scalar_like(0, target)}),
                                  elementwise("lt", {target, scalar_like(static_cast<double>(classes), target)})});
  const Tensor nan = scalar_like(std::numeric_limits<double>::quiet_NaN(), c);
  const Tensor loss =
      elementwise("where", {counted, elementwise("where", {valid, total - picked, nan}), scalar_like(0, c)});
  return sum(loss) / cast(sum(cast(counted, DType::i32)), c.dtype());
}

Tensor mse_loss(const Tensor& prediction, const Tensor& target, Where where) {
  check_float("mse_loss", prediction, where);
  if (target.defined() && target.shape() != prediction.shape())
    throw ShapeError(
        describe("mse_loss", "the shapes differ", {{"prediction", prediction}, {"target", target}}, where));
  return mean(elementwise("square", {elementwise("sub", {prediction, target}, {}, where)}), {}, {}, where);
}

Tensor rope(const Tensor& x, double base, Extent offset, Where where) {
  check_float("rope", x, where);
  if (x.rank() < 2 || x.dim(-1) % 2 != 0)
    throw ShapeError(
        describe("rope", "x is not [..., positions, channels] with an even number of channels", {{"x", x}}, where));
  if (is_narrow(x.dtype())) return cast(rope(widened(x), base, offset, where), x.dtype());
  const Extent positions = x.dim(-2), half = x.dim(-1) / 2;
  const Tensor position =
      cast(Tensor(graph::iota({positions, half}, 0, DType::i32, x.device())), x.dtype()) + static_cast<double>(offset);
  const Tensor pair = cast(Tensor(graph::iota({positions, half}, 1, DType::i32, x.device())), x.dtype());
  const Tensor angle = position * elementwise("exp", {pair * (-std::log(base) / static_cast<double>(half))});
  const Tensor c = elementwise("cos", {angle}), s = elementwise("sin", {angle});
  const Tensor low = slice(x, -1, 0, half), high = slice(x, -1, half);
  const Tensor parts[] = {low * c - high * s, high * c + low * s};
  return concat(parts, -1, where);
}

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, bool causal, double scale, Extent window,
                 Where where) {
  check_float("attention", q, where);
  if (!k.defined() || !v.defined()) throw UsageError("attention: k or v has no value");
  const std::vector<std::pair<std::string, Tensor>> operands = {{"q", q}, {"k", k}, {"v", v}};
  if (k.dtype() != q.dtype() || v.dtype() != q.dtype())
    throw DTypeError(describe("attention", "the dtypes differ; cast them", operands, where));
  if (k.device() != q.device() || v.device() != q.device())
    throw DeviceError(describe("attention", "the devices differ", operands, where));
  if (q.rank() != 4 || k.rank() != 4 || v.shape() != k.shape() || k.dim(0) != q.dim(0) || k.dim(3) != q.dim(3) ||
      k.dim(1) == 0 || q.dim(1) % k.dim(1) != 0)
    throw ShapeError(describe("attention", "not q [B, H, T, D] with k and v [B, H or a whole fraction of it, S, D]",
                              operands, where));
  auto heads_last = [&](const Tensor& x) {  // [B, H, T, D] -> [B, T, H, D], key heads repeated for grouped queries
    NodeRef n = x.node();
    const Extent group = q.dim(1) / x.dim(1);
    if (group > 1) {
      n = graph::reshape(n, {x.dim(0), x.dim(1), 1, x.dim(2), x.dim(3)});
      n = graph::expand(n, {x.dim(0), x.dim(1), group, x.dim(2), x.dim(3)});
      n = graph::reshape(n, {x.dim(0), q.dim(1), x.dim(2), x.dim(3)});
    }
    return graph::permute(n, {0, 2, 1, 3});
  };
  if (window < 0)
    throw UsageError(describe("attention", fmt::format("the window is {}; give 0 for none", window), operands, where));
  if (scale == 0) scale = 1 / std::sqrt(static_cast<double>(q.dim(3)));
  if (is_narrow(q.dtype()))
    return cast(attention(widened(q), widened(k), widened(v), causal, scale, window, where), q.dtype());
  // A window that everything is in is none, and none has kernels.
  if (window >= std::max(q.dim(2), k.dim(2))) window = 0;
  const NodeRef fused = graph::attention(heads_last(q), heads_last(k), heads_last(v), {causal, window}, scale);
  return graph::wrap(graph::permute(graph::project(fused, 0), {0, 2, 1, 3}));
}

Tensor swiglu(const Tensor& gate, const Tensor& up, Where where) {
  return elementwise("mul", {elementwise("silu", {gate}, {}, where), up}, {}, where);
}

namespace graph {
namespace {

// Scores of attention and what follows from them, [B, H, T, S].
struct Scores {
  Tensor q, k, v;  // [B, H, T, D]
  Tensor weights, logsumexp;
};

Scores scores_of(const Node& tuple) {
  auto heads_first = [](const NodeRef& x) { return Tensor(permute(x, {0, 2, 1, 3})); };
  Scores s{heads_first(tuple.inputs[0]), heads_first(tuple.inputs[1]), heads_first(tuple.inputs[2]), {}, {}};
  Tensor scores = weft::matmul(s.q, weft::transpose(s.k)) * tuple.value;
  const AttentionMask mask = attention_mask_of(tuple);
  const Extent keys = scores.dim(-1), surplus = std::max<Extent>(scores.dim(-2) - keys, 0);
  if (mask.causal || mask.window > 0) {
    const Shape grid{scores.dim(-2), keys};
    const Tensor position =
        Tensor(iota(grid, 0, DType::i32, scores.device())) + static_cast<double>(keys - scores.dim(-2));
    const Tensor column(iota(grid, 1, DType::i32, scores.device()));
    const auto hide = [&](const Tensor& seen) {
      scores = elementwise("where", {seen, scores, scalar_like(-std::numeric_limits<double>::infinity(), scores)});
    };
    const auto window = static_cast<double>(mask.window);
    if (mask.causal) hide(column <= position);
    if (mask.window > 0) hide(position < column + window);
    if (mask.window > 0 && !mask.causal) hide(column < position + window);
  }
  // First queries, which see no key.
  const Extent blind = mask.causal || keys == 0 ? surplus
                       : mask.window > 0        ? std::max<Extent>(surplus - mask.window + 1, 0)
                                                : 0;
  // The sum of nothing is 0; the largest of nothing is not there.
  Tensor top =
      weft::detach(keys == 0 ? weft::sum(scores, {-1}, {.keepdims = true}) : amax(scores, {-1}, {.keepdims = true}));
  Tensor sees;
  if (blind > 0) {  // their weights are 0, not 0 / 0
    const Tensor query(iota(top.shape(), 2, DType::i32, top.device()));
    sees = scalar_like(static_cast<double>(blind), query) <= query;
    top = elementwise("where", {sees, top, scalar_like(0, top)});
  }
  const Tensor e = elementwise("exp", {scores - top});
  const Tensor total = weft::sum(e, {-1}, {.keepdims = true});
  const Tensor divisor = blind > 0 ? elementwise("where", {sees, total, scalar_like(1, total)}) : total;
  Tensor logsumexp = elementwise("log", {divisor}) + top;
  if (blind > 0)
    logsumexp =
        elementwise("where", {sees, logsumexp, scalar_like(-std::numeric_limits<double>::infinity(), logsumexp)});
  s.weights = e / divisor;
  s.logsumexp = weft::reshape(logsumexp, {scores.dim(0), scores.dim(1), scores.dim(2)});
  return s;
}

}  // namespace

std::vector<NodeRef> decompose(const Node& tuple) {
  const Scores s = scores_of(tuple);
  auto heads_last = [](const Tensor& x) { return permute(x.node(), {0, 2, 1, 3}); };
  if (tuple.kind == Kind::attention) return {heads_last(weft::matmul(s.weights, s.v)), s.logsumexp.node()};
  const Tensor d_o(permute(tuple.inputs[5], {0, 2, 1, 3}));
  const Tensor d_weights = weft::matmul(d_o, weft::transpose(s.v));
  const Tensor d_scores =
      s.weights * (d_weights - weft::sum(d_weights * s.weights, {-1}, {.keepdims = true})) * tuple.value;
  return {heads_last(weft::matmul(d_scores, s.k)), heads_last(weft::matmul(weft::transpose(d_scores), s.q)),
          heads_last(weft::matmul(weft::transpose(s.weights), d_o))};
}

}  // namespace graph
}  // namespace weft
