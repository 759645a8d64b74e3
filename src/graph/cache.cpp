// Caches of keys and values, and attention over them. What they are made of here defines what they mean.
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "graph/describe.hpp"
#include "graph/no_grad.hpp"
#include "graph/node.hpp"
#include "weft/inference.hpp"
#include "weft/ops.hpp"

namespace weft {

using graph::describe;
using graph::NodeRef;

namespace {

using Operands = std::vector<std::pair<std::string, Tensor>>;

ops::CacheType stored(CacheType type) { return static_cast<ops::CacheType>(type); }
DType dtype_of_cache(CacheType type) { return type == CacheType::f32 ? DType::f32 : DType::u32; }

Extent words_of(std::string_view op, CacheType type, Extent width, const Operands& operands, Where where) {
  const Extent words = ops::row_words(stored(type), width);
  if (words == 0 && width > 0)
    throw ShapeError(describe(op,
                              fmt::format("rows of {} elements cannot be kept as {}, which takes multiples of {}",
                                          width, ops::name_of(stored(type)), type == CacheType::f16 ? 2 : 32),
                              operands, where));
  return words;
}

void check_values(std::string_view op, const Operands& operands, Where where) {
  for (const auto& [name, tensor] : operands) {
    if (!tensor.defined()) throw UsageError(fmt::format("{}: {} has no value", op, name));
    if (tensor.device() != operands[0].second.device())
      throw DeviceError(describe(op, "operands on different devices; move one with .to(device)", operands, where));
  }
}

void check_numbers(std::string_view op, const Tensor& x, std::string_view name, Extent count, const Operands& operands,
                   Where where) {
  if (x.dtype() != DType::i32) throw DTypeError(describe(op, fmt::format("{} is not i32", name), operands, where));
  if (x.rank() != 1 || x.dim(0) != count)
    throw ShapeError(describe(op, fmt::format("{} is not [{}]", name, count), operands, where));
}

void check_cache(std::string_view op, const Tensor& cache, std::string_view name, CacheType type, Extent width,
                 const Operands& operands, Where where) {
  if (cache.dtype() != dtype_of_cache(type))
    throw DTypeError(describe(op,
                              fmt::format("{} is {}, but a cache of {} is {}", name, weft::name_of(cache.dtype()),
                                          ops::name_of(stored(type)), weft::name_of(dtype_of_cache(type))),
                              operands, where));
  const Extent words = words_of(op, type, width, operands, where);
  if (cache.rank() != 2 || cache.dim(1) != words)
    throw ShapeError(describe(op, fmt::format("{} is not [rows, {}]", name, words), operands, where));
}

}  // namespace

Tensor empty_cache(Extent rows, Extent width, CacheType type, Device device, Where where) {
  if (rows < 0 || width < 0)
    throw ShapeError(describe("empty_cache", fmt::format("{} rows of {} elements", rows, width), {}, where));
  return zeros({rows, words_of("empty_cache", type, width, {}, where)}, dtype_of_cache(type), device);
}

Tensor write_rows(const Tensor& cache, const Tensor& rows, const Tensor& at, CacheType type, Where where) {
  constexpr std::string_view op = "write_rows";
  const Operands operands = {{"cache", cache}, {"rows", rows}, {"at", at}};
  check_values(op, operands, where);
  if (rows.dtype() != DType::f32) throw DTypeError(describe(op, "rows are not f32; cast them", operands, where));
  if (rows.rank() != 2) throw ShapeError(describe(op, "rows are not [T, width]", operands, where));
  check_cache(op, cache, "cache", type, rows.dim(1), operands, where);
  check_numbers(op, at, "at", rows.dim(0), operands, where);
  const Extent attributes[] = {static_cast<Extent>(type)};
  return graph::wrap(graph::routine(ops::Routine::write_rows, {cache.node(), rows.node(), at.node()}, cache.dtype(),
                                    cache.shape(), attributes, where));
}

Tensor cache_attention(const Tensor& q, const Tensor& keys, const Tensor& values, const Tensor& first,
                       const Tensor& length, Extent kv_heads, const CacheAttentionOptions& options, Where where) {
  constexpr std::string_view op = "cache_attention";
  const Operands operands = {{"q", q}, {"keys", keys}, {"values", values}, {"first", first}, {"length", length}};
  check_values(op, operands, where);
  if (q.dtype() != DType::f32) throw DTypeError(describe(op, "q is not f32; cast it", operands, where));
  if (q.rank() != 3) throw ShapeError(describe(op, "q is not [T, heads, width]", operands, where));
  if (kv_heads <= 0 || q.dim(1) % kv_heads != 0)
    throw ShapeError(describe(op, fmt::format("{} heads of queries are no multiple of {} of keys", q.dim(1), kv_heads),
                              operands, where));
  if (options.type == CacheType::q8 && q.dim(2) % 32 != 0)
    throw ShapeError(
        describe(op, fmt::format("heads of {} channels share blocks of 32 in a q8 cache; use f16 or f32", q.dim(2)),
                 operands, where));
  check_cache(op, keys, "keys", options.type, kv_heads * q.dim(2), operands, where);
  check_cache(op, values, "values", options.type, kv_heads * q.dim(2), operands, where);
  if (keys.dim(0) != values.dim(0)) throw ShapeError(describe(op, "keys and values differ in rows", operands, where));
  check_numbers(op, first, "first", q.dim(0), operands, where);
  check_numbers(op, length, "length", q.dim(0), operands, where);
  if (options.window < 0 || options.soft_cap < 0)
    throw UsageError(
        describe(op, fmt::format("window {}, soft cap {}; neither may be negative", options.window, options.soft_cap),
                 {}, where));
  if (options.ring != 0 && (options.window < 1 || options.window > options.ring || options.ring > keys.dim(0)))
    throw UsageError(describe(op,
                              fmt::format("a ring of {} rows with a window of {}; a ring takes a window of 1 or more "
                                          "that it holds, and fits the cache",
                                          options.ring, options.window),
                              operands, where));
  const double scale = options.scale != 0 ? options.scale : 1 / std::sqrt(static_cast<double>(q.dim(2)));
  const Extent attributes[] = {static_cast<Extent>(options.type), kv_heads,    ops::bits_of(scale), options.window,
                               ops::bits_of(options.soft_cap),    options.ring};
  return graph::wrap(graph::routine(ops::Routine::cache_attention,
                                    {q.node(), keys.node(), values.node(), first.node(), length.node()}, DType::f32,
                                    q.shape(), attributes, where));
}

Tensor sample_token(const Tensor& logits, const Tensor& settings, const Tensor& history, const Tensor& bias_tokens,
                    const Tensor& bias, const Tensor& draw, Where where) {
  constexpr std::string_view op = "sample_token";
  const Operands operands = {{"logits", logits},           {"settings", settings}, {"history", history},
                             {"bias_tokens", bias_tokens}, {"bias", bias},         {"draw", draw}};
  check_values(op, operands, where);
  constexpr DType types[] = {DType::f32, DType::f32, DType::i32, DType::i32, DType::f32, DType::u32};
  if (logits.rank() != 2 || logits.dim(1) == 0)
    throw ShapeError(describe(op, "logits are not [rows, vocabulary]", operands, where));
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const auto& [name, tensor] = operands[i];
    if (tensor.dtype() != types[i])
      throw DTypeError(describe(op, fmt::format("{} is not {}", name, weft::name_of(types[i])), operands, where));
    if (tensor.rank() != 2 || tensor.dim(0) != logits.dim(0))
      throw ShapeError(describe(op, fmt::format("{} is not one row for each row of logits", name), operands, where));
  }
  if (settings.dim(1) != kSampleSettings || draw.dim(1) != 4 || bias.dim(1) != bias_tokens.dim(1))
    throw ShapeError(describe(op,
                              fmt::format("settings are not [rows, {}], draw not [rows, 4], or bias not the shape of "
                                          "bias_tokens",
                                          kSampleSettings),
                              operands, where));
  std::vector<NodeRef> inputs;
  for (const auto& [name, tensor] : operands) inputs.push_back(tensor.node());
  return graph::wrap(
      graph::routine(ops::Routine::sample_token, std::move(inputs), DType::i32, {logits.dim(0), 2}, {}, where));
}

namespace graph {
namespace {

Tensor write_rows_parts(const Tensor& cache, const Tensor& rows, const Tensor& at) {
  const Extent r = cache.dim(0), t = rows.dim(0), width = cache.dim(1);
  const Tensor row(iota({r, t}, 0, DType::i32, cache.device())), token(iota({r, t}, 1, DType::i32, cache.device()));
  const Tensor writer = amax(elementwise("where", {elementwise("eq", {row, at}), token, scalar_like(-1, token)}), {1},
                             {.keepdims = true});
  const Tensor index = weft::expand(writer, {r, width});
  return elementwise("where", {elementwise("ge", {index, scalar_like(0, index)}),
                               Tensor(gather(rows.node(), index.node(), 0)), cache});
}

Tensor cache_attention_parts(const Node& node, const ops::CacheAttention& attributes) {
  const Tensor q(node.inputs[0]), k(node.inputs[1]), v(node.inputs[2]), first(node.inputs[3]), length(node.inputs[4]);
  const Extent t = q.dim(0), heads = q.dim(1), width = q.dim(2), rows = k.dim(0), kv = attributes.kv_heads,
               group = heads / kv;
  auto by_head = [&](const Tensor& x) { return weft::permute(weft::reshape(x, {rows, kv, width}), {1, 0, 2}); };
  const Tensor queries =
      weft::reshape(weft::permute(weft::reshape(q, {t, kv, group, width}), {1, 0, 2, 3}), {kv, t * group, width});
  Tensor scores =
      weft::reshape(weft::matmul(queries, weft::transpose(by_head(k))), {kv, t, group, rows}) * attributes.scale;
  if (attributes.soft_cap > 0) scores = elementwise("tanh", {scores / attributes.soft_cap}) * attributes.soft_cap;
  auto column = [&](const Tensor& x) { return weft::reshape(x, {1, t, 1, 1}); };
  const Tensor row(iota({1, t, 1, rows}, 3, DType::i32, q.device()));
  // How far before the query's own each row's key is.
  const Tensor place = row - column(first);
  Tensor age = column(length) - 1.0 - place, seen = elementwise("ge", {place, scalar_like(0, place)});
  const auto require = [&](const Tensor& condition) { seen = elementwise("logical_and", {seen, condition}); };
  if (attributes.ring > 0) {
    const auto ring = static_cast<double>(attributes.ring);
    require(elementwise("lt", {place, scalar_like(ring, place)}));
    age = elementwise("remainder", {age, scalar_like(ring, age)});
    require(elementwise("lt", {age, column(length)}));
  }
  require(elementwise("ge", {age, scalar_like(0, age)}));
  if (attributes.window > 0)
    require(elementwise("lt", {age, scalar_like(static_cast<double>(attributes.window), age)}));
  scores = elementwise("where", {seen, scores, scalar_like(-std::numeric_limits<double>::infinity(), scores)});
  const Tensor top = amax(scores, {-1}, {.keepdims = true});
  const Tensor none = elementwise("eq", {top, scalar_like(-std::numeric_limits<double>::infinity(), top)});
  const Tensor e = elementwise("exp", {scores - elementwise("where", {none, scalar_like(0, top), top})});
  const Tensor total = weft::sum(e, {-1}, {.keepdims = true});
  const Tensor weights = e / elementwise("where", {none, scalar_like(1, total), total});
  const Tensor mixed = weft::matmul(weft::reshape(weights, {kv, t * group, rows}), by_head(v));
  return weft::reshape(weft::permute(weft::reshape(mixed, {kv, t, group, width}), {1, 0, 2, 3}), q.shape());
}

}  // namespace

NodeRef decompose_routine(const Node& node) {
  const std::span<const Extent> attributes = std::span(node.ints).subspan(1);
  switch (routine_of(node)) {
    case ops::Routine::write_rows:
      if (ops::write_rows_of(attributes).type != ops::CacheType::f32) return nullptr;
      return write_rows_parts(Tensor(node.inputs[0]), Tensor(node.inputs[1]), Tensor(node.inputs[2])).node();
    case ops::Routine::cache_attention: {
      const ops::CacheAttention a = ops::cache_attention_of(attributes);
      return a.type == ops::CacheType::f32 ? cache_attention_parts(node, a).node() : nullptr;
    }
    case ops::Routine::unpack_rows:
    case ops::Routine::sample_token: return nullptr;
  }
  return nullptr;
}

}  // namespace graph
}  // namespace weft
