// Attention, rotary embeddings and caches of opsets 23 and later.
#include <fmt/format.h>

#include <cmath>

#include "onnx/attention.hpp"
#include "weft/ops/attention.hpp"
#include "weft/ops/indexing.hpp"
#include "weft/ops/layout.hpp"
#include "weft/ops/networks.hpp"

namespace weft::onnx {

using A = Application;

Tensor heads_apart(const A& a, const Tensor& x, Extent heads) {
  if (x.rank() != 3 || heads < 1 || x.dim(2) % heads)
    a.shape_error(fmt::format("{} heads do not fit {}; [batch, length, channels of all heads] is needed", heads,
                              x.shape().to_string()));
  return permute(reshape(x, {x.dim(0), x.dim(1), heads, x.dim(2) / heads}), {0, 2, 1, 3});
}
Tensor heads_together(const Tensor& x) {
  return reshape(permute(x, {0, 2, 1, 3}), {x.dim(0), x.dim(2), x.dim(1) * x.dim(3)});
}
Tensor distances(const A& a, Extent queries, Extent keys, Extent before) {
  const Tensor q = reshape(arange(queries, DType::i32, a.device()), {queries, 1}) + static_cast<double>(before);
  return q - reshape(arange(keys, DType::i32, a.device()), {1, keys});
}

Tensor rotated(const A& a, const Tensor& x, const Tensor& cos, const Tensor& sin, bool neighbours) {
  const Extent half = cos.dim(-1), d = x.dim(-1);
  if (cos.rank() != 3 || cos.shape() != sin.shape() || cos.dim(1) != x.dim(2) || 2 * half > d)
    a.shape_error(fmt::format("cosines {} and sines {} do not fit {}", cos.shape().to_string(), sin.shape().to_string(),
                              x.shape().to_string()));
  const Tensor turned = narrow(x, -1, 0, 2 * half), c = unsqueeze(cos, 1), s = unsqueeze(sin, 1);
  Tensor y;
  if (neighbours) {
    Shape pairs = turned.shape();
    pairs[3] = half;
    pairs.push_back(2);
    const Tensor p = reshape(turned, pairs), first = select(p, -1, 0), second = select(p, -1, 1);
    y = reshape(stack({first * c - second * s, first * s + second * c}, -1), turned.shape());
  } else {
    const Tensor first = narrow(turned, -1, 0, half), second = narrow(turned, -1, half, half);
    y = concat({first * c - second * s, first * s + second * c}, -1);
  }
  return 2 * half == d ? y : concat({y, narrow(x, -1, 2 * half, d - 2 * half)}, -1);
}

AttentionResult attend(const A& a, const AttentionParts& p) {
  const Extent queries = p.q.dim(2), keys = p.k.dim(2), heads = p.q.dim(1), shared = p.k.dim(1);
  if (p.q.rank() != 4 || p.k.rank() != 4 || p.v.rank() != 4 || shared < 1 || heads % shared || p.v.dim(1) != shared ||
      p.v.dim(2) != keys || p.k.dim(3) != p.q.dim(3) || p.k.dim(0) != p.q.dim(0) || p.v.dim(0) != p.q.dim(0))
    a.shape_error(fmt::format("queries {}, keys {} and values {} do not fit", p.q.shape().to_string(),
                              p.k.shape().to_string(), p.v.shape().to_string()));
  const double scale = p.scale != 0 ? p.scale : 1 / std::sqrt(static_cast<double>(p.q.dim(3)));
  // Causal as the kernels have it: the last query is at the position of the last key.
  const bool aligned = p.causal && p.offset == keys - queries;
  Tensor allowed = p.allowed;
  if (p.causal && !aligned) {
    const Tensor before = ge(distances(a, queries, keys, p.offset), 0.0);
    allowed = allowed.defined() ? allowed & before : before;
  }
  if (!p.wants_scores && p.soft_cap == 0 && p.v.dim(3) == p.q.dim(3)) {
    Tensor mask = p.bias;
    if (allowed.defined())
      mask = mask.defined() ? where(allowed, mask, full({}, -kInfinity, mask.dtype(), a.device())) : allowed;
    if (mask.defined())
      while (mask.rank() < 4) mask = unsqueeze(mask, 0);
    return {.out = attention(p.q, p.k, p.v, {.causal = aligned, .scale = scale, .mask = mask, .sinks = p.sinks}),
            .raw = {},
            .capped = {},
            .biased = {},
            .weights = {}};
  }
  if (aligned) {
    const Tensor before = ge(distances(a, queries, keys, p.offset), 0.0);
    allowed = allowed.defined() ? allowed & before : before;
  }
  const Extent group = heads / shared, n = p.q.dim(0);
  const auto repeated = [&](const Tensor& x) {
    if (group == 1) return x;
    return reshape(expand(unsqueeze(x, 2), {n, shared, group, keys, x.dim(3)}), {n, heads, keys, x.dim(3)});
  };
  AttentionResult r;
  r.raw = matmul(p.q, transpose(repeated(p.k))) * scale;
  r.capped = p.soft_cap == 0 ? r.raw : tanh(r.raw / p.soft_cap) * p.soft_cap;
  r.biased = p.bias.defined() ? r.capped + p.bias : r.capped;
  if (allowed.defined()) r.biased = where(allowed, r.biased, full({}, -kInfinity, r.biased.dtype(), a.device()));
  Tensor logits = r.biased;
  if (p.sinks.defined()) {
    const Tensor sink = reshape(cast(p.sinks, logits.dtype()), {1, heads, 1, 1});
    logits = concat({logits, expand(sink, {n, heads, queries, 1})}, -1);
  }
  // A query that sees no key gets zeros.
  const Tensor sees = gt(amax(logits, -1, {.keepdims = true}), -kInfinity);
  r.weights = where(sees, softmax(logits, -1), full({}, 0, logits.dtype(), a.device()));
  if (p.sinks.defined()) r.weights = narrow(r.weights, -1, 0, keys);
  r.out = matmul(r.weights, repeated(p.v));
  return r;
}

namespace {

// The keys or values of earlier steps, then those of this one.
Tensor after_past(const A& a, std::size_t past, const Tensor& now) {
  return a.has(past) ? concat({a[past], now}, 2) : now;
}

void standard_attention(A& a) {
  const bool flat = a[0].rank() == 3;
  const auto heads_of = [&](std::size_t i, std::string_view name) {
    return a[i].rank() == 3 ? heads_apart(a, a[i], a.integer(name)) : a[i];
  };
  AttentionParts p;
  p.q = heads_of(0, "q_num_heads");
  p.k = after_past(a, 4, heads_of(1, "kv_num_heads"));
  p.v = after_past(a, 5, heads_of(2, "kv_num_heads"));
  p.scale = a.number("scale", 0);
  p.soft_cap = a.number("softcap", 0);
  p.wants_scores = a.wants(3);
  p.causal = a.flag("is_causal", false);
  p.offset = a.has(4) ? a[4].dim(2) : 0;
  const Extent queries = p.q.dim(2), keys = p.k.dim(2);
  const auto restrict = [&](const Tensor& more) { p.allowed = p.allowed.defined() ? p.allowed & more : more; };
  if (a.has(3)) {
    Tensor mask = a[3];
    const bool bools = mask.dtype() == DType::boolean;
    if (const Extent missing = keys - mask.dim(-1); missing > 0 && mask.dim(-1) != 1) {  // keys that it does not name
      std::vector<std::pair<Extent, Extent>> around(static_cast<std::size_t>(mask.rank()), {0, 0});
      around.back() = {0, missing};
      mask = pad(mask, around, PadMode::constant, bools ? 0 : -kInfinity);
    }
    (bools ? p.allowed : p.bias) = mask;
  }
  // Positions of queries less those of keys; with a cache of a fixed size, by its lengths.
  const Extent left = a.integer("left_window_size", -1), right = a.integer("right_window_size", -1);
  Tensor distance;
  if (a.has(6)) {
    const Extent n = p.q.dim(0);
    const Tensor lengths = reshape(cast(a[6], DType::i32), {n, 1, 1, 1});
    restrict(lt(reshape(arange(keys, DType::i32, a.device()), {1, 1, 1, keys}), lengths));
    distance = distances(a, queries, keys, 0) + (lengths - static_cast<double>(queries));
    if (p.causal) restrict(ge(distance, 0.0));
    p.causal = false;
  } else if (left >= 0 || right >= 0) {
    distance = distances(a, queries, keys, p.offset);
  }
  if (left >= 0) restrict(le(distance, static_cast<double>(left)));
  if (right >= 0) restrict(ge(distance, -static_cast<double>(right)));
  const AttentionResult r = attend(a, p);
  a.give(0, flat ? heads_together(r.out) : r.out);
  a.give(1, p.k);
  a.give(2, p.v);
  if (!a.wants(3)) return;
  switch (a.integer("qk_matmul_output_mode", 0)) {
    case 0: return a.give(3, r.raw);
    case 1: return a.give(3, r.capped);
    case 2: return a.give(3, r.biased);
    case 3: return a.give(3, r.weights);
    default: a.usage_error("qk_matmul_output_mode is not 0 to 3");
  }
}

void rotary_embedding(A& a) {
  const bool flat = a[0].rank() == 3;
  const Tensor x = flat ? heads_apart(a, a[0], a.integer("num_heads")) : a[0];
  if (x.rank() != 4) a.shape_error("it takes x of three or four axes");
  Tensor cos = a[1], sin = a[2];
  if (a.has(3)) {
    cos = embedding(cos, a[3]);
    sin = embedding(sin, a[3]);
  }
  const Extent turned = a.integer("rotary_embedding_dim", 0);
  if (2 * cos.dim(-1) != (turned ? turned : x.dim(3))) a.shape_error("cosines do not fit the rotated channels");
  const Tensor y = rotated(a, x, cos, sin, a.flag("interleaved", false));
  a.give(flat ? heads_together(y) : y);
}

// x / sqrt(mean(x^2) + epsilon) scale, over the axes from `axis` on.
void rms_normal(A& a) {
  const Tensor& x = a[0];
  const int axis = a.axis(a.integer("axis", -1), x.rank());
  const double epsilon = a.number("epsilon", 1e-5f);
  if (axis == x.rank() - 1 && a[1].rank() == 1 && a[1].dim(0) == x.dim(-1) && a[1].dtype() == x.dtype())
    return a.give(rms_norm(x, a[1], epsilon));
  Axes axes;
  for (int i = axis; i < x.rank(); ++i) axes.push_back(i);
  const Tensor wide = is_float(x.dtype()) && x.dtype() != DType::f64 ? cast(x, DType::f32) : x;
  const Tensor y = wide * rsqrt(mean(square(wide), axes, {.keepdims = true}) + epsilon);
  a.give(cast(y, x.dtype()) * a[1]);
}

Tensor swished(const A& a) { return a[0] * sigmoid(a[0] * a.number("alpha", 1)); }
void swish(A& a) { a.give(swished(a)); }
void swish_gate(A& a) { a.give(swished(a) * a[1]); }

// Writes an update into a cache of a fixed size, at a position for each entry of the batch.
void tensor_scatter(A& a) {
  const Tensor &cache = a[0], &update = a[1];
  const int axis = a.axis(a.integer("axis", -2), cache.rank());
  if (axis == 0 || update.rank() != cache.rank()) a.shape_error("the update does not fit the cache");
  const Extent n = update.dim(axis), size = cache.dim(axis);
  const auto shape = [&](int at, Extent extent) {
    Shape s(std::vector<Extent>(static_cast<std::size_t>(cache.rank()), 1));
    s[at] = extent;
    return s;
  };
  Tensor places = reshape(arange(n, DType::i32, a.device()), shape(axis, n));
  if (a.has(2)) places = places + reshape(cast(a[2], DType::i32), shape(0, cache.dim(0)));
  const std::string_view mode = a.word("mode", "linear");
  if (mode == "circular")
    places = remainder(places, static_cast<double>(size));
  else if (mode != "linear")
    a.usage_error(fmt::format("unknown mode {}", mode));
  a.give(scatter(cache, axis, expand(places, update.shape()), update));
}

constexpr Operator kAttentionOperators[] = {
    {"Attention", standard_attention},
    {"RotaryEmbedding", rotary_embedding},
    {"RMSNormalization", rms_normal},
    {"SimplifiedLayerNormalization", rms_normal},
    {"Swish", swish},
    {"SwiGLU", swish_gate},
    {"TensorScatter", tensor_scatter},
};

}  // namespace

std::span<const Operator> attention_operators() { return kAttentionOperators; }

}  // namespace weft::onnx
