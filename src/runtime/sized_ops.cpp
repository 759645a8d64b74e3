// Ops whose size depends on values. Without a size they evaluate what it depends on, and then are what they are with it.
#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <functional>

#include "graph/axes.hpp"
#include "graph/describe.hpp"
#include "graph/op.hpp"
#include "graph/trace_scope.hpp"
#include "runtime/runtime_families.hpp"
#include "weft/ops/indexing.hpp"
#include "weft/ops/layout.hpp"
#include "weft/ops/order.hpp"

namespace weft {

using graph::describe;

namespace {

using SizedOperands = std::vector<std::pair<std::string, Tensor>>;

/// `size`, or `count` (i32, one element) evaluated where there is none.
Extent size_of(std::string_view op, Extent size, const SizedOperands& operands, const std::function<Tensor()>& count,
               Where where) {
  if (size >= 0) return size;
  if (size != -1) throw UsageError(describe(op, fmt::format("size {}", size), operands, where));
  if (graph::TraceScope::current())
    throw UsageError(
        describe(op, "the size of its result is not known inside a compiled function; give a size", operands, where));
  return count().item<std::int32_t>();
}

void check_defined(std::string_view op, const SizedOperands& operands) {
  for (const auto& [name, tensor] : operands)
    if (!tensor.defined()) throw UsageError(fmt::format("{}: {} has no value", op, name));
}

Tensor flat(const Tensor& x) { return reshape(x, {x.numel()}); }

/// Positions where the flat mask is true, in order, `size` of them; -1 beyond.
Tensor true_positions(const Tensor& mask, Extent size) {
  const Extent n = mask.numel();
  const Tensor place = cumsum(flat(mask), 0, /*exclusive=*/true);  // where each true one goes
  const Tensor to = weft::where(flat(mask), place, scalar_like(-1, place));
  // Position + 1, so that places that nothing goes to become -1.
  return scatter_add(to, arange(n, DType::i32, mask.device()) + 1.0, size) - 1.0;
}

}  // namespace

Tensor nonzero(const Tensor& x, Extent size, Where where) {
  check_defined("nonzero", {{"x", x}});
  const Tensor mask = cast(x, DType::boolean, where);
  const Extent count = size_of(
      "nonzero", size, {{"x", x}}, [&] { return sum(cast(mask, DType::i32)); }, where);
  const Tensor position = true_positions(mask, count);
  std::vector<Tensor> coordinates;
  Extent below = x.numel();
  for (int d = 0; d < x.rank(); ++d) {
    if (x.dim(d) > 0) below /= x.dim(d);
    const Tensor each = floor_divide(position, static_cast<double>(std::max<Extent>(below, 1)));
    const Tensor along = remainder(each, static_cast<double>(std::max<Extent>(x.dim(d), 1)));
    coordinates.push_back(weft::where(position < 0.0, position, along));
  }
  if (coordinates.empty()) return zeros({count, 0}, DType::i32, x.device());
  return stack(coordinates, 1, where);
}

Tensor masked_select(const Tensor& x, const Tensor& mask, Extent size, Where where) {
  const SizedOperands operands = {{"x", x}, {"mask", mask}};
  check_defined("masked_select", operands);
  if (mask.dtype() != DType::boolean)
    throw DTypeError(describe("masked_select", "the mask is not bool; compare it", operands, where));
  Shape shape;
  if (!graph::broadcast_shapes(x.shape(), mask.shape(), shape))
    throw ShapeError(describe("masked_select", "x and the mask do not broadcast", operands, where));
  const Tensor chosen = expand(mask, shape, where);
  const Extent count = size_of(
      "masked_select", size, operands, [&] { return sum(cast(chosen, DType::i32)); }, where);
  return take_along_axis(flat(expand(x, shape, where)), true_positions(chosen, count), 0, where);
}

Unique unique(const Tensor& x, Extent size, Where where) {
  check_defined("unique", {{"x", x}});
  const Extent n = x.numel();
  const auto [values, positions] = sort(flat(x), 0, false, where);
  // The first of each run of equal elements.
  Tensor begins = full({std::min<Extent>(n, 1)}, 1, DType::boolean, x.device());
  if (n > 0) begins = concat({begins, ne(narrow(values, 0, 1, n - 1), narrow(values, 0, 0, n - 1))}, 0, where);
  const Extent count = size_of(
      "unique", size, {{"x", x}}, [&] { return sum(cast(begins, DType::i32)); }, where);
  const Tensor first = true_positions(begins, count), group = cumsum(begins) - 1.0;
  // Each position is there once, so that a sum of one number for each puts them in its place.
  const Tensor inverse = scatter_add(positions, group, n, where);
  return {take_along_axis(values, first, 0, where), reshape(inverse, x.shape(), where),
          scatter_add(group, ones({n}, DType::i32, x.device()), count, where)};
}

namespace {

/// Whether elements along axis 0, but for the first ones, differ from those before them.
Tensor differs_from_before(const Tensor& x, Where where) {
  const Extent n = x.dim(0);
  return ne(narrow(x, 0, 1, n - 1, where), narrow(x, 0, 0, n - 1, where));
}

/// Where runs begin: of elements of x [n], or of rows of x [n, m] where one element differs.
Tensor begins_of_runs(const Tensor& x, Where where) {
  const Extent n = x.dim(0);
  const Tensor first = full({std::min<Extent>(n, 1)}, 1, DType::boolean, x.device());
  if (n == 0) return first;
  Tensor differs = differs_from_before(x, where);
  if (x.rank() > 1) differs = any(differs, -1, {}, where);
  return concat({first, differs}, 0, where);
}

/// Ranks in columns whose elements are in order at `positions` [n, m], i32; `differs` [n - 1, m] as differs_from_before gives it.
Tensor ranks_of_ordered(const Tensor& positions, const Tensor& differs, Where where) {
  const Tensor first = zeros({1, positions.dim(1)}, DType::i32, positions.device());
  const Tensor rank = concat({first, cumsum(cast(differs, DType::i32), 0, false, false, where)}, 0, where);
  return scatter(zeros(positions.shape(), DType::i32, positions.device()), 0, positions, rank, where);
}

/// Ranks of the elements of each column of x [n, m] among the different ones, i32.
Tensor ranks_in_columns(const Tensor& x, Where where) {
  const auto [values, positions] = sort(x, 0, false, where);
  return ranks_of_ordered(positions, differs_from_before(values, where), where);
}

/// The rank of each row of x [n, m] among the different ones, by its first element that differs: neighbouring columns of ranks
/// become one until there is one left.
Tensor ranks_of_rows(const Tensor& x, Where where) {
  const Extent n = x.dim(0);
  if (n == 0 || x.dim(1) == 0) return zeros({n}, DType::i32, x.device());
  Tensor ranks = ranks_in_columns(x, where);
  while (ranks.dim(1) > 1) {
    const Extent columns = ranks.dim(1);
    const Tensor first = slice(ranks, 1, 0, columns - columns % 2, 2, where),
                 second = slice(ranks, 1, 1, kEnd, 2, where);
    // Sorted by the second column, then stably by the first.
    const Tensor by_second = argsort(second, 0, false, where);
    const auto [first_sorted, moved] = sort(take_along_axis(first, by_second, 0, where), 0, false, where);
    const Tensor order = take_along_axis(by_second, moved, 0, where),
                 second_sorted = take_along_axis(second, order, 0, where);
    const Tensor differs = differs_from_before(first_sorted, where) | differs_from_before(second_sorted, where);
    const Tensor joined = ranks_of_ordered(order, differs, where);
    ranks = columns % 2 == 0 ? joined : concat({joined, narrow(ranks, 1, columns - 1, 1, where)}, 1, where);
  }
  return reshape(ranks, {n}, where);
}

/// Slices along the axis as rows.
Tensor rows_along(const Tensor& x, int axis, Where where) {
  const Extent n = x.dim(axis);
  return reshape(movedim(x, axis, 0, where), {n, n == 0 ? 0 : x.numel() / n}, where);
}

}  // namespace

Unique unique(const Tensor& x, const UniqueOptions& options, Where where) {
  if (!options.axis) return unique(x, options.size, where);
  check_defined("unique", {{"x", x}});
  const int axis = graph::normalized_axis("unique", x, *options.axis, where);
  const Extent n = x.dim(axis);
  Tensor rank = ranks_of_rows(rows_along(x, axis, where), where);
  const Extent count = size_of(
      "unique", options.size, {{"x", x}},
      [&] { return n == 0 ? zeros({}, DType::i32, x.device()) : amax(rank.eval()) + 1.0; }, where);
  const auto [sorted, order] = sort(rank, 0, false, where);
  const Tensor first = true_positions(begins_of_runs(sorted, where), count);
  // Beyond the last one the place is outside, which reads zeros.
  const Tensor place = take_along_axis(order + 1.0, first, 0, where) - 1.0;
  return {index_select(x, axis, place, where), rank,
          scatter_add(rank, ones({n}, DType::i32, x.device()), count, where)};
}

Unique unique_consecutive(const Tensor& x, const UniqueOptions& options, Where where) {
  check_defined("unique_consecutive", {{"x", x}});
  const Tensor lines = options.axis ? x : flat(x);
  const int axis = options.axis ? graph::normalized_axis("unique_consecutive", x, *options.axis, where) : 0;
  const Extent n = lines.dim(axis);
  const Tensor begins = begins_of_runs(options.axis ? rows_along(x, axis, where) : lines, where);
  const Extent count = size_of(
      "unique_consecutive", options.size, {{"x", x}}, [&] { return sum(cast(begins, DType::i32)); }, where);
  const Tensor run = cumsum(begins) - 1.0;
  return {index_select(lines, axis, true_positions(begins, count), where),
          options.axis ? run : reshape(run, x.shape(), where),
          scatter_add(run, ones({n}, DType::i32, x.device()), count, where)};
}

Tensor repeat_interleave(const Tensor& x, const Tensor& repeats, int axis, Extent size, Where where) {
  const SizedOperands operands = {{"x", x}, {"repeats", repeats}};
  check_defined("repeat_interleave", operands);
  const int a = graph::normalized_axis("repeat_interleave", x, axis, where);
  if (!is_integer(repeats.dtype()))
    throw DTypeError(describe("repeat_interleave", "repeats are not integers; cast them", operands, where));
  if (repeats.shape() != Shape{x.dim(a)})
    throw ShapeError(describe("repeat_interleave", fmt::format("repeats are not [{}]", x.dim(a)), operands, where));
  const Tensor times = maximum(cast(repeats, DType::i32, where), 0.0), ends = cumsum(times);
  const Extent count = size_of(
      "repeat_interleave", size, operands, [&] { return sum(times); }, where);
  // Beyond the last end the slice is number n, which reads zeros.
  return index_select(x, a, searchsorted(ends, arange(count, DType::i32, x.device()), /*right=*/true, where), where);
}

Tensor bincount(const Tensor& x, const Tensor& weights, Extent minimum, Extent size, Where where) {
  SizedOperands operands = {{"x", x}};
  if (weights.defined()) operands.emplace_back("weights", weights);
  check_defined("bincount", operands);
  if (!is_integer(x.dtype())) throw DTypeError(describe("bincount", "takes integers; cast x", operands, where));
  if (x.rank() != 1 || (weights.defined() && weights.shape() != x.shape()))
    throw ShapeError(describe("bincount", "x is not [n], or weights are not as x", operands, where));
  const Extent count = size_of(
      "bincount", size, operands,
      [&] {
        if (x.numel() == 0) return full({}, static_cast<double>(minimum), DType::i32, x.device());
        if (any(x < 0.0).item<bool>())
          throw UsageError(describe("bincount", "x has a negative number", operands, where));
        return maximum(cast(amax(x), DType::i32) + 1.0, static_cast<double>(minimum));
      },
      where);
  return scatter_add(x, weights.defined() ? weights : ones({x.dim(0)}, DType::i32, x.device()), count, where);
}

namespace runtime {
namespace {

using graph::Arguments;
using graph::OpRow;
using graph::Tensors;

graph::AttributeSpec size_attribute() {
  return {.name = "size",
          .type = graph::AttributeType::integer,
          .default_value = Extent{-1},
          .doc = "extent of the result; -1: as many as there are, which evaluates the input"};
}

std::vector<graph::ErrorCase> errors_of_slices() {
  return {{"a negative size", {{{4}}}, {{"size", Extent{-2}}}, "size -2"},
          {"an axis outside", {{{4}}}, {{"axis", Extent{1}}}, "axis 1 is outside of"}};
}
graph::AttributeSpec slices_axis() {
  return {.name = "axis",
          .type = graph::AttributeType::integer,
          .default_value = std::monostate{},
          .doc = "counts the slices that are compared; null: elements are",
          .aliases = {"dim"}};
}
UniqueOptions unique_options(const Arguments& a) {
  constexpr Extent kNone = INT64_MIN;
  const Extent axis = a.integer_or("axis", kNone);
  if (axis == kNone) return {.size = a.integer("size")};
  return {.axis = static_cast<int>(std::clamp<Extent>(axis, INT_MIN, INT_MAX)), .size = a.integer("size")};
}

const std::vector<OpRow>& rows_of_sized_ops() {
  static const std::vector<OpRow> rows = {
      {.name = "nonzero",
       .aliases = {"argwhere"},
       .family = "indexing",
       .inputs = {{"x"}},
       .attributes = {size_attribute()},
       .result = "i32",
       .differentiable = false,
       .doc = "Positions of the elements that are not 0, a row each; with a size, the remaining ones are -1.",
       .torch = "torch.cat([torch.nonzero(x), torch.full((9, x.dim()), -1)])[:size] if size >= 0 else torch.nonzero(x)",
       .numpy = "np.argwhere(x)",
       .onnx = "NonZero",
       .cases = {{"two axes", {{{5, 6}, 0, 1, DType::i32}}},
                 {"a scalar", {{{}, 1, 2}}},
                 {"with a size", {{{3, 4}, 0, 1, DType::boolean}}, {{"size", Extent{9}}}},
                 {"none", {{{4}, 0, 0, DType::i32}}}},
       .errors = {{"a negative size", {{{4}}}, {{"size", Extent{-2}}}, "size -2"}},
       .apply = [](const Arguments& a) { return Tensors{nonzero(a.input(0), a.integer("size"))}; }},
      {.name = "masked_select",
       .family = "indexing",
       .inputs = {{"x"}, {"mask"}},
       .attributes = {size_attribute()},
       .result = "that of x",
       .doc = "The elements where the mask is true, one after another; with a size, the remaining ones are 0.",
       .torch = "torch.cat([torch.masked_select(x, mask), x.new_zeros(9)])[:size] if size >= 0 else "
                "torch.masked_select(x, mask)",
       .numpy = "x[mask]",
       .onnx = "Compress",
       .cases = {{"two axes", {{{5, 6}}, {{5, 6}, 0, 1, DType::boolean}}},
                 {"broadcast", {{{5, 6}}, {{6}, 0, 1, DType::boolean}}},
                 {"with a size", {{{8}}, {{8}, 0, 1, DType::boolean}}, {{"size", Extent{7}}}}},
       .errors = {{"another shape", {{{5}}, {{4}, 0, 1, DType::boolean}}, {}, "do not broadcast"},
                  {"integers", {{{5}}, {{5}, 0, 1, DType::i32}}, {}, "the mask is not bool"}},
       .apply = [](const Arguments& a) { return Tensors{masked_select(a.input(0), a.input(1), a.integer("size"))}; }},
      {.name = "unique",
       .family = "indexing",
       .inputs = {{"x"}},
       .attributes = {size_attribute(), slices_axis()},
       .result = "that of x; i32",
       .differentiable = false,
       .several_outputs = true,
       .doc = "The different elements, or slices, in order, which of them each one is, and how often each is there.",
       .torch = "torch.unique(x, return_inverse=True, return_counts=True, dim=axis)",
       .numpy = "np.unique(x, return_inverse=True, return_counts=True, axis=axis)",
       .onnx = "Unique",
       .cases = {{"integers", {{{5, 6}, -4, 4, DType::i32}}},
                 {"floats", {{.shape = {6}, .values = {3, 1, 1, 2.5, 3, -1}}}},
                 {"nothing", {{{0}}}},
                 {"rows", {{{20, 3}, 0, 1, DType::i32}}, {{"axis", Extent{0}}}},
                 {"columns of matrices", {{{2, 9, 3}, 0, 1, DType::i32}}, {{"axis", Extent{1}}}}},
       .errors = errors_of_slices(),
       .apply =
           [](const Arguments& a) {
             const auto [values, inverse, counts] = unique(a.input(0), unique_options(a));
             return Tensors{values, inverse, counts};
           }},
      {.name = "unique_consecutive",
       .family = "indexing",
       .inputs = {{"x"}},
       .attributes = {size_attribute(), slices_axis()},
       .result = "that of x; i32",
       .differentiable = false,
       .several_outputs = true,
       .doc = "The first of each run of equal elements, or slices, which run each one is in, and how long each run is.",
       .torch = "torch.unique_consecutive(x, return_inverse=True, return_counts=True, dim=axis)",
       .cases = {{"integers", {{{5, 6}, 0, 1, DType::i32}}},
                 {"floats", {{.shape = {6}, .values = {3, 1, 1, 2.5, 3, 3}}}},
                 {"nothing", {{{0}}}},
                 {"columns", {{{2, 20}, 0, 1, DType::i32}}, {{"axis", Extent{1}}}}},
       .errors = errors_of_slices(),
       .apply =
           [](const Arguments& a) {
             const auto [values, inverse, counts] = unique_consecutive(a.input(0), unique_options(a));
             return Tensors{values, inverse, counts};
           }},
      {.name = "repeat_slices",
       .family = "indexing",
       .inputs = {{"x"}, {"repeats", ops::DTypes::integers}},
       .attributes = {{.name = "axis",
                       .type = graph::AttributeType::integer,
                       .default_value = Extent{-1},
                       .doc = "axis of the slices",
                       .aliases = {"dim"}},
                      size_attribute()},
       .result = "that of x",
       .doc = "Slice i along an axis repeats[i] times: repeat_interleave with a tensor.",
       .torch = "torch.repeat_interleave(x, repeats, axis)",
       .numpy = "np.repeat(x, repeats, axis)",
       .cases = {{"columns", {{{3, 4}}, {{4}, 0, 3, DType::i32}}},
                 {"rows with a size",
                  {{{3, 4}}, {.shape = {3}, .type = DType::i32, .values = {2, 0, 1}}},
                  {{"axis", Extent{0}}, {"size", Extent{3}}}}},
       .errors = {{"another length", {{{3, 4}}, {{3}, 0, 3, DType::i32}}, {}, "repeats are not [4]"}},
       .apply =
           [](const Arguments& a) {
             return Tensors{repeat_interleave(a.input(0), a.input(1), a.small("axis"), a.integer("size"))};
           }},
      {.name = "bincount",
       .family = "order",
       .inputs = {{"x", ops::DTypes::integers}, {.name = "weights", .optional = true}},
       .attributes = {{.name = "minimum",
                       .type = graph::AttributeType::integer,
                       .default_value = Extent{0},
                       .doc = "least size",
                       .aliases = {"minlength"}},
                      size_attribute()},
       .result = "i32, or that of weights",
       .doc = "How often each number is there, or the sum of its weights.",
       .formula = "y_v = sum over x_i = v of weights_i",
       .torch = "torch.bincount(x, weights, minimum)",
       .numpy = "np.bincount(x, weights, minimum)",
       .cases =
           {{"some", {{{40}, 0, 9, DType::i32}, {.shape = {}, .absent = true}}, {}, false},
            {"a least size",
             {{{10}, 0, 3, DType::i32}, {.shape = {}, .absent = true}},
             {{"minimum", Extent{7}}},
             false},
            {"weights", {{{40}, 0, 9, DType::i32}, {{40}}}, {}, false},
            {"nothing", {{{0}, 0, 1, DType::i32}, {.shape = {}, .absent = true}}, {{"minimum", Extent{3}}}, false}},
       .errors = {{"negative",
                   {{.shape = {2}, .type = DType::i32, .values = {1, -1}}, {.shape = {}, .absent = true}},
                   {},
                   "x has a negative number"},
                  {"two axes", {{{2, 3}, 0, 4, DType::i32}, {.shape = {}, .absent = true}}, {}, "x is not [n]"}},
       .apply =
           [](const Arguments& a) {
             return Tensors{bincount(a.input(0), a.input(1), a.integer("minimum"), a.integer("size"))};
           }},
  };
  return rows;
}

}  // namespace

graph::OpRows sized_family() {
  graph::OpRows list;
  for (const OpRow& row : rows_of_sized_ops()) list.push_back(&row);
  return list;
}

}  // namespace runtime
}  // namespace weft
