// Values in what a view shows: parts put together again, or chosen by place.
#include "weft/ops/view_scatters.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "graph/axes.hpp"
#include "graph/describe.hpp"
#include "graph/op.hpp"
#include "graph/op_families.hpp"
#include "weft/ops/indexing.hpp"
#include "weft/ops/layout.hpp"

namespace weft {

using graph::describe;

namespace {

void check_view(std::string_view op, const Tensor& x, const Tensor& values, const Shape& view, Where where) {
  const auto fail = [&](const std::string& fact) { return describe(op, fact, {{"x", x}, {"values", values}}, where); };
  if (values.device() != x.device())
    throw DeviceError(fail("operands on different devices; move one with .to(device)"));
  if (values.dtype() != x.dtype()) throw DTypeError(fail("the dtypes of x and values differ; cast one"));
  if (values.shape() != view) throw ShapeError(fail(fmt::format("values are not {}", view.to_string())));
}
void check_view_operands(std::string_view op, const Tensor& x, const Tensor& values) {
  if (!x.defined() || !values.defined()) throw UsageError(fmt::format("{}: an operand has no value", op));
}

}  // namespace

Tensor select_scatter(const Tensor& x, const Tensor& values, int axis, Extent index, Where where) {
  check_view_operands("select_scatter", x, values);
  const int a = graph::normalized_axis("select_scatter", x, axis, where);
  const Extent n = x.dim(a), at = index < 0 ? index + n : index;
  if (at < 0 || at >= n)
    throw ShapeError(describe("select_scatter",
                              fmt::format("element {} is outside of axis {} with extent {}", index, axis, n),
                              {{"x", x}}, where));
  check_view("select_scatter", x, values, select(x, a, at, where).shape(), where);
  return concat({narrow(x, a, 0, at, where), unsqueeze(values, a, where), narrow(x, a, at + 1, n - at - 1, where)}, a,
                where);
}

Tensor slice_scatter(const Tensor& x, const Tensor& values, int axis, Extent start, Extent stop, Extent step,
                     Where where) {
  check_view_operands("slice_scatter", x, values);
  const int a = graph::normalized_axis("slice_scatter", x, axis, where);
  if (step < 1) throw UsageError(describe("slice_scatter", fmt::format("step {}", step), {{"x", x}}, where));
  const Shape view = slice(x, a, start, stop, step, where).shape();
  check_view("slice_scatter", x, values, view, where);
  const Extent n = x.dim(a), count = view[a], first = std::clamp<Extent>(start < 0 ? start + n : start, 0, n);
  if (count == 0) return x;
  if (step == 1)
    return concat({narrow(x, a, 0, first, where), values, narrow(x, a, first + count, n - first - count, where)}, a,
                  where);
  // For each place along the axis which of the values is there, and whether one is.
  const Tensor steps = arange(n, DType::i32, x.device()) - static_cast<double>(first);
  const Tensor place = floor_divide(steps, full({}, static_cast<double>(step), DType::i32, x.device()));
  const Tensor is_there =
      (eq(place * static_cast<double>(step), steps) & (place >= 0.0)) & (place < static_cast<double>(count));
  const Tensor from = weft::where(is_there, place, full({}, 0, DType::i32, x.device()), where);
  Shape along(std::vector<Extent>(static_cast<std::size_t>(x.rank()), 1));
  along[a] = n;
  return weft::where(reshape(is_there, along, where), index_select(values, a, from, where), x, where);
}

Tensor diagonal_scatter(const Tensor& x, const Tensor& values, Extent offset, int axis_a, int axis_b, Where where) {
  check_view_operands("diagonal_scatter", x, values);
  const std::vector<int> axes = graph::normalized_axes("diagonal_scatter", x, {axis_a, axis_b}, where);
  check_view("diagonal_scatter", x, values, diagonal(x, offset, axes[0], axes[1], where).shape(), where);
  const Tensor matrix = movedim(x, {axes[0], axes[1]}, {-2, -1}, where);
  // A value is in the row, or with a negative offset in the column, of its number.
  const bool in_rows = offset >= 0;
  std::vector<std::pair<Extent, Extent>> padding(static_cast<std::size_t>(values.rank()), {0, 0});
  padding.back() = {0, matrix.dim(in_rows ? -2 : -1) - values.dim(-1)};
  const Tensor all = unsqueeze(weft::pad(values, padding, where), in_rows ? -1 : -2, where);
  const Shape& shape = matrix.shape();
  const Tensor row(graph::iota(shape, x.rank() - 2, DType::i32, x.device())),
      column(graph::iota(shape, x.rank() - 1, DType::i32, x.device()));
  const Tensor is_there = eq(column, row + static_cast<double>(offset));
  return movedim(weft::where(is_there, expand(all, shape, where), matrix, where), {-2, -1}, {axes[0], axes[1]}, where);
}

Tensor as_strided_scatter(const Tensor& x, const Tensor& values, const Shape& shape, const std::vector<Extent>& strides,
                          Extent offset, Where where) {
  check_view_operands("as_strided_scatter", x, values);
  check_view("as_strided_scatter", x, values, shape, where);
  const Tensor places = as_strided(arange(x.numel(), DType::i32, x.device()), shape, strides, offset, where);
  return put(x, places, values, false, where);
}

namespace graph {
namespace {

using ViewInts = std::vector<Extent>;

AttributeSpec view_number(std::string name, std::string doc, AttributeValue fallback,
                          std::vector<std::string> aliases = {}) {
  return {.name = std::move(name),
          .type = AttributeType::integer,
          .default_value = std::move(fallback),
          .doc = std::move(doc),
          .aliases = std::move(aliases)};
}

const std::vector<OpRow>& rows_of_view_scatters() {
  static const std::vector<OpRow> rows = {
      {.name = "select_scatter",
       .family = "indexing",
       .inputs = {{"x"}, {"values"}},
       .attributes = {view_number("axis", "axis of the element", Extent{0}, {"dim"}),
                      {.name = "index", .type = AttributeType::integer, .doc = "which element"}},
       .result = "that of x",
       .doc = "x with values as one element along an axis.",
       .formula = "y[.., index, ..] = values",
       .torch = "torch.select_scatter(x, values, axis, index)",
       .cases = {{"a row", {{{4, 3}}, {{3}}}, {{"index", Extent{2}}}},
                 {"the last column", {{{4, 3}}, {{4}}}, {{"axis", Extent{1}}, {"index", Extent{-1}}}}},
       .errors =
           {{"outside", {{{4, 3}}, {{3}}}, {{"index", Extent{4}}}, "element 4 is outside of axis 0 with extent 4"},
            {"another shape", {{{4, 3}}, {{4}}}, {{"index", Extent{0}}}, "values are not [3]"},
            {"another dtype",
             {{{4, 3}}, {{3}, 0, 4, DType::i32}},
             {{"index", Extent{0}}},
             "the dtypes of x and values differ"}},
       .apply =
           [](const Arguments& a) {
             return Tensors{weft::select_scatter(a.input(0), a.input(1), a.small("axis"), a.integer("index"))};
           }},
      {.name = "slice_scatter",
       .family = "indexing",
       .inputs = {{"x"}, {"values"}},
       .attributes = {view_number("axis", "axis of the slice", Extent{0}, {"dim"}),
                      view_number("start", "first element", std::monostate{}),
                      view_number("stop", "the element behind the last; null: the end", std::monostate{}, {"end"}),
                      view_number("step", "from one element to the next", Extent{1})},
       .result = "that of x",
       .doc = "x with values as a slice of it.",
       .formula = "y[.., start : stop : step, ..] = values",
       .torch = "torch.slice_scatter(x, values, axis, start, stop, step)",
       .cases = {{"rows", {{{6, 3}}, {{2, 3}}}, {{"start", Extent{1}}, {"stop", Extent{3}}}},
                 {"every second column",
                  {{{2, 6}}, {{2, 3}}},
                  {{"axis", Extent{1}}, {"start", Extent{-5}}, {"step", Extent{2}}}},
                 {"nothing", {{{3}}, {{0}}}, {{"start", Extent{2}}, {"stop", Extent{1}}}, false}},
       .errors = {{"another length", {{{6, 3}}, {{3, 3}}}, {{"stop", Extent{2}}}, "values are not [2, 3]"},
                  {"backwards", {{{6}}, {{6}}}, {{"step", Extent{-1}}}, "step -1"}},
       .apply =
           [](const Arguments& a) {
             return Tensors{weft::slice_scatter(a.input(0), a.input(1), a.small("axis"), a.integer_or("start", 0),
                                                a.integer_or("stop", kEnd), a.integer("step"))};
           }},
      {.name = "diagonal_scatter",
       .family = "indexing",
       .inputs = {{"x"}, {"values"}},
       .attributes = {view_number("offset", "columns to the right of the main diagonal", Extent{0}, {"k"}),
                      view_number("axis_a", "axis of the rows", Extent{0}, {"dim1", "axis1"}),
                      view_number("axis_b", "axis of the columns", Extent{1}, {"dim2", "axis2"})},
       .result = "that of x",
       .doc = "x with values on a diagonal of two axes.",
       .torch = "torch.diagonal_scatter(x, values, offset, axis_a, axis_b)",
       .cases = {{"a matrix", {{{4, 5}}, {{4}}}},
                 {"above, of the last axes",
                  {{{2, 5, 4}}, {{2, 3}}},
                  {{"offset", Extent{1}}, {"axis_a", Extent{-2}}, {"axis_b", Extent{-1}}}},
                 {"below", {{{6, 4, 3}}, {{4, 3}}}, {{"offset", Extent{-2}}, {"axis_b", Extent{2}}}, true}},
       .errors = {{"another length", {{{4, 5}}, {{5}}}, {}, "values are not [4]"},
                  {"one axis", {{{6}}, {{6}}}, {}, "axis 1 is outside of"}},
       .apply =
           [](const Arguments& a) {
             return Tensors{weft::diagonal_scatter(a.input(0), a.input(1), a.integer("offset"), a.small("axis_a"),
                                                   a.small("axis_b"))};
           }},
      {.name = "as_strided_scatter",
       .family = "indexing",
       .inputs = {{"x"}, {"values"}},
       .attributes =
           {{.name = "shape", .type = AttributeType::integers, .doc = "extents of the view", .aliases = {"size"}},
            {.name = "strides",
             .type = AttributeType::integers,
             .doc = "elements from one to the next along each axis",
             .aliases = {"stride"}},
            view_number("offset", "of the first element", Extent{0}, {"storage_offset"})},
       .result = "that of x",
       .doc = "x with values at the places offset + i strides_0 + j strides_1 + .. of its elements, row-major.",
       .torch = "torch.as_strided_scatter(x, values, shape, strides, offset)",
       .cases = {{"a column of blocks",
                  {{{12}}, {{3, 2}}},
                  {{"shape", ViewInts{3, 2}}, {"strides", ViewInts{4, 1}}, {"offset", Extent{1}}}}},
       .errors = {{"beyond the end",
                   {{{12}}, {{4, 3}}},
                   {{"shape", ViewInts{4, 3}}, {"strides", ViewInts{4, 1}}},
                   "places 0 to 14 of 12 elements"},
                  {"another shape",
                   {{{12}}, {{3, 4}}},
                   {{"shape", ViewInts{4, 3}}, {"strides", ViewInts{3, 1}}},
                   "values are not [4, 3]"}},
       .apply =
           [](const Arguments& a) {
             return Tensors{weft::as_strided_scatter(a.input(0), a.input(1), a.shape("shape"), a.integers("strides"),
                                                     a.integer("offset"))};
           }},
  };
  return rows;
}

}  // namespace

OpRows view_scatter_rows() {
  OpRows list;
  for (const OpRow& row : rows_of_view_scatters()) list.push_back(&row);
  return list;
}

}  // namespace graph

}  // namespace weft
