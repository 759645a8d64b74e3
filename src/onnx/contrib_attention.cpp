// Attention of ONNX Runtime's own domain, com.microsoft: that of its optimisers of BERT and GPT, and of its builder of language
// models. The meaning of each operator is in ONNX Runtime's docs/ContribOperators.md.
#include <fmt/format.h>

#include <cmath>

#include "onnx/attention.hpp"
#include "onnx/quantised.hpp"
#include "weft/ops/indexing.hpp"
#include "weft/ops/layout.hpp"

namespace weft::onnx {
namespace {

using A = Application;

// A hidden key's logit; ONNX Runtime adds it, so that a query without keys sees all of them alike.
double hidden_logit(const A& a) { return a.number("mask_filter_value", -10000); }

Tensor plus(const Tensor& x, const Tensor& y) { return !x.defined() ? y : !y.defined() ? x : x + y; }

// What a mask of ONNX Runtime adds to scores [N, H, T, S]: 0 where a query sees a key. Masks are lengths [N]; ends and starts
// [2 N]; 1 for each key that is seen, [N, S]; or that for each query, [N, T, S].
Tensor mask_bias(const A& a, const Tensor& mask, Extent n, Extent queries, Extent keys, DType type) {
  Tensor seen;
  const Tensor key = reshape(arange(keys, DType::i32, a.device()), {1, keys});
  const auto column = [&](const Tensor& v) { return reshape(cast(v, DType::i32), {n, 1}); };
  if (mask.rank() == 1 && mask.dim(0) == n) {
    seen = lt(key, column(mask));
  } else if (mask.rank() == 1 && mask.dim(0) == 2 * n) {
    seen = lt(key, column(narrow(mask, 0, 0, n))) & ge(key, column(narrow(mask, 0, n, n)));
  } else if ((mask.rank() == 2 && mask.dim(0) == n && mask.dim(1) == keys) ||
             (mask.rank() == 3 && mask.dim(0) == n && mask.dim(1) == queries && mask.dim(2) == keys)) {
    seen = ne(cast(mask, DType::i32), 0.0);
  } else {
    a.shape_error(fmt::format("a mask {} does not fit {} sequences of {} queries and {} keys", mask.shape().to_string(),
                              n, queries, keys));
  }
  const Tensor bias = where(seen, full({}, 0, type, a.device()), full({}, hidden_logit(a), type, a.device()));
  return bias.rank() == 3 ? unsqueeze(bias, 1) : reshape(bias, {n, 1, 1, keys});
}

// The part of attention that Attention and QAttention share: from q, k and v side by side [N, T, 3 H D] on.
void attention_of(A& a, const Tensor& qkv, std::size_t mask, std::size_t past, std::size_t bias) {
  if (a.flag("do_rotary", false)) a.usage_error("do_rotary is not supported; export the model without it");
  if (a.flag("past_present_share_buffer", false))
    a.usage_error("past_present_share_buffer is not supported; export the model without it");
  const Extent heads = a.integer("num_heads"), width = qkv.dim(-1);
  const std::vector<Extent> sizes = a.integers("qkv_hidden_sizes", {width / 3, width / 3, width / 3});
  if (qkv.rank() != 3 || sizes.size() != 3 || sizes[0] != sizes[1] || sizes[0] + sizes[1] + sizes[2] != width)
    a.shape_error("the sizes of queries, keys and values do not fit the weights");
  const std::vector<Tensor> parts = split(qkv, sizes, 2);
  AttentionParts p;
  p.q = heads_apart(a, parts[0], heads);
  p.k = heads_apart(a, parts[1], heads);
  p.v = heads_apart(a, parts[2], heads);
  if (a.has(past)) {
    if (a[past].rank() != 5 || a[past].dim(0) != 2) a.shape_error("the past must be [2, N, H, length, channels]");
    p.offset = a[past].dim(3);
    p.k = concat({select(a[past], 0, 0), p.k}, 2);
    p.v = concat({select(a[past], 0, 1), p.v}, 2);
  }
  p.scale = a.number("scale", 0);
  p.causal = a.flag("unidirectional", false);
  if (a.has(mask)) p.bias = mask_bias(a, a[mask], qkv.dim(0), p.q.dim(2), p.k.dim(2), qkv.dtype());
  if (bias < a.input_count() && a.has(bias)) p.bias = plus(p.bias, a[bias]);
  a.give(0, heads_together(attend(a, p).out));
  if (a.wants(1)) a.give(1, stack({p.k, p.v}, 0));
}
void fused_attention(A& a) {
  Tensor qkv = matmul(a[0], a[1]);
  if (a.has(2)) qkv = qkv + a[2];
  attention_of(a, qkv, 3, 4, 5);
}
void quantised_attention(A& a) {
  const Tensor product = cast(centred_product(a[0], a.optional(6), a[1], a.optional(7)), a[3].dtype());
  attention_of(a, product * (a[3] * a[4]) + a[2], 5, 8, 9);
}

void multi_head_attention(A& a) {
  if (a.has(8) || a.has(9)) a.usage_error("shared buffers of past and present are not supported");
  const Extent heads = a.integer("num_heads");
  AttentionParts p;
  Tensor q = a[0], k = a.optional(1), v = a.optional(2);
  if (q.rank() != 3 || !k.defined() || !v.defined())
    a.usage_error("queries, keys and values side by side are not supported; give three inputs");
  if (a.has(3)) {
    const Extent width = q.dim(2);
    q = q + narrow(a[3], 0, 0, width);
    if (k.rank() == 3) k = k + narrow(a[3], 0, width, width);
    if (v.rank() == 3) v = v + narrow(a[3], 0, 2 * width, a[3].dim(0) - 2 * width);
  }
  p.q = heads_apart(a, q, heads);
  p.k = k.rank() == 4 ? k : heads_apart(a, k, heads);
  p.v = v.rank() == 4 ? v : heads_apart(a, v, heads);
  if (a.has(6) && a.has(7)) {
    p.offset = a[6].dim(2);
    p.k = concat({a[6], p.k}, 2);
    p.v = concat({a[7], p.v}, 2);
  }
  p.scale = a.number("scale", 0);
  p.causal = a.flag("unidirectional", false);
  p.wants_scores = a.wants(3);
  if (a.has(4)) p.bias = mask_bias(a, a[4], p.q.dim(0), p.q.dim(2), p.k.dim(2), p.q.dtype());
  if (a.has(5)) p.bias = plus(p.bias, a[5]);
  const AttentionResult r = attend(a, p);
  a.give(0, heads_together(r.out));
  a.give(1, p.k);
  a.give(2, p.v);
  if (a.wants(3)) a.give(3, r.weights);
}

// Keys or values of this step, at their places in the cache.
Tensor into_cache(const A& a, const Tensor& past, const Tensor& now, const Tensor& start, Extent size) {
  const Extent n = now.dim(0), steps = now.dim(2);
  Tensor cache = past;
  if (!cache.defined()) cache = full({n, now.dim(1), size, now.dim(3)}, 0, now.dtype(), a.device());
  if (cache.dim(2) < size) cache = pad(cache, {{0, 0}, {0, 0}, {0, size - cache.dim(2)}, {0, 0}});
  const Tensor at = reshape(start, {n, 1, 1, 1}) + reshape(arange(steps, DType::i32, a.device()), {1, 1, steps, 1});
  return scatter(cache, 2, expand(at, now.shape()), now);
}

void group_query_attention(A& a) {
  for (const std::size_t i :
       {std::size_t{11}, std::size_t{12}, std::size_t{13}, std::size_t{14}, std::size_t{15}, std::size_t{16}})
    if (i > 11 && i < a.input_count() && a.has(i))
      a.usage_error(
          fmt::format("its input {} is not supported: quantised caches, norms of queries, and padded chunks", i));
  if (a.flag("sliding_window_cache", false)) a.usage_error("sliding_window_cache is not supported");
  const Extent heads = a.integer("num_heads"), shared = a.integer("kv_num_heads");
  AttentionParts p;
  if (a.has(1) && a.has(2)) {
    p.q = heads_apart(a, a[0], heads);
    p.k = heads_apart(a, a[1], shared);
    p.v = heads_apart(a, a[2], shared);
  } else {  // side by side
    const Extent channels = heads + 2 * shared;
    const Tensor all = heads_apart(a, a[0], channels);
    p.q = narrow(all, 1, 0, heads);
    p.k = narrow(all, 1, heads, shared);
    p.v = narrow(all, 1, heads + shared, shared);
  }
  const Extent n = p.q.dim(0), steps = p.q.dim(2), total = a.integer_of(6);
  // Entries of the batch may differ in length: the last keys are at seqlens_k. A prompt starts at 0, also where it is padded.
  const Tensor last = reshape(cast(a[5], DType::i32), {n});
  const Tensor start = steps == total ? full({n}, 0, DType::i32, a.device()) : last - static_cast<double>(steps - 1);
  const Extent size = std::max(total, a.has(3) ? a[3].dim(2) : 0);
  if (total < steps || size > kMaxMadeElements) a.shape_error(fmt::format("a total length of {}", total));
  if (a.flag("do_rotary", false)) {
    const Tensor own = reshape(start, {n, 1}) + reshape(arange(steps, DType::i32, a.device()), {1, steps});
    const Tensor places = a.has(9) ? cast(a[9], DType::i32) : own;
    const Tensor cos = embedding(a[7], places), sin = embedding(a[8], places);
    const bool neighbours = a.flag("rotary_interleaved", false);
    p.q = rotated(a, p.q, cos, sin, neighbours);
    p.k = rotated(a, p.k, cos, sin, neighbours);
  }
  p.k = into_cache(a, a.optional(3), p.k, start, size);
  p.v = into_cache(a, a.optional(4), p.v, start, size);
  a.give(1, p.k);
  a.give(2, p.v);
  p.k = narrow(p.k, 2, 0, total);
  p.v = narrow(p.v, 2, 0, total);
  p.scale = a.number("scale", 0);
  p.soft_cap = a.number("softcap", 0);
  if (a.has(10)) p.bias = a[10];
  if (a.has(11)) p.sinks = a[11];
  if (!a.has(11) && a.flag("smooth_softmax", false) && a.integer("smooth_softmax") > 0)
    p.sinks = full({heads}, 0, p.q.dtype(), a.device());
  const Tensor distance = distances(a, steps, total, 0) + reshape(start, {n, 1, 1, 1});
  if (a.flag("causal", true)) p.allowed = ge(distance, 0.0);
  if (const Extent window = a.integer("local_window_size", -1); window > 0)
    p.allowed = p.allowed & lt(distance, static_cast<double>(window));
  const Extent scores = a.integer("qk_output", 0);
  p.wants_scores = a.wants(3) && scores != 0;
  const AttentionResult r = attend(a, p);
  a.give(0, heads_together(r.out));
  if (p.wants_scores) a.give(3, scores == 1 ? r.biased : r.weights);
}

void contrib_rotary(A& a) {
  if (a.flag("is_packed_batching", false)) a.usage_error("is_packed_batching is not supported");
  const bool flat = a[0].rank() == 3;
  const Extent turned = a.integer("rotary_embedding_dim", 0), given = a.integer("num_heads", 0);
  const Extent channels = turned ? turned : 2 * a[2].dim(-1);
  if (flat && !given && (channels < 1 || a[0].dim(2) % channels)) a.shape_error("cosines do not fit the channels");
  const Tensor x = flat ? heads_apart(a, a[0], given ? given : a[0].dim(2) / channels) : a[0];
  if (x.rank() != 4) a.shape_error("it takes x of three or four axes");
  const Extent n = x.dim(0), steps = x.dim(2);
  Tensor places = cast(a[1], DType::i32);
  if (places.numel() == 1 && places.rank() < 2)
    places = reshape(places, {1, 1}) + reshape(arange(steps, DType::i32, a.device()), {1, steps});
  places = expand(places, {n, steps});
  const Tensor y = rotated(a, x, embedding(a[2], places), embedding(a[3], places), a.flag("interleaved", false));
  const Tensor scaled = a.number("scale", 1) == 1 ? y : y * a.number("scale", 1);
  a.give(flat ? heads_together(scaled) : scaled);
}

constexpr Operator kContribAttention[] = {
    {"Attention", fused_attention},
    {"QAttention", quantised_attention},
    {"MultiHeadAttention", multi_head_attention},
    {"GroupQueryAttention", group_query_attention},
    {"RotaryEmbedding", contrib_rotary},
};

}  // namespace

std::span<const Operator> contrib_attention_operators() { return kContribAttention; }

}  // namespace weft::onnx
