// Attention as users call it: any number of leading axes, masks, lengths of sequences, dropout. All of it becomes one call of
// the op that has kernels (graph/attention.hpp).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "graph/attention.hpp"
#include "graph/op.hpp"
#include "graph/op_families.hpp"
#include "graph/ops/attention_slopes.hpp"
#include "graph/sink_attention.hpp"
#include "weft/ops.hpp"
#include "weft/ops/networks.hpp"

namespace weft::graph {
namespace {

constexpr double kInfiniteBias = std::numeric_limits<double>::infinity();
constexpr const char* kDropoutText = "probability that a share of a key becomes 0, in parts of 256; needs a seed";

const CaseInput kAbsent{.absent = true};

InputSpec seed_input() { return {.name = "seed", .optional = true, .only = {DType::u32}}; }

void check_mask(const Call& c, const Tensor& mask, const Shape& scores) {
  if (!mask.defined()) return;
  const DType type = compute_type(c.input(0).dtype());
  if (mask.dtype() != DType::boolean && (!is_float(mask.dtype()) || promote(mask.dtype(), type) != type))
    c.dtype_error(fmt::format("mask is neither bool nor a float of at most {}; cast it", name_of(type)));
  Shape joined;
  if (!broadcast_shapes(scores, mask.shape(), joined) || joined != scores)
    c.shape_error(fmt::format("mask does not broadcast to the scores {}", scores.to_string()));
}

void check_dropout(const Call& c, double dropout, const Tensor& seed) {
  if (!(dropout >= 0 && dropout <= 1)) c.usage_error(fmt::format("dropout is {}; give a probability", dropout));
  if (dropout > 0 && !seed.defined())
    c.usage_error("dropout needs a seed, u32 [2]; the functions in C++ draw one from the session's random state");
  if (seed.defined() && seed.shape() != Shape{2}) c.shape_error("seed is not u32 [2]");
}

// [..., T, D] -> [B, H, T, D]: all axes before the last three are one.
Tensor in_four(const Tensor& x) {
  const int rank = x.rank();
  Extent batch = 1;
  for (int i = 0; i + 3 < rank; ++i) batch *= x.dim(i);
  return weft::reshape(x, {batch, rank > 2 ? x.dim(rank - 3) : 1, x.dim(rank - 2), x.dim(rank - 1)});
}

// A mask that broadcasts against scores [..., H, T, S], as [B, H, T, S] with 1 where it is the same for all.
Tensor mask_in_four(const Tensor& mask, const Shape& scores) {
  const int rank = scores.rank();
  std::vector<Extent> given(static_cast<std::size_t>(rank - mask.rank()), 1);
  given.insert(given.end(), mask.shape().begin(), mask.shape().end());
  const auto at = [&](int from_end) { return rank >= from_end ? given[static_cast<std::size_t>(rank - from_end)] : 1; };
  bool same = true, whole = true;
  Extent batch = 1;
  std::vector<Extent> expanded = given;
  for (std::size_t i = 0; i + 3 < given.size(); ++i) {
    same = same && given[i] == 1;
    whole = whole && given[i] == scores[static_cast<int>(i)];
    expanded[i] = scores[static_cast<int>(i)];
    batch *= expanded[i];
  }
  Tensor x = weft::reshape(mask, Shape(given));
  if (!same && !whole) x = weft::expand(x, Shape(expanded));
  return weft::reshape(x, {same ? 1 : batch, at(3), at(2), at(1)});
}

Tensor padded_width(const Tensor& x, Extent width) {
  if (x.dim(3) == width) return x;
  const Tensor nothing = zeros({x.dim(0), x.dim(1), x.dim(2), width - x.dim(3)}, x.dtype(), x.device());
  const Tensor parts[] = {x, nothing};
  return weft::concat(parts, 3);
}

/// The op with kernels, of q [B, H, T, D], k [B, Hkv, S, D] and v [B, Hkv, S, E]; sinks are undefined or those of sink_attention.
Tensor fused(const Call& c, Tensor q, Tensor k, Tensor v, const Tensor& mask, const Tensor& key_spans,
             const Tensor& query_spans, const Tensor& seed, double dropout, AttentionAttributes attributes,
             const Tensor& sinks = {}) {
  const Extent width = v.dim(3), padded = std::max(q.dim(3), width);
  if (attributes.scale == 0) attributes.scale = 1 / std::sqrt(static_cast<double>(q.dim(3)));
  // A window that covers everything is dropped.
  const Extent farthest = std::max(q.dim(2) - 1 + attributes.shift, k.dim(2) - 1 - attributes.shift);
  if (attributes.window > farthest) attributes.window = 0;
  attributes.dropped = dropped_of(dropout);
  const auto positions_first = [&](const Tensor& x) {
    return Tensor(permute(padded_width(x, padded).node(), {0, 2, 1, 3}));
  };
  const bool narrower = mask.defined() && mask.dtype() != DType::boolean && mask.dtype() != q.dtype();
  Tensors inputs{positions_first(q), positions_first(k),
                 positions_first(v), narrower ? weft::cast(mask, q.dtype()) : mask,
                 key_spans,          attributes.dropped > 0 ? seed : Tensor(),
                 query_spans};
  if (sinks.defined()) inputs.push_back(sinks);
  const OpRow& row = sinks.defined() ? sink_attention_row() : attention_row();
  Tensor y(permute(call_nodes(row, inputs, words_of(row.attributes, attributes), c.where())[0], {0, 2, 1, 3}));
  if (padded > width) y = weft::slice(y, 3, 0, width);
  return dropout == 1 ? y * 0.0 : y;
}

void check_of_heads(const Call& c, std::size_t i, const char* name) {
  const Tensor& x = c.input(i);
  if (x.defined() && x.shape() != Shape{c.input(0).dim(1)})
    c.shape_error(fmt::format("{} is not a number for each of the {} heads", name, c.input(0).dim(1)));
}

// ---- Sequences of given lengths --------------------------------------------------------------------------------------------

// The spans of rows [B, rows, 2] among the others: what each sequence's rows see, from the first and the end of the sequences
// on both sides, [B, 1, n].
struct Sequences {
  Tensor first, end;  // of the rows
  Tensor other_first, other_end;
  Tensor shift;  // a row's number and this are its position among the others
};

Tensor at_least(const Tensor& x, double least) { return elementwise("maximum", {x, scalar_like(least, x)}); }
Tensor smaller(const Tensor& x, const Tensor& y) { return elementwise("minimum", {x, y}); }
Tensor larger(const Tensor& x, const Tensor& y) { return elementwise("maximum", {x, y}); }

/// `behind` and `ahead`: how far a row sees to either side of its position; negative: to the end.
Tensor spans_of(const Sequences& s, Extent rows, Extent others, Extent behind, Extent ahead) {
  const Extent batch = s.first.dim(0);
  const Tensor row(iota({1, rows, 1}, 1, DType::i32, s.first.device()));
  const Tensor within = elementwise("logical_and", {s.first <= row, row < s.end});
  const auto of_row = [&](const Tensor& x) {  // [B, rows]
    return weft::sum(elementwise("where", {within, x, scalar_like(0, x)}), {2}, {.keepdims = true});
  };
  const Tensor position = row + of_row(s.shift), least = of_row(s.other_first), most = of_row(s.other_end);
  Tensor first = least, end = smaller(most, full({}, static_cast<double>(others), DType::i32, row.device()));
  if (behind >= 0) first = larger(first, position - static_cast<double>(behind));
  if (ahead >= 0) end = smaller(end, position + static_cast<double>(ahead + 1));
  first = at_least(first, 0);
  const Tensor parts[] = {first, larger(end, first)};
  return weft::reshape(weft::concat(parts, 2), {batch, rows, 2});
}

struct Spans {
  Tensor keys, queries;
};

Spans spans_of_lengths(const Tensor& lengths, const Tensor& key_lengths, Extent queries, Extent keys, bool causal,
                       Extent window) {
  const Tensor& given = lengths.defined() ? lengths : key_lengths;
  const Extent batch = given.dim(0), n = given.rank() == 1 ? 1 : given.dim(1);
  const auto ends = [&](const Tensor& x, Extent all) -> std::pair<Tensor, Tensor> {
    if (!x.defined())
      return {zeros({batch, 1, n}, DType::i32, given.device()),
              full({batch, 1, n}, static_cast<double>(all), DType::i32, given.device())};
    const Tensor length = at_least(weft::reshape(x, {batch, n}), 0);
    const Tensor end = n == 1 ? length : weft::cumsum(length, 1);
    return {weft::reshape(end - length, {batch, 1, n}), weft::reshape(end, {batch, 1, n})};
  };
  const auto [first, end] = ends(lengths, queries);
  const auto [key_first, key_end] = ends(key_lengths.defined() ? key_lengths : lengths, keys);
  const Tensor shift = key_end - end;  // the last of both are side by side
  const Extent behind = window > 0 ? window - 1 : -1, ahead = causal ? 0 : behind;
  return {spans_of({first, end, key_first, key_end, shift}, queries, keys, behind, ahead),
          spans_of({key_first, key_end, first, end, scalar_like(0, shift) - shift}, keys, queries, ahead, behind)};
}

void check_lengths(const Call& c, const Tensor& lengths, const Tensor& key_lengths) {
  const Extent batch = c.input(0).dim(0);
  const auto fits = [&](const Tensor& x) {
    return !x.defined() || ((x.rank() == 1 || (x.rank() == 2 && x.dim(1) > 0)) && x.dim(0) == batch);
  };
  if (!fits(lengths) || !fits(key_lengths)) c.shape_error("the lengths are neither [B] nor [B, n]");
  const auto count = [](const Tensor& x) { return x.rank() == 1 ? 1 : x.dim(1); };
  if (lengths.defined() && key_lengths.defined() && count(lengths) != count(key_lengths))
    c.shape_error("lengths and key_lengths are of different numbers of sequences");
  if (!lengths.defined() && key_lengths.defined() && count(key_lengths) != 1)
    c.shape_error("several sequences of keys need the lengths of the queries too");
  if (lengths.defined() && !key_lengths.defined() && c.input(0).dim(2) != c.input(1).dim(2))
    c.shape_error("there are as many queries as keys, or key_lengths is given too");
}

}  // namespace

const OpRow& public_attention_row() {
  using Attributes = PublicAttentionAttributes;
  static const OpRow row{
      .name = "attention",
      .family = "attention",
      .inputs = {{"q", ops::DTypes::floats},
                 {"k", ops::DTypes::floats},
                 {"v", ops::DTypes::floats},
                 {.name = "mask", .optional = true},
                 {.name = "lengths", .optional = true, .only = {DType::i32}},
                 {.name = "key_lengths", .optional = true, .only = {DType::i32}},
                 seed_input(),
                 {.name = "sinks", .dtypes = ops::DTypes::floats, .optional = true},
                 {.name = "slopes", .dtypes = ops::DTypes::floats, .optional = true}},
      .attributes = {field("causal", &Attributes::causal, "whether query i sees keys j <= i + (keys - queries) only",
                           {.aliases = {"is_causal"}}),
                     field("scale", &Attributes::scale, "factor of the scores; 0: 1/sqrt(D)"),
                     field("window", &Attributes::window,
                           "keys that a query sees to either side, its own included; 0: all"),
                     field("dropout", &Attributes::dropout, kDropoutText, {.least = 0, .most = 1})},
      .result = "that of q",
      .doc =
          "softmax(scale q k^T + mask) v; q [B, H, T, D], k and v [B, Hkv, S, D] where Hkv divides H. Each head may "
          "have a logit in the "
          "softmax without a value (sinks), and a slope by which scores fall with the distance.",
      .formula = "softmax(scale q k^T + mask) v",
      .infer =
          [](const Call& c) {
            const Tensor &q = c.input(0), &k = c.input(1), &v = c.input(2);
            if (k.dtype() != q.dtype() || v.dtype() != q.dtype()) c.dtype_error("the dtypes differ; cast them");
            if (q.rank() != 4 || k.rank() != 4 || v.shape() != k.shape() || k.dim(0) != q.dim(0) ||
                k.dim(3) != q.dim(3) || k.dim(1) == 0 || q.dim(1) % k.dim(1) != 0)
              c.shape_error("not q [B, H, T, D] with k and v [B, Hkv, S, D] where Hkv divides H");
            const auto attributes = c.attributes<Attributes>();
            if (attributes.window < 0)
              c.usage_error(fmt::format("the window is {}; give 0 for none", attributes.window));
            check_mask(c, c.input(3), {q.dim(0), q.dim(1), q.dim(2), k.dim(2)});
            check_lengths(c, c.input(4), c.input(5));
            check_dropout(c, attributes.dropout, c.input(6));
            check_of_heads(c, 7, "sinks");
            check_of_heads(c, 8, "slopes");
            if (c.input(8).defined() && !attributes.causal && c.input(5).defined())
              c.usage_error(
                  "slopes of queries that see keys on both sides do not know the places of key_lengths; add a mask");
            return std::vector<Result>{like(q)};
          },
      .decompose =
          [](const Call& c) {
            Tensor q = c.input(0), k = c.input(1), mask = c.input(3);
            const Tensor given_sinks = c.input(7),
                         slopes = c.input(8).defined() ? weft::cast(c.input(8), exact_type(q)) : c.input(8);
            auto [causal, scale, window, dropout] = c.attributes<Attributes>();
            const Extent queries = q.dim(2), keys = k.dim(2);
            if (scale == 0) scale = 1 / std::sqrt(static_cast<double>(q.dim(3)));
            AttentionAttributes attributes{.causal = causal, .scale = scale, .window = window, .shift = keys - queries};
            Spans spans;
            if (c.input(4).defined() || c.input(5).defined()) {
              spans = spans_of_lengths(c.input(4), c.input(5), queries, keys, causal, window);
              attributes = {.causal = false, .scale = scale};
            }
            if (mask.defined()) mask = mask_in_four(mask, {q.dim(0), q.dim(1), queries, keys});
            Tensor sinks;
            if (given_sinks.defined()) sinks = sinks_of(q, given_sinks, causal ? slopes : Tensor(), spans.keys, keys);
            if (slopes.defined() && causal) {
              const SlopeChannels channels = slope_channels(q, k, slopes, scale);
              q = channels.q, k = channels.k;
            } else if (slopes.defined()) {
              const Tensor bias = weft::cast(slope_bias(slopes, queries, keys), compute_type(q.dtype()));
              if (mask.defined() && mask.dtype() == DType::boolean)
                mask = elementwise("where", {mask, bias, scalar_like(-kInfiniteBias, bias)});
              else
                mask = mask.defined() ? weft::cast(mask, bias.dtype()) + bias : bias;
            }
            return Tensors{
                fused(c, q, k, c.input(2), mask, spans.keys, spans.queries, c.input(6), dropout, attributes, sinks)};
          },
      .cases =
          {{"causal", {{{2, 3, 17, 8}}, {{2, 3, 17, 8}}, {{2, 3, 17, 8}}}},
           {"groups of heads", {{{1, 4, 64, 32}}, {{1, 2, 64, 32}}, {{1, 2, 64, 32}}}},
           {"all keys seen", {{{2, 2, 65, 64}}, {{2, 2, 65, 64}}, {{2, 2, 65, 64}}}, {{"causal", false}}},
           {"one head of keys, more keys", {{{1, 4, 5, 16}}, {{1, 1, 33, 16}}, {{1, 1, 33, 16}}}},
           {"one position", {{{1, 1, 1, 4}}, {{1, 1, 1, 4}}, {{1, 1, 1, 4}}}},
           {"fewer keys", {{{1, 2, 130, 24}}, {{1, 2, 70, 24}}, {{1, 2, 70, 24}}}, {{"causal", false}}},
           {"a window", {{{1, 2, 20, 8}}, {{1, 2, 20, 8}}, {{1, 2, 20, 8}}}, {{"window", Extent{4}}}},
           {"a mask, shared heads, a window",
            {{{2, 4, 20, 8}}, {{2, 2, 20, 8}}, {{2, 2, 20, 8}}, {{4, 1, 20}}},
            {{"window", Extent{9}}}},
           {"several sequences in one row",
            {{{2, 2, 12, 8}},
             {{2, 2, 12, 8}},
             {{2, 2, 12, 8}},
             {.absent = true},
             {.shape = {2, 3}, .type = DType::i32, .values = {5, 0, 6, 2, 9, 1}}}},
           {"keys of different lengths, a window",
            {{{2, 2, 3, 8}},
             {{2, 2, 12, 8}},
             {{2, 2, 12, 8}},
             {.absent = true},
             {.absent = true},
             {.shape = {2}, .type = DType::i32, .values = {12, 5}}},
            {{"window", Extent{4}}}},
           {"dropout",
            {{{1, 2, 9, 8}},
             {{1, 1, 9, 8}},
             {{1, 1, 9, 8}},
             {.absent = true},
             {.absent = true},
             {.absent = true},
             {.shape = {2}, .type = DType::u32, .values = {3, 4}}},
            {{"dropout", 0.3}}},
           {"sinks, shared heads, a window",
            {{{2, 4, 9, 8}}, {{2, 2, 9, 8}}, {{2, 2, 9, 8}}, kAbsent, kAbsent, kAbsent, kAbsent, {{4}, -1, 2}},
            {{"window", Extent{3}}}},
           {"slopes, more keys",
            {{{1, 3, 5, 6}},
             {{1, 3, 12, 6}},
             {{1, 3, 12, 6}},
             kAbsent,
             kAbsent,
             kAbsent,
             kAbsent,
             kAbsent,
             {{3}, 0, 1}}},
           {"slopes to both sides, a mask",
            {{{1, 2, 7, 8}}, {{1, 2, 7, 8}}, {{1, 2, 7, 8}}, {{7, 7}}, kAbsent, kAbsent, kAbsent, kAbsent, {{2}, 0, 1}},
            {{"causal", false}}},
           {"sinks and slopes, several sequences",
            {{{2, 2, 12, 8}},
             {{2, 2, 12, 8}},
             {{2, 2, 12, 8}},
             kAbsent,
             {.shape = {2, 3}, .type = DType::i32, .values = {5, 0, 6, 2, 9, 1}},
             kAbsent,
             kAbsent,
             {{2}, -1, 2},
             {{2}, 0, 1}}}},
      .errors =
          {{"sinks of another number of heads",
            {{{1, 2, 2, 4}}, {{1, 2, 2, 4}}, {{1, 2, 2, 4}}, kAbsent, kAbsent, kAbsent, kAbsent, {{3}}},
            {},
            "sinks is not a number for each of the 2 heads"},
           {"slopes to both sides and lengths of keys",
            {{{1, 1, 2, 4}},
             {{1, 1, 2, 4}},
             {{1, 1, 2, 4}},
             kAbsent,
             kAbsent,
             {.shape = {1}, .type = DType::i32, .values = {2}},
             kAbsent,
             kAbsent,
             {{1}}},
            {{"causal", false}},
            "do not know the places of key_lengths"},
           {"three axes", {{{2, 3, 4}}, {{2, 3, 4}}, {{2, 3, 4}}}, {}, "not q [B, H, T, D]"},
           {"heads that do not divide", {{{1, 3, 2, 4}}, {{1, 2, 2, 4}}, {{1, 2, 2, 4}}}, {}, "where Hkv divides H"},
           {"negative window",
            {{{1, 1, 2, 4}}, {{1, 1, 2, 4}}, {{1, 1, 2, 4}}},
            {{"window", Extent{-1}}},
            "the window is -1"},
           {"a wide mask",
            {{{1, 1, 2, 4}}, {{1, 1, 2, 4}}, {{1, 1, 2, 4}}, {{2, 3}}},
            {},
            "mask does not broadcast to the scores [1, 1, 2, 2]"},
           {"lengths of another batch",
            {{{1, 1, 2, 4}},
             {{1, 1, 2, 4}},
             {{1, 1, 2, 4}},
             {.absent = true},
             {.shape = {2}, .type = DType::i32, .values = {1, 1}}},
            {},
            "the lengths are neither [B] nor [B, n]"},
           {"dropout without a seed",
            {{{1, 1, 2, 4}}, {{1, 1, 2, 4}}, {{1, 1, 2, 4}}},
            {{"dropout", 0.5}},
            "dropout needs a seed"},
           {"integers", {{{1, 1, 2, 4}, 0, 3, DType::i32}, {{1, 1, 2, 4}}, {{1, 1, 2, 4}}}, {}, "q takes floats"}}};
  return row;
}

const OpRow& masked_attention_row() {
  static const OpRow row{
      .name = "scaled_dot_product_attention",
      .family = "attention",
      .inputs = {{"q", ops::DTypes::floats},
                 {"k", ops::DTypes::floats},
                 {"v", ops::DTypes::floats},
                 {.name = "mask", .optional = true},
                 seed_input()},
      .attributes = {field("causal", &MaskedAttentionAttributes::causal, "whether query i sees keys j <= i only",
                           {.aliases = {"is_causal"}}),
                     field("scale", &MaskedAttentionAttributes::scale, "factor of the scores; 0: 1/sqrt(D)"),
                     field("dropout", &MaskedAttentionAttributes::dropout, kDropoutText,
                           {.aliases = {"dropout_p"}, .least = 0, .most = 1})},
      .result = "that of q",
      .doc = "softmax(scale q k^T + mask) v; a mask of bools says which keys are seen, one of floats is added.",
      .formula = "softmax(scale q k^T + mask) v",
      .torch =
          "(lambda s: torch.softmax((s if mask is None else s.masked_fill(~mask, -float('inf')) if mask.dtype == "
          "torch.bool else s + mask)"
          ".masked_fill(torch.ones(s.shape[-2:], dtype=torch.bool).triu(1) & causal, -float('inf')), -1)"
          ".nan_to_num(0) @ v.repeat_interleave(q.shape[-3] // v.shape[-3] if q.dim() > 2 else 1, -3 if q.dim() > 2 "
          "else 0))"
          "(q @ k.repeat_interleave(q.shape[-3] // k.shape[-3] if q.dim() > 2 else 1, -3 if q.dim() > 2 else "
          "0).transpose(-1, -2)"
          " * (scale or q.shape[-1] ** -0.5))",
      .infer =
          [](const Call& c) {
            const Tensor &q = c.input(0), &k = c.input(1), &v = c.input(2), &mask = c.input(3);
            if (k.dtype() != q.dtype() || v.dtype() != q.dtype()) c.dtype_error("the dtypes differ; cast them");
            if (q.rank() < 2 || k.rank() != q.rank() || v.rank() != q.rank() || k.dim(-1) != q.dim(-1) ||
                v.dim(-2) != k.dim(-2))
              c.shape_error("not q [..., T, D], k [..., S, D] and v [..., S, E]");
            const int rank = q.rank();
            for (int i = 0; i + 2 < rank; ++i) {
              const bool is_heads = i + 3 == rank;
              const Extent of_q = q.shape()[i], of_k = k.shape()[i];
              if (v.shape()[i] != of_k || (is_heads ? of_k == 0 || of_q % of_k != 0 : of_q != of_k))
                c.shape_error("the batch of q, k and v differs, or the number of key heads does not divide that of q");
            }
            Shape scores = q.shape();
            scores[rank - 1] = k.dim(-2);
            check_mask(c, mask, scores);
            check_dropout(c, c.attributes<MaskedAttentionAttributes>().dropout, c.input(4));
            Shape shape = q.shape();
            shape[rank - 1] = v.dim(-1);
            return std::vector<Result>{{q.dtype(), shape}};
          },
      .decompose =
          [](const Call& c) {
            const auto [causal, scale, dropout] = c.attributes<MaskedAttentionAttributes>();
            const Tensor &q = c.input(0), &k = c.input(1), &v = c.input(2), &mask = c.input(3);
            Shape shape = q.shape(), scores = q.shape();
            shape[q.rank() - 1] = v.dim(-1);
            scores[q.rank() - 1] = k.dim(-2);
            const Tensor y =
                fused(c, in_four(q), in_four(k), in_four(v), mask.defined() ? mask_in_four(mask, scores) : mask, {}, {},
                      c.input(4), dropout, {.causal = causal, .scale = scale});
            return Tensors{weft::reshape(y, shape)};
          },
      .cases = {{"a mask that is added", {{{2, 3, 5, 8}}, {{2, 3, 7, 8}}, {{2, 3, 7, 8}}, {{5, 7}}}},
                {"plain", {{{2, 3, 5, 8}}, {{2, 3, 7, 8}}, {{2, 3, 7, 8}}, {.absent = true}}},
                {"bools, a query that sees nothing",
                 {{{1, 1, 3, 4}},
                  {{1, 1, 4, 4}},
                  {{1, 1, 4, 4}},
                  {.shape = {3, 4}, .type = DType::boolean, .values = {1, 0, 1, 1, 0, 0, 0, 0, 1, 1, 0, 1}}}},
                {"causal, more keys",
                 {{{2, 2, 4, 8}}, {{2, 2, 6, 8}}, {{2, 2, 6, 8}}, {.absent = true}},
                 {{"causal", true}}},
                {"causal, as many",
                 {{{2, 4, 6, 8}}, {{2, 2, 6, 8}}, {{2, 2, 6, 8}}, {.absent = true}},
                 {{"causal", true}, {"scale", 0.3}}},
                {"groups of heads and a mask", {{{2, 4, 3, 8}}, {{2, 2, 6, 8}}, {{2, 2, 6, 5}}, {{2, 1, 3, 6}}}},
                {"no heads", {{{3, 8}}, {{6, 8}}, {{6, 5}}, {{6}, -1, 1}}}},
      .errors =
          {{"keys of another width", {{{2, 3, 5, 8}}, {{2, 3, 7, 4}}, {{2, 3, 7, 4}}}, {}, "not q [..., T, D]"},
           {"a wide mask",
            {{{5, 8}}, {{7, 8}}, {{7, 8}}, {{5, 6}}},
            {},
            "mask does not broadcast to the scores [5, 7]"},
           {"a mask of integers",
            {{{5, 8}}, {{7, 8}}, {{7, 8}}, {{5, 7}, 0, 1, DType::i32}},
            {},
            "mask is neither bool nor"},
           {"heads that do not divide", {{{3, 5, 8}}, {{2, 7, 8}}, {{2, 7, 8}}}, {}, "does not divide that of q"}}};
  return row;
}

OpRows public_attention_rows() { return {&public_attention_row(), &masked_attention_row()}; }

}  // namespace weft::graph

namespace weft {

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, bool causal, double scale, Extent window,
                 Where where) {
  return graph::call(graph::public_attention_row(), {q, k, v, {}, {}, {}, {}, {}, {}},
                     graph::PublicAttentionAttributes{causal, scale, window, 0}, where);
}

}  // namespace weft
