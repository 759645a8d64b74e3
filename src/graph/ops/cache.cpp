// Caches of keys and values, attention over them, and the draw of a token. The decompositions here define their
// meaning.
#include "graph/cache.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "graph/describe.hpp"
#include "graph/no_grad.hpp"
#include "graph/op.hpp"
#include "graph/op_families.hpp"
#include "weft/inference.hpp"
#include "weft/ops.hpp"

namespace weft {

using graph::describe;
using graph::NodeRef;

namespace graph {

std::string_view name_of(CacheType type) {
  constexpr std::string_view names[] = {"f32", "f16", "q8"};
  return names[static_cast<std::size_t>(type)];
}

DType dtype_of_cache(CacheType type) {
  constexpr DType types[] = {DType::f32, DType::f16, DType::i8};
  return types[static_cast<std::size_t>(type)];
}

Extent row_elements(CacheType type, Extent width) {
  switch (type) {
    case CacheType::f32: return width;
    case CacheType::f16: return width % 2 == 0 ? width : 0;
    case CacheType::q8: return width % 32 == 0 ? width / 32 * 36 : 0;
  }
  return 0;
}

namespace {

const std::vector<DType> kFloat = {DType::f32}, kIndex = {DType::i32}, kDraw = {DType::u32},
                         kCache = {DType::f32, DType::f16, DType::i8};
constexpr const char* kNoGradient =
    "it serves generation, over caches that change in place; train with attention over whole sequences";

std::string no_elements(CacheType type, Extent width) {
  return fmt::format("rows of {} elements cannot be kept as {}, which takes multiples of {}", width, name_of(type),
                     type == CacheType::f16 ? 2 : 32);
}

template <class S>
AttributeSpec type_field() {
  return field("type", &S::type, "type of the elements in the cache", {.choices = {"f32", "f16", "q8"}});
}

void check_numbers(const Call& c, std::size_t i, Extent count) {
  if (c.input(i).rank() != 1 || c.input(i).dim(0) != count)
    c.shape_error(fmt::format("{} is not [{}]", c.row().inputs[i].name, count));
}

void check_cache(const Call& c, std::size_t i, CacheType type, Extent width) {
  const Tensor& cache = c.input(i);
  const std::string& name = c.row().inputs[i].name;
  if (cache.dtype() != dtype_of_cache(type))
    c.dtype_error(fmt::format("{} is {}, but a cache of {} is {}", name, weft::name_of(cache.dtype()), name_of(type),
                              weft::name_of(dtype_of_cache(type))));
  const Extent elements = row_elements(type, width);
  if (elements == 0 && width > 0) c.shape_error(no_elements(type, width));
  if (cache.rank() != 2 || cache.dim(1) != elements) c.shape_error(fmt::format("{} is not [rows, {}]", name, elements));
}

Tensor write_rows_parts(const Call& call) {
  const Tensor &cache = call.input(0), &rows = call.input(1), &at = call.input(2);
  const Extent r = cache.dim(0), t = rows.dim(0), width = cache.dim(1);
  const Tensor row(iota({r, t}, 0, DType::i32, cache.device())), token(iota({r, t}, 1, DType::i32, cache.device()));
  const Tensor writer = amax(elementwise("where", {elementwise("eq", {row, at}), token, scalar_like(-1, token)}), {1},
                             {.keepdims = true});
  const Tensor index = weft::expand(writer, {r, width});
  return elementwise("where", {elementwise("ge", {index, scalar_like(0, index)}),
                               Tensor(gather(rows.node(), index.node(), 0)), cache});
}

Tensor cache_attention_parts(const Call& call) {
  const Tensor &q = call.input(0), &k = call.input(1), &v = call.input(2), &first = call.input(3),
               &length = call.input(4);
  const auto attributes = call.attributes<CacheAttention>();
  const Extent t = q.dim(0), heads = q.dim(1), width = q.dim(2), rows = k.dim(0), kv = attributes.kv_heads,
               group = heads / kv;
  auto by_head = [&](const Tensor& x) { return weft::permute(weft::reshape(x, {rows, kv, width}), {1, 0, 2}); };
  const Tensor queries =
      weft::reshape(weft::permute(weft::reshape(q, {t, kv, group, width}), {1, 0, 2, 3}), {kv, t * group, width});
  Tensor scores =
      weft::reshape(weft::matmul(queries, weft::transpose(by_head(k))), {kv, t, group, rows}) * attributes.scale;
  if (attributes.soft_cap > 0) scores = elementwise("tanh", {scores / attributes.soft_cap}) * attributes.soft_cap;
  const auto of_head = [&](const Tensor& x) { return weft::reshape(x, {kv, 1, group, 1}); };
  auto column = [&](const Tensor& x) { return weft::reshape(x, {1, t, 1, 1}); };
  const Tensor row(iota({1, t, 1, rows}, 3, DType::i32, q.device()));
  // The distance of each row's key before the query's position.
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
  const Tensor &sinks = call.input(5), &slopes = call.input(6);
  if (slopes.defined()) scores = scores - of_head(slopes) * weft::cast(age, DType::f32);
  scores = elementwise("where", {seen, scores, scalar_like(-std::numeric_limits<double>::infinity(), scores)});
  Tensor top = amax(scores, {-1}, {.keepdims = true});
  if (sinks.defined()) top = elementwise("maximum", {top, of_head(sinks)});
  const Tensor none = elementwise("eq", {top, scalar_like(-std::numeric_limits<double>::infinity(), top)});
  const Tensor e = elementwise("exp", {scores - elementwise("where", {none, scalar_like(0, top), top})});
  Tensor total = weft::sum(e, {-1}, {.keepdims = true});
  if (sinks.defined()) total = total + elementwise("exp", {of_head(sinks) - top});
  const Tensor weights = e / elementwise("where", {none, scalar_like(1, total), total});
  const Tensor mixed = weft::matmul(weft::reshape(weights, {kv, t * group, rows}), by_head(v));
  return weft::reshape(weft::permute(weft::reshape(mixed, {kv, t, group, width}), {1, 0, 2, 3}), q.shape());
}

}  // namespace

const OpRow& write_rows_row() {
  static const OpRow row{
      .name = "write_rows",
      .family = "cache",
      .inputs = {{.name = "cache", .only = kCache}, {.name = "rows", .only = kFloat}, {.name = "at", .only = kIndex}},
      .attributes = {type_field<WriteRows>()},
      .result = "that of cache",
      .differentiable = false,
      .doc = "A cache [R, elements] with row at[t] replaced by rows[t]; places outside are left out.",
      .infer =
          [](const Call& c) {
            if (c.input(1).rank() != 2) c.shape_error("rows are not [T, width]");
            check_cache(c, 0, c.attributes<WriteRows>().type, c.input(1).dim(1));
            check_numbers(c, 2, c.input(1).dim(0));
            return std::vector<Result>{like(c.input(0))};
          },
      .decompose =
          [](const Call& c) {
            return c.attributes<WriteRows>().type == CacheType::f32 ? Tensors{write_rows_parts(c)} : Tensors{};
          },
      .no_gradient = kNoGradient,
      .form = KernelForm::routine,
      .in_place = 0,
      .cases = {{"rows", {{{5, 4}}, {{3, 4}}, {.shape = {3}, .type = DType::i32, .values = {4, -1, 0}}}}},
      .errors = {{"one axis", {{{5, 4}}, {{4}}, {{1}, 0, 1, DType::i32}}, {}, "rows are not [T, width]"},
                 {"another width", {{{5, 3}}, {{2, 4}}, {{2}, 0, 1, DType::i32}}, {}, "cache is not [rows, 4]"},
                 {"places that are floats", {{{5, 4}}, {{2, 4}}, {{2}}}, {}, "at takes i32"}}};
  return row;
}

const OpRow& cache_attention_row() {
  static const OpRow row{
      .name = "cache_attention",
      .family = "cache",
      .inputs = {{.name = "q", .only = kFloat},
                 {.name = "keys", .only = kCache},
                 {.name = "values", .only = kCache},
                 {.name = "first", .only = kIndex},
                 {.name = "length", .only = kIndex},
                 {.name = "sinks", .optional = true, .only = kFloat},
                 {.name = "slopes", .optional = true, .only = kFloat}},
      .attributes = {type_field<CacheAttention>(), field("kv_heads", &CacheAttention::kv_heads, "heads of the keys"),
                     field("scale", &CacheAttention::scale, "factor of the scores; 0: 1/sqrt(width of a head)"),
                     field("window", &CacheAttention::window, "keys that a query sees; 0: all"),
                     field("soft_cap", &CacheAttention::soft_cap, "scores become cap tanh(score / cap); 0: no cap"),
                     field("ring", &CacheAttention::ring,
                           "rows that the positions of a sequence share in turn; 0: each has its own"),
                     field("exact", &CacheAttention::exact,
                           "without it, a device may round q and the weights to f16 if the cache is f16")},
      .result = "that of q",
      .differentiable = false,
      .doc =
          "Attention of new tokens q [T, H, D] over the cached keys of their sequences: token t sees rows first[t] to "
          "first[t] + length[t]. With sinks [H], exp(sinks[h]) joins the sum that weights are divided by. With slopes "
          "[H], "
          "slopes[h] times the distance to the key is subtracted from scores.",
      .infer =
          [](const Call& c) {
            const Tensor &q = c.input(0), &keys = c.input(1), &values = c.input(2);
            const auto a = c.attributes<CacheAttention>();
            if (q.rank() != 3) c.shape_error("q is not [T, heads, width]");
            if (a.kv_heads <= 0 || q.dim(1) % a.kv_heads != 0)
              c.shape_error(fmt::format("{} heads of queries are not a multiple of {} of keys", q.dim(1), a.kv_heads));
            if (a.type == CacheType::q8 && q.dim(2) % 32 != 0)
              c.shape_error(
                  fmt::format("heads of {} channels share blocks of 32 in a q8 cache; use f16 or f32", q.dim(2)));
            check_cache(c, 1, a.type, a.kv_heads * q.dim(2));
            check_cache(c, 2, a.type, a.kv_heads * q.dim(2));
            if (keys.dim(0) != values.dim(0)) c.shape_error("keys and values differ in rows");
            check_numbers(c, 3, q.dim(0));
            check_numbers(c, 4, q.dim(0));
            for (const std::size_t i : {std::size_t{5}, std::size_t{6}})
              if (c.input(i).defined()) check_numbers(c, i, q.dim(1));
            if (a.window < 0 || a.soft_cap < 0)
              c.usage_error(fmt::format("window {}, soft cap {}; neither may be negative", a.window, a.soft_cap));
            if (a.ring != 0 && (a.window < 1 || a.window > a.ring || a.ring > keys.dim(0)))
              c.usage_error(
                  fmt::format("a ring of {} rows with a window of {}; a ring takes a window of 1 or more that "
                              "it holds, and fits the cache",
                              a.ring, a.window));
            return std::vector<Result>{like(q)};
          },
      .decompose =
          [](const Call& c) {
            return c.attributes<CacheAttention>().type == CacheType::f32 ? Tensors{cache_attention_parts(c)}
                                                                         : Tensors{};
          },
      .no_gradient = kNoGradient,
      .form = KernelForm::routine,
      // The length of a sequence is known only at run time, so every row is counted.
      .flops =
          [](const Call& c) {
            return 4.0 * static_cast<double>(c.input(0).numel()) * static_cast<double>(c.input(1).dim(0));
          },
      .cases = {{"two tokens",
                 {{{2, 4, 8}},
                  {{6, 16}},
                  {{6, 16}},
                  {.shape = {2}, .type = DType::i32, .values = {0, 3}},
                  {.shape = {2}, .type = DType::i32, .values = {3, 2}}},
                 {{"kv_heads", Extent{2}}, {"scale", 0.5}}},
                {"a window and a soft cap",
                 {{{2, 2, 8}},
                  {{9, 16}},
                  {{9, 16}},
                  {.shape = {2}, .type = DType::i32, .values = {0, 0}},
                  {.shape = {2}, .type = DType::i32, .values = {8, 9}}},
                 {{"kv_heads", Extent{2}}, {"scale", 0.5}, {"window", Extent{3}}, {"soft_cap", 4.0}}},
                {"sinks and slopes",
                 {{{2, 4, 8}},
                  {{9, 16}},
                  {{9, 16}},
                  {.shape = {2}, .type = DType::i32, .values = {0, 1}},
                  {.shape = {2}, .type = DType::i32, .values = {8, 3}},
                  {{4}},
                  {{4}, 0, 1}},
                 {{"kv_heads", Extent{2}}, {"scale", 0.5}}}},
      .errors = {{"heads that do not divide",
                  {{{2, 3, 8}}, {{6, 16}}, {{6, 16}}, {{2}, 0, 1, DType::i32}, {{2}, 0, 1, DType::i32}},
                  {{"kv_heads", Extent{2}}},
                  "are not a multiple of 2"},
                 {"a sink too few",
                  {{{2, 4, 8}}, {{6, 16}}, {{6, 16}}, {{2}, 0, 1, DType::i32}, {{2}, 0, 1, DType::i32}, {{3}}},
                  {{"kv_heads", Extent{2}}},
                  "sinks is not [4]"}}};
  return row;
}

const OpRow& sample_token_row() {
  static const OpRow row{
      .name = "sample_token",
      .family = "cache",
      .inputs = {{.name = "logits", .only = kFloat},
                 {.name = "settings", .only = kFloat},
                 {.name = "history", .only = kIndex},
                 {.name = "bias_tokens", .only = kIndex},
                 {.name = "bias", .only = kFloat},
                 {.name = "draw", .only = kDraw}},
      .result = "i32",
      .differentiable = false,
      .doc =
          "Draws the next token of each row of logits [rows, vocabulary] -> [rows, 2]: the token, and whether there "
          "was "
          "one.",
      .infer =
          [](const Call& c) {
            const Tensor& logits = c.input(0);
            if (logits.rank() != 2 || logits.dim(1) == 0) c.shape_error("logits are not [rows, vocabulary]");
            for (std::size_t i = 1; i < c.inputs().size(); ++i)
              if (c.input(i).rank() != 2 || c.input(i).dim(0) != logits.dim(0))
                c.shape_error(fmt::format("{} is not one row for each row of logits", c.row().inputs[i].name));
            if (c.input(1).dim(1) != kSampleSettings || c.input(5).dim(1) != 4 ||
                c.input(4).dim(1) != c.input(3).dim(1))
              c.shape_error(
                  fmt::format("settings are not [rows, {}], draw not [rows, 4], or bias not the shape of "
                              "bias_tokens",
                              kSampleSettings));
            return std::vector<Result>{{DType::i32, Shape{logits.dim(0), 2}}};
          },
      .no_gradient = kNoGradient,
      .form = KernelForm::routine};
  return row;
}

OpRows cache_rows() { return {&write_rows_row(), &cache_attention_row(), &sample_token_row()}; }

}  // namespace graph

Tensor empty_cache(Extent rows, Extent width, CacheType type, Device device, Where where) {
  if (rows < 0 || width < 0)
    throw ShapeError(describe("empty_cache", fmt::format("{} rows of {} elements", rows, width), {}, where));
  const Extent elements = graph::row_elements(type, width);
  if (elements == 0 && width > 0) throw ShapeError(describe("empty_cache", graph::no_elements(type, width), {}, where));
  return zeros({rows, elements}, graph::dtype_of_cache(type), device);
}

Tensor write_rows(const Tensor& cache, const Tensor& rows, const Tensor& at, CacheType type, Where where) {
  return graph::call(graph::write_rows_row(), {cache, rows, at}, graph::WriteRows{type}, where);
}

Tensor cache_attention(const Tensor& q, const Tensor& keys, const Tensor& values, const Tensor& first,
                       const Tensor& length, Extent kv_heads, const CacheAttentionOptions& options, Where where) {
  graph::CacheAttention attributes{options.type,   kv_heads,         options.scale,
                                   options.window, options.soft_cap, options.ring};
  if (attributes.scale == 0 && q.defined() && q.rank() == 3)
    attributes.scale = 1 / std::sqrt(static_cast<double>(q.dim(2)));
  return graph::call(graph::cache_attention_row(), {q, keys, values, first, length, options.sinks, options.slopes},
                     attributes, where);
}

Tensor sample_token(const Tensor& logits, const Tensor& settings, const Tensor& history, const Tensor& bias_tokens,
                    const Tensor& bias, const Tensor& draw, Where where) {
  return graph::call(graph::sample_token_row(), {logits, settings, history, bias_tokens, bias, draw}, graph::Words{},
                     where);
}

}  // namespace weft
