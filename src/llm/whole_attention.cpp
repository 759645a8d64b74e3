#include "llm/whole_attention.hpp"

#include <limits>

#include "weft/error.hpp"
#include "weft/ops.hpp"
#include "weft/ops/attention.hpp"

namespace weft::llm {
namespace {

constexpr Extent kWidestHead = 256;  // of the kernels of attention

/// [rows * T, heads * D] as [rows, heads, T, D].
Tensor by_head(const Tensor& x, Extent rows, Extent heads) {
  const Extent tokens = x.dim(0) / rows, width = x.dim(1) / heads;
  return permute(reshape(x, {rows, tokens, heads, width}), {0, 2, 1, 3});
}

/// Whether a query sees a key, [rows, 1, 1, T, T].
Tensor visible(const WholeRows& rows, Extent tokens, const WholeAttention& a, Device device) {
  const Tensor place = arange(tokens, DType::i32, device);
  const auto are_same = [&](const Tensor& x) {
    return elementwise("eq", {reshape(x, {rows.rows, 1, 1, tokens, 1}), reshape(x, {rows.rows, 1, 1, 1, tokens})});
  };
  const Tensor apart = reshape(place, {1, 1, 1, tokens, 1}) - reshape(place, {1, 1, 1, 1, tokens});
  Tensor seen = elementwise("logical_and", {are_same(rows.texts), apart >= 0.0});
  if (a.window > 0) seen = elementwise("logical_and", {seen, apart < static_cast<double>(a.window)});
  if (a.before_chunk.defined()) seen = elementwise("logical_and", {seen, are_same(a.before_chunk)});
  return seen;
}

Tensor attend_in_parts(const Tensor& q, const Tensor& k, const Tensor& v, const WholeAttention& a,
                       const WholeRows& rows) {
  const Extent b = rows.rows, tokens = q.dim(0) / b, group = a.heads / a.kv_heads, width = q.dim(1) / a.heads;
  const Tensor queries = reshape(by_head(q, b, a.heads), {b, a.kv_heads, group * tokens, width});
  const Tensor keys = by_head(k, b, a.kv_heads), values = by_head(v, b, a.kv_heads);
  Tensor scores = cast(matmul(queries, transpose(keys)), DType::f32) * a.scale;
  if (a.soft_cap > 0) scores = elementwise("tanh", {scores / a.soft_cap}) * a.soft_cap;
  scores = reshape(scores, {b, a.kv_heads, group, tokens, tokens});
  scores = elementwise("where", {visible(rows, tokens, a, q.device()), scores,
                                 scalar_like(-std::numeric_limits<double>::infinity(), scores)});
  const Tensor shares = reshape(softmax(scores, 4), {b, a.kv_heads, group * tokens, tokens});
  return reshape(matmul(shares, values), {b, a.heads, tokens, width});
}

}  // namespace

Tensor attend_whole(const Tensor& q, const Tensor& k, const Tensor& v, const WholeAttention& a, const WholeRows& rows) {
  const bool in_parts = a.soft_cap > 0 || a.before_chunk.defined() || q.dim(1) / a.heads > kWidestHead;
  if (in_parts && (a.sinks.defined() || a.slopes.defined()))
    throw InternalError("llm: whole rows have no attention with a cap, chunks or wide heads, and with sinks or slopes");
  const Tensor y =
      in_parts
          ? attend_in_parts(q, k, v, a, rows)
          : attention(
                by_head(q, rows.rows, a.heads), by_head(k, rows.rows, a.kv_heads), by_head(v, rows.rows, a.kv_heads),
                {.scale = a.scale, .window = a.window, .lengths = rows.lengths, .sinks = a.sinks, .slopes = a.slopes});
  return reshape(permute(y, {0, 2, 1, 3}), q.shape());
}

}  // namespace weft::llm
