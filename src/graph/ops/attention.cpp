// Attention and its gradient, with sinks too: their meaning in other ops.
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "graph/attention.hpp"
#include "graph/no_grad.hpp"
#include "graph/op.hpp"
#include "graph/op_families.hpp"
#include "graph/sink_attention.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"

namespace weft {

using graph::NodeRef;

namespace graph {
namespace {

// Scores and weights of attention, [B, H, T, S].
struct Scores {
  Tensor q, k, v;  // [B, H, T, D], key heads repeated
  Tensor weights, logsumexp;
  Tensor kept;  // factors of the weights where shares are dropped: 0 or more than 1
};

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Tensor larger(const Tensor& x, const Tensor& y) { return elementwise("maximum", {x, y}); }

Tensor swapped(const Tensor& x) { return Tensor(permute(x.node(), {0, 2, 1, 3})); }

// Rows along `axis` of scores [B, H, T, S].
Tensor number_of(const Tensor& scores, int axis, DType type = DType::i32) {
  return Tensor(iota(scores.shape(), axis, type, scores.device()));
}

// [B, S, Hkv, D] -> [B, H, S, D]: each head of keys repeated for its heads of queries.
Tensor key_heads(const Tensor& x, Extent heads) {
  const Tensor first = swapped(x);
  const Extent group = heads / x.dim(2);
  if (group == 1) return first;
  const Extent batch = x.dim(0), keys = x.dim(1), width = x.dim(3);
  return weft::reshape(
      weft::expand(weft::reshape(first, {batch, x.dim(2), 1, keys, width}), {batch, x.dim(2), group, keys, width}),
      {batch, heads, keys, width});
}
// Back: the sum over the heads that share a head of keys.
Tensor of_key_heads(const Tensor& x, Extent kv_heads) {
  const Extent group = x.dim(1) / kv_heads;
  if (group == 1) return swapped(x);
  return swapped(weft::sum(weft::reshape(x, {x.dim(0), kv_heads, group, x.dim(2), x.dim(3)}), {2}));
}

// A share's factor. Bits depend on (seed, stream, batch, head, query, key) only: four neighbours, two queries by two keys, have
// the bytes of one word of Philox.
Tensor kept_shares(const Tensor& scores, const Tensor& seed, Extent dropped) {
  const auto number = [&](int axis) { return number_of(scores, axis, DType::u32); };
  const auto constant = [&](Extent x) { return full({}, static_cast<double>(x), DType::u32, scores.device()); };
  const auto shifted = [&](const Tensor& x, Extent by) {
    return elementwise("bitwise_right_shift", {x, constant(by)});
  };
  const auto low = [&](const Tensor& x, Extent mask) { return elementwise("bitwise_and", {x, constant(mask)}); };
  const Tensor query = number(2), key = number(3);
  const Tensor head = number(0) * constant(scores.dim(1)) + number(1);
  const Tensor word =
      (head * constant((scores.dim(2) + 1) / 2) + shifted(query, 1)) * constant((scores.dim(3) + 1) / 2) +
      shifted(key, 1);
  scalar::Expression philox{3,
                            {{.op = scalar::Op::input, .slot = 0},
                             {.op = scalar::Op::input, .slot = 1},
                             {.op = scalar::Op::input, .slot = 2},
                             {.op = scalar::Op::philox, .type = DType::u32, .a = 0, .b = 1, .c = 2}}};
  const Tensor bits(map(philox, {select(seed, 0, 0).node(), select(seed, 0, 1).node(), word.node()}, "philox"));
  const Tensor place = low(query, 1) * constant(16) + low(key, 1) * constant(8);
  const Tensor byte = low(elementwise("bitwise_right_shift", {bits, place}), 255);
  return elementwise("where",
                     {constant(dropped) <= byte, scalar_like(256.0 / static_cast<double>(256 - dropped), scores),
                      scalar_like(0, scores)});
}

// The logits of sinks of a call, [B, H, 1 or T, 1]; undefined without.
Tensor sink_scores(const Call& call) {
  const std::size_t last = call.inputs().size() - 1;
  if (&call.row() == &attention_row() || !call.input(last).defined()) return {};
  return weft::unsqueeze(call.input(last), 3);
}

Scores scores_of(const Call& call) {
  const Extent heads = call.input(0).dim(2);
  Scores s{swapped(call.input(0)), key_heads(call.input(1), heads), key_heads(call.input(2), heads), {}, {}, {}};
  const auto mask = call.attributes<AttentionAttributes>();
  const AttentionInputs extra(call);
  Tensor scores = weft::matmul(s.q, weft::transpose(s.k)) * mask.scale;
  const Extent queries = scores.dim(-2), keys = scores.dim(-1);
  const auto hide = [&](const Tensor& seen) {
    scores = elementwise("where", {seen, scores, scalar_like(-kInfinity, scores)});
  };
  if (extra.mask.defined()) {
    if (extra.mask.dtype() != DType::boolean) scores = scores + extra.mask;
    hide(extra.mask.dtype() == DType::boolean ? extra.mask : extra.mask > scalar_like(kHiddenBias, extra.mask));
  }
  if (mask.causal || mask.window > 0) {
    const Shape grid{queries, keys};
    const Tensor position = Tensor(iota(grid, 0, DType::i32, scores.device())) + static_cast<double>(mask.shift);
    const Tensor column(iota(grid, 1, DType::i32, scores.device()));
    const auto window = static_cast<double>(mask.window);
    if (mask.causal) hide(column <= position);
    if (mask.window > 0) hide(position < column + window);
    if (mask.window > 0 && !mask.causal) hide(column < position + window);
  }
  if (extra.key_spans.defined()) {
    const Tensor spans = weft::reshape(extra.key_spans, {scores.dim(0), 1, queries, 2}), column = number_of(scores, 3);
    hide(elementwise("logical_and", {weft::slice(spans, -1, 0, 1) <= column, column < weft::slice(spans, -1, 1, 2)}));
  }
  // Whether some queries may see no key: their weights are 0, not 0 / 0.
  const bool is_blind_at_start = mask.causal && mask.shift < 0;
  const bool is_blind_at_end = mask.window > 0 && queries - 1 + mask.shift - mask.window + 1 > keys - 1;
  const bool is_blind_before = !mask.causal && mask.window > 0 && mask.shift + mask.window - 1 < 0;
  const bool may_be_blind = keys == 0 || is_blind_at_start || is_blind_at_end || is_blind_before ||
                            extra.mask.defined() || extra.key_spans.defined();
  const Tensor sinks = sink_scores(call);
  // The sum of no elements is 0, but their maximum does not exist.
  Tensor top =
      weft::detach(keys == 0 ? weft::sum(scores, {-1}, {.keepdims = true}) : amax(scores, {-1}, {.keepdims = true}));
  if (sinks.defined()) top = keys == 0 ? top + weft::detach(sinks) : larger(top, weft::detach(sinks));
  Tensor is_blind;
  if (may_be_blind) {
    is_blind = keys == 0 && !sinks.defined() ? full(top.shape(), 1, DType::boolean, top.device())
                                             : elementwise("eq", {top, scalar_like(-kInfinity, top)});
    top = elementwise("where", {is_blind, scalar_like(0, top), top});
  }
  const Tensor e = elementwise("exp", {scores - top});
  Tensor total = weft::sum(e, {-1}, {.keepdims = true});
  if (sinks.defined()) total = total + elementwise("exp", {sinks - top});
  const Tensor divisor = may_be_blind ? elementwise("where", {is_blind, scalar_like(1, total), total}) : total;
  Tensor logsumexp = elementwise("log", {divisor}) + top;
  if (may_be_blind) logsumexp = elementwise("where", {is_blind, scalar_like(-kInfinity, logsumexp), logsumexp});
  s.weights = e / divisor;
  s.logsumexp = weft::reshape(logsumexp, {scores.dim(0), scores.dim(1), scores.dim(2)});
  if (mask.dropped > 0) s.kept = kept_shares(scores, extra.seed, mask.dropped);
  return s;
}

Tensor mixed(const Scores& s, const Tensor& weights) { return s.kept.defined() ? weights * s.kept : weights; }

// The gradient of the scores, from that of the result.
Tensor score_gradient(const Scores& s, const Tensor& d_o) {
  const Tensor d_weights = mixed(s, weft::matmul(swapped(d_o), weft::transpose(s.v)));
  return s.weights * (d_weights - weft::sum(d_weights * s.weights, {-1}, {.keepdims = true}));
}

std::vector<AttributeSpec> kernel_attributes() {
  return {
      field("causal", &AttentionAttributes::causal, "whether a query at position p sees keys j <= p only",
            {.aliases = {"is_causal"}}),
      field("scale", &AttentionAttributes::scale, "factor of the scores"),
      field("window", &AttentionAttributes::window, "keys that a query sees to either side, its own included; 0: all"),
      field("shift", &AttentionAttributes::shift, "position of the first query among the keys"),
      field("dropped", &AttentionAttributes::dropped, "of 256 shares, how many become 0; the others grow",
            {.least = 0, .most = 255})};
}

// The multiplications of two products for each pair of a query and a key that it sees.
double attention_flops(const Call& c, double products) {
  const Shape &q = c.input(0).shape(), &k = c.input(1).shape();
  const double pairs =
      static_cast<double>(q[1]) * static_cast<double>(k[1]) * (c.attributes<AttentionAttributes>().causal ? 0.5 : 1.0);
  return 2 * products * static_cast<double>(q[0] * q[2] * q[3]) * pairs;
}

// `inputs`, and those that may be left out.
std::vector<InputSpec> with_extras(std::vector<InputSpec> inputs) {
  inputs.push_back({.name = "score_mask", .optional = true});  // autocast leaves a `mask` as wide as it is
  inputs.push_back({.name = "key_spans", .optional = true, .only = {DType::i32}});
  inputs.push_back({.name = "seed", .optional = true, .only = {DType::u32}});
  inputs.push_back({.name = "query_spans", .optional = true, .only = {DType::i32}});
  return inputs;
}
std::vector<InputSpec> with_sink_input(std::vector<InputSpec> inputs, bool optional) {
  inputs.push_back({.name = "sinks", .optional = optional});
  return inputs;
}
const CaseInput kNone{.absent = true};

// Adds up what was broadcast from `shape`.
Tensor summed_to(const Tensor& x, const Shape& shape) {
  Axes axes;
  for (int i = 0; i < x.rank(); ++i)
    if (shape[i] != x.dim(i)) axes.push_back(i);
  return axes.empty() ? x : weft::sum(x, axes, {.keepdims = true});
}

// Where a logsumexp is minus infinity: 0, of which differences are no NaN.
Tensor finite(const Tensor& logsumexp) {
  return elementwise("where", {elementwise("eq", {logsumexp, scalar_like(-kInfinity, logsumexp)}),
                               scalar_like(0, logsumexp), logsumexp});
}
// [B, H, T] -> [B, T, H, 1].
Tensor of_results(const Tensor& x) { return weft::unsqueeze(weft::permute(x, {0, 2, 1}), 3); }

Tensors with_sinks(const Call& c) {
  Tensors inputs(c.inputs().begin(), c.inputs().end() - 1);
  Tensors made;
  for (const NodeRef& node : call_nodes(attention_row(), inputs, c.words(), c.where())) made.emplace_back(node);
  const Tensor &sinks = c.inputs().back(), &logsumexp = made[1];
  const Tensor top = finite(larger(logsumexp, sinks));
  const Tensor whole =
      elementwise("log", {elementwise("exp", {logsumexp - top}) + elementwise("exp", {sinks - top})}) + top;
  return {made[0] * of_results(elementwise("exp", {logsumexp - finite(whole)})), whole};
}

void check_extras(const Call& c) {
  const AttentionInputs extra(c);
  const Tensor &q = c.input(0), &k = c.input(1);
  const Shape scores{q.dim(0), q.dim(2), q.dim(1), k.dim(1)};
  if (extra.mask.defined()) {
    const Tensor& mask = extra.mask;
    bool fits = mask.rank() == 4;
    for (int i = 0; fits && i < 4; ++i) fits = mask.dim(i) == scores[i] || mask.dim(i) == 1;
    if (!fits)
      c.shape_error(
          fmt::format("mask is not of the scores {}, or of 1 where it is the same for all", scores.to_string()));
    if (mask.dtype() != DType::boolean && mask.dtype() != q.dtype())
      c.dtype_error("mask is neither bool nor of q's dtype");
  }
  if (extra.key_spans.defined() && extra.key_spans.shape() != Shape{q.dim(0), q.dim(1), 2})
    c.shape_error("key_spans is not [B, T, 2]");
  if (extra.query_spans.defined() && extra.query_spans.shape() != Shape{q.dim(0), k.dim(1), 2})
    c.shape_error("query_spans is not [B, S, 2]");
  if (extra.key_spans.defined() != extra.query_spans.defined())
    c.usage_error("give both key_spans and query_spans, or neither");
  if (&c.row() != &attention_row())
    if (const Tensor& sinks = c.inputs().back(); sinks.defined()) {
      const bool fits = sinks.rank() == 3 && sinks.dim(0) == q.dim(0) && sinks.dim(1) == q.dim(2) &&
                        (sinks.dim(2) == 1 || sinks.dim(2) == q.dim(1));
      if (!fits) c.shape_error("sinks is neither [B, H, 1] nor [B, H, T]");
      if (sinks.dtype() != q.dtype()) c.dtype_error("sinks is not of q's dtype");
    }
  const Extent dropped = c.attributes<AttentionAttributes>().dropped;
  if (dropped > 0 && !extra.seed.defined()) c.usage_error("shares are dropped, but there is no seed");
  if (extra.seed.defined() && extra.seed.shape() != Shape{2}) c.shape_error("seed is not u32 [2]");
}

}  // namespace

AttentionInputs::AttentionInputs(const Call& call) {
  const std::size_t first = &call.row() == &attention_backward_row() ? 6 : 3;
  mask = call.input(first), key_spans = call.input(first + 1), seed = call.input(first + 2),
  query_spans = call.input(first + 3);
}

bool is_read_by_rows(const OpRow& row, std::size_t i) {
  constexpr std::size_t kLogsumexp = 4;
  return &row == &attention_row() ? i < 3 : i < 6 && i != kLogsumexp;
}

Extent dropped_of(double probability) { return std::min<Extent>(std::llround(probability * 256), 255); }

const OpRow& attention_row() {
  static const OpRow row{
      .name = "fused_attention",
      .family = "attention",
      .inputs = with_extras({{"q", ops::DTypes::floats}, {"k", ops::DTypes::floats}, {"v", ops::DTypes::floats}}),
      .attributes = kernel_attributes(),
      .result = "that of q",
      .several_outputs = true,
      .doc =
          "softmax(scale q k^T + mask) v with heads behind positions, q [B, T, H, D], k and v [B, S, Hkv, D]; then the "
          "logsumexp of each row of scores [B, H, T].",
      .infer =
          [](const Call& c) {
            const Tensor &q = c.input(0), &k = c.input(1), &v = c.input(2);
            if (k.dtype() != q.dtype() || v.dtype() != q.dtype()) c.dtype_error("the dtypes differ; cast them");
            if (q.rank() != 4 || k.rank() != 4 || v.shape() != k.shape() || k.dim(0) != q.dim(0) || k.dim(2) == 0 ||
                q.dim(2) % k.dim(2) != 0 || k.dim(3) != q.dim(3))
              c.shape_error("not q [B, T, H, D] with k and v [B, S, Hkv, D] where Hkv divides H");
            check_extras(c);
            return std::vector<Result>{like(q), {q.dtype(), Shape{q.dim(0), q.dim(2), q.dim(1)}}};
          },
      .decompose =
          [](const Call& c) {
            const Scores s = scores_of(c);
            return Tensors{swapped(weft::matmul(mixed(s, s.weights), s.v)), s.logsumexp};
          },
      .gradient = [](const GradientCall& g) -> Tensors {
        if (!g.gradients[0].defined() || g.gradients[1].defined())
          return {};  // a gradient through logsumexp: use the decomposition
        const AttentionInputs extra(g.call);
        const Tensors inputs{g.call.input(0), g.call.input(1),   g.call.input(2), g.results[0],
                             g.results[1],    g.gradients[0],    extra.mask,      extra.key_spans,
                             extra.seed,      extra.query_spans, Tensor()};
        Tensors back;
        for (const NodeRef& node : call_nodes(attention_backward_row(), inputs, g.call.words(), g.call.where()))
          back.emplace_back(node);
        // Not fused: it stores the scores, if it is asked for.
        if (extra.mask.defined() && is_float(extra.mask.dtype()))
          back.push_back(summed_to(score_gradient(scores_of(g.call), g.gradients[0]), extra.mask.shape()));
        return back;
      },
      .form = KernelForm::attention,
      .flops = [](const Call& c) { return attention_flops(c, 2); },
      .cases = {{"causal", {{{2, 17, 3, 8}}, {{2, 17, 3, 8}}, {{2, 17, 3, 8}}, kNone, kNone, kNone, kNone}},
                {"more keys, a window",
                 {{{1, 5, 2, 16}}, {{1, 33, 2, 16}}, {{1, 33, 2, 16}}, kNone, kNone, kNone, kNone},
                 {{"window", Extent{7}}, {"shift", Extent{28}}}},
                {"a mask that is added, shared heads",
                 {{{2, 20, 4, 8}}, {{2, 9, 2, 8}}, {{2, 9, 2, 8}}, {{1, 4, 20, 9}}, kNone, kNone, kNone},
                 {{"causal", false}, {"scale", 0.4}}},
                {"spans",
                 {{{1, 3, 2, 8}},
                  {{1, 4, 2, 8}},
                  {{1, 4, 2, 8}},
                  kNone,
                  {.shape = {1, 3, 2}, .type = DType::i32, .values = {0, 2, 2, 2, 1, 4}},
                  kNone,
                  {.shape = {1, 4, 2}, .type = DType::i32, .values = {0, 1, 0, 3, 2, 3, 2, 3}}},
                 {{"causal", false}, {"scale", 0.4}}},
                {"dropped shares",
                 {{{2, 7, 2, 8}},
                  {{2, 5, 2, 8}},
                  {{2, 5, 2, 8}},
                  kNone,
                  kNone,
                  {.shape = {2}, .type = DType::u32, .values = {7, 9}},
                  kNone},
                 {{"causal", false}, {"scale", 0.4}, {"dropped", Extent{90}}}}},
      .errors = {{"two axes", {{{2, 3}}, {{2, 3}}, {{2, 3}}, kNone, kNone, kNone, kNone}, {}, "not q [B, T, H, D]"},
                 {"no seed",
                  {{{1, 3, 1, 4}}, {{1, 3, 1, 4}}, {{1, 3, 1, 4}}, kNone, kNone, kNone, kNone},
                  {{"dropped", Extent{9}}},
                  "there is no seed"},
                 {"a mask of another rank",
                  {{{1, 3, 1, 4}}, {{1, 3, 1, 4}}, {{1, 3, 1, 4}}, {{3, 3}}, kNone, kNone, kNone},
                  {},
                  "mask is not of the scores [1, 1, 3, 3]"}}};
  return row;
}

const OpRow& attention_backward_row() {
  static const OpRow row{
      .name = "fused_attention_backward",
      .family = "attention",
      .inputs = with_sink_input(with_extras({{"q", ops::DTypes::floats},
                                             {"k", ops::DTypes::floats},
                                             {"v", ops::DTypes::floats},
                                             {"o", ops::DTypes::floats},
                                             {"logsumexp", ops::DTypes::floats},
                                             {"d_o", ops::DTypes::floats}}),
                                /*optional=*/true),
      .attributes = kernel_attributes(),
      .result = "that of q",
      .several_outputs = true,
      .doc =
          "Gradients of fused_attention to q, k and v, from its results and the gradient of the first; of "
          "sink_attention if there "
          "are sinks, which kernels do not need: the logsumexp has them in it.",
      .infer =
          [](const Call& c) {
            check_extras(c);
            return std::vector<Result>{like(c.input(0)), like(c.input(1)), like(c.input(2))};
          },
      .decompose =
          [](const Call& c) {
            const Scores s = scores_of(c);
            const Tensor d_scores = score_gradient(s, c.input(5)) * c.attributes<AttentionAttributes>().scale;
            const Extent kv_heads = c.input(1).dim(2);
            return Tensors{
                swapped(weft::matmul(d_scores, s.k)),
                of_key_heads(weft::matmul(weft::transpose(d_scores), s.q), kv_heads),
                of_key_heads(weft::matmul(weft::transpose(mixed(s, s.weights)), swapped(c.input(5))), kv_heads)};
          },
      .form = KernelForm::attention,
      .flops = [](const Call& c) { return attention_flops(c, 5); }};
  return row;
}

const OpRow& sink_attention_row() {
  static const OpRow row{
      .name = "sink_attention",
      .family = "attention",
      .inputs = with_sink_input(
          with_extras({{"q", ops::DTypes::floats}, {"k", ops::DTypes::floats}, {"v", ops::DTypes::floats}}), false),
      .attributes = kernel_attributes(),
      .result = "that of q",
      .several_outputs = true,
      .doc =
          "fused_attention with a logit for each query, sinks [B, H, 1] or [B, H, T], that takes part in the softmax "
          "and has no "
          "value; the logsumexp has it in it.",
      .infer = [](const Call& c) { return attention_row().infer(c); },
      .decompose = with_sinks,
      .gradient = [](const GradientCall& g) -> Tensors {
        if (!g.gradients[0].defined() || g.gradients[1].defined()) return {};  // as fused_attention
        const AttentionInputs extra(g.call);
        const Tensor &o = g.results[0], &logsumexp = g.results[1], &d_o = g.gradients[0], &sinks = g.call.input(7);
        const Tensors inputs{g.call.input(0), g.call.input(1), g.call.input(2),   o,    logsumexp, d_o, extra.mask,
                             extra.key_spans, extra.seed,      extra.query_spans, sinks};
        Tensors back;
        for (const NodeRef& node : call_nodes(attention_backward_row(), inputs, g.call.words(), g.call.where()))
          back.emplace_back(node);
        back.resize(7);
        if (extra.mask.defined() && is_float(extra.mask.dtype()))
          back[3] = summed_to(score_gradient(scores_of(g.call), d_o), extra.mask.shape());
        // A sink only takes shares from the others: its own share, times what the result is worth.
        const Tensor share = elementwise("exp", {sinks - finite(logsumexp)});
        const Tensor worth = weft::permute(weft::sum(d_o * o, {3}), {0, 2, 1});
        back.push_back(summed_to(share * worth, sinks.shape()) * -1.0);
        return back;
      },
      .cases = {{"causal",
                 {{{2, 9, 3, 8}}, {{2, 9, 3, 8}}, {{2, 9, 3, 8}}, kNone, kNone, kNone, kNone, {{2, 3, 1}, -1, 2}}},
                {"of each query, a window, shared heads",
                 {{{1, 5, 4, 8}}, {{1, 12, 2, 8}}, {{1, 12, 2, 8}}, kNone, kNone, kNone, kNone, {{1, 4, 5}, -1, 2}},
                 {{"window", Extent{3}}, {"shift", Extent{7}}}},
                {"queries that see nothing",
                 {{{1, 4, 2, 8}},
                  {{1, 3, 2, 8}},
                  {{1, 3, 2, 8}},
                  {.shape = {1, 1, 4, 3}, .type = DType::boolean, .values = {1, 0, 1, 0, 0, 0, 1, 1, 1, 0, 1, 0}},
                  kNone,
                  kNone,
                  kNone,
                  {{1, 2, 1}, -1, 2}},
                 {{"causal", false}}}},
      .errors = {{"sinks of heads alone",
                  {{{1, 3, 2, 4}}, {{1, 3, 2, 4}}, {{1, 3, 2, 4}}, kNone, kNone, kNone, kNone, {{2}}},
                  {},
                  "sinks is neither [B, H, 1] nor [B, H, T]"}}};
  return row;
}

bool fits_tiles(const Call& attention, Extent width_max) {
  const Tensor &q = attention.input(0), &k = attention.input(1);
  return q.dtype() == DType::f32 && q.dim(3) <= width_max && q.numel() > 0 && k.numel() > 0;
}

OpRows attention_rows() { return {&attention_row(), &attention_backward_row(), &sink_attention_row()}; }

}  // namespace graph
}  // namespace weft
