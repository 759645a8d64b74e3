// Slices by index along an axis: chosen, added, reduced, replaced.
#include "weft/ops/indexing.hpp"

#include <fmt/format.h>

#include "graph/axes.hpp"
#include "graph/describe.hpp"
#include "graph/op.hpp"
#include "graph/op_families.hpp"
#include "graph/ops/index_rows.hpp"
#include "graph/ops/indexing.hpp"
#include "weft/ops/layout.hpp"

namespace weft {

using graph::added_slices;
using graph::are_bools;
using graph::check_indexed;
using graph::describe;
using graph::NamedOperands;
using graph::replaced_slices;

namespace {

/// `indices` [n] of slices along an axis, checked with the other operands.
int checked_slices(std::string_view op, const Tensor& x, int axis, const NamedOperands& operands, Where where) {
  check_indexed(op, operands, where);
  const int a = graph::normalized_axis(op, x, axis, where);
  const Tensor& indices = operands[1].second;
  if (indices.rank() != 1) throw ShapeError(describe(op, "indices are not [n]", operands, where));
  if (operands.size() < 3) return a;
  const Tensor& source = operands[2].second;
  bool fits = source.rank() == x.rank();
  for (int d = 0; fits && d < x.rank(); ++d) fits = source.dim(d) == (d == a ? indices.dim(0) : x.dim(d));
  if (!fits)
    throw ShapeError(describe(op, "source does not have one slice of x's shape for each index", operands, where));
  if (source.dtype() != x.dtype())
    throw DTypeError(describe(op, "the dtypes of x and source differ; cast one", operands, where));
  return a;
}

/// v [n] along the axis of a tensor of this rank.
Tensor vector_along(const Tensor& v, int axis, int rank) {
  Shape shape(std::vector<Extent>(static_cast<std::size_t>(rank), 1));
  shape[axis] = v.numel();
  return reshape(v, shape);
}

Tensor slices_at(const Tensor& x, int axis, const Tensor& indices) {
  Shape shape = x.shape();
  shape[axis] = indices.dim(0);
  return take_along_axis(x, expand(vector_along(indices, axis, x.rank()), shape), axis);
}

}  // namespace

Tensor index_select(const Tensor& x, int axis, const Tensor& indices, Where where) {
  return slices_at(x, checked_slices("index_select", x, axis, {{"x", x}, {"indices", indices}}, where), indices);
}

Tensor index_add(const Tensor& x, int axis, const Tensor& indices, const Tensor& source, double scale, Where where) {
  if (are_bools(x, source))
    return cast(index_add(cast(x, DType::i32), axis, indices, cast(source, DType::i32), scale, where), DType::boolean);
  const int a = checked_slices("index_add", x, axis, {{"x", x}, {"indices", indices}, {"source", source}}, where);
  const Tensor sums = added_slices(x, a, indices, source);
  return x + (scale == 1 ? sums : sums * scale);
}

Tensor index_reduce(const Tensor& x, int axis, const Tensor& indices, const Tensor& source, ScatterReduction reduction,
                    bool include_self, Where where) {
  const int a = checked_slices("index_reduce", x, axis, {{"x", x}, {"indices", indices}, {"source", source}}, where);
  if (reduction == ScatterReduction::mean && !is_float(x.dtype()))
    throw DTypeError(
        describe("index_reduce", "a mean takes floats; cast x and source", {{"x", x}, {"source", source}}, where));
  const Tensor at = expand(vector_along(indices, a, x.rank()), source.shape(), where);
  return scatter_reduce(x, a, at, source, reduction, include_self, where);
}

Tensor index_copy(const Tensor& x, int axis, const Tensor& indices, const Tensor& source, Where where) {
  const int a = checked_slices("index_copy", x, axis, {{"x", x}, {"indices", indices}, {"source", source}}, where);
  return replaced_slices(x, a, indices, source);
}

Tensor index_fill(const Tensor& x, int axis, const Tensor& indices, double value, Where where) {
  const int a = checked_slices("index_fill", x, axis, {{"x", x}, {"indices", indices}}, where);
  const Tensor count = weft::scatter_add(indices, ones({indices.dim(0)}, DType::i32, x.device()), x.dim(a), where);
  return weft::where(vector_along(count > 0.0, a, x.rank()), full({}, value, x.dtype(), x.device()), x);
}

namespace graph {

Tensor added_slices(const Tensor& x, int axis, const Tensor& indices, const Tensor& source) {
  if (axis == 0) return weft::scatter_add(indices, source, x.dim(0));
  return added_along(expand(vector_along(indices, axis, x.rank()), source.shape()), source, axis, x.dim(axis));
}

Tensor replaced_slices(const Tensor& x, int axis, const Tensor& indices, const Tensor& source) {
  const Tensor from = last_positions(indices, 0, x.dim(axis));
  return weft::where(vector_along(from >= 0.0, axis, x.rank()), slices_at(source, axis, from), x);
}

namespace {

std::vector<OpCase> reductions_of_indices() {
  std::vector<OpCase> cases;
  for (const char* how : {"prod", "mean", "amax", "amin"})
    for (const bool self : {true, false})
      cases.push_back({fmt::format("{}{}", how, self ? "" : " without x"),
                       {{{5, 3}}, some_indices({4}, {4, 0, 4, 1}), {{4, 3}}},
                       {{"reduction", std::string(how)}, {"include_self", self}}});
  cases.push_back({"columns",
                   {{{3, 5}}, some_indices({2}, {4, 4}), {{3, 2}}},
                   {{"axis", Extent{1}}, {"reduction", std::string("prod")}}});
  return cases;
}

const std::vector<OpRow>& rows_of_index_slices() {
  static const std::vector<OpRow> rows = {
      {.name = "index_select",
       .family = "indexing",
       .inputs = {{"x"}, integers_input()},
       .attributes = {index_axis()},
       .doc = "The slices of x at indices [n] along an axis.",
       .torch = "torch.index_select(x, axis, indices.long())",
       .numpy = "np.take(x, indices, axis)",
       .onnx = "Gather",
       .cases = {{"columns", {{{3, 8}}, some_indices({4}, {7, 0, 0, 3})}, {{"axis", Extent{1}}}},
                 {"rows", {{{5, 3}}, some_indices({2}, {4, 1})}}},
       .errors = {{"indices of two axes", {{{3, 8}}, index_noise({2, 2}, 2)}, {}, "indices are not [n]"}},
       .apply =
           [](const Arguments& a) { return Tensors{weft::index_select(a.input(0), a.small("axis"), a.input(1))}; }},
      {.name = "index_add",
       .family = "indexing",
       .inputs = {{"x"}, integers_input(), {"source"}},
       .attributes = {index_axis(),
                      {.name = "scale", .default_value = 1.0, .doc = "of what is added", .aliases = {"alpha"}}},
       .result = "that of x",
       .doc = "x with slices of source added at indices [n] along an axis.",
       .torch = "torch.index_add(x, axis, indices.long(), source, alpha=scale)",
       .cases = {{"columns",
                  {{{3, 8}}, some_indices({4}, {7, 0, 0, 3}), {{3, 4}}},
                  {{"axis", Extent{1}}, {"scale", -2.0}}},
                 {"rows", {{{5, 3}}, some_indices({2}, {4, 4}), {{2, 3}}}}},
       .errors = {{"another number of slices",
                   {{{5, 3}}, index_noise({2}, 4), {{3, 3}}},
                   {},
                   "source does not have one slice"}},
       .apply =
           [](const Arguments& a) {
             return Tensors{weft::index_add(a.input(0), a.small("axis"), a.input(1), a.input(2), a.number("scale"))};
           }},
      {.name = "index_reduce",
       .family = "indexing",
       .inputs = {{"x"}, integers_input(), {"source"}},
       .attributes = {index_axis(), index_reduction(),
                      index_flag("include_self", true, "whether the value of x takes part")},
       .result = "that of x",
       .doc = "x with slices of source reduced at indices [n] along an axis: their sum, product, mean or an extreme.",
       .torch = "torch.index_reduce(x, axis, indices.long(), source, reduction, include_self=include_self)",
       .cases = reductions_of_indices(),
       .errors = {{"mean of integers",
                   {{{5, 3}, 0, 4, DType::i32}, index_noise({2}, 4), {{2, 3}, 0, 4, DType::i32}},
                   {{"reduction", std::string("mean")}},
                   "a mean takes floats"},
                  {"another number of slices",
                   {{{5, 3}}, index_noise({2}, 4), {{3, 3}}},
                   {},
                   "source does not have one slice"}},
       .apply =
           [](const Arguments& a) {
             return Tensors{weft::index_reduce(a.input(0), a.small("axis"), a.input(1), a.input(2),
                                               static_cast<ScatterReduction>(a.choice("reduction")),
                                               a.boolean("include_self"))};
           }},
      {.name = "index_copy",
       .family = "indexing",
       .inputs = {{"x"}, integers_input(), {"source"}},
       .attributes = {index_axis()},
       .result = "that of x",
       .doc = "x with slices of source at indices [n] along an axis; of equal indices the last one counts.",
       .torch = "torch.index_copy(x, axis, indices.long(), source)",
       .cases = {{"columns", {{{3, 8}}, some_indices({4}, {7, 0, 2, 3}), {{3, 4}}}, {{"axis", Extent{1}}}},
                 {"rows", {{{5, 3}}, some_indices({2}, {4, 1}), {{2, 3}}}}},
       .errors = {{"another dtype",
                   {{{5, 3}}, index_noise({2}, 4), {{2, 3}, 0, 4, DType::i32}},
                   {},
                   "the dtypes of x and source differ"}},
       .apply =
           [](const Arguments& a) {
             return Tensors{weft::index_copy(a.input(0), a.small("axis"), a.input(1), a.input(2))};
           }},
      {.name = "index_fill",
       .family = "indexing",
       .inputs = {{"x"}, integers_input()},
       .attributes = {index_axis(), {.name = "value", .default_value = 0.0, .doc = "of the elements"}},
       .result = "that of x",
       .doc = "x with a value in the slices at indices [n] along an axis.",
       .torch = "torch.index_fill(x, axis, indices.long(), value)",
       .cases = {{"columns", {{{3, 8}}, some_indices({3}, {7, 0, 0})}, {{"axis", Extent{1}}, {"value", 1.5}}}},
       .errors = {{"indices of two axes", {{{3, 8}}, index_noise({2, 2}, 2)}, {}, "indices are not [n]"}},
       .apply =
           [](const Arguments& a) {
             return Tensors{weft::index_fill(a.input(0), a.small("axis"), a.input(1), a.number("value"))};
           }},
  };
  return rows;
}

}  // namespace

OpRows index_slice_rows() {
  OpRows list;
  for (const OpRow& row : rows_of_index_slices()) list.push_back(&row);
  return list;
}

}  // namespace graph

}  // namespace weft
