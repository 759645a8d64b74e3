// Diagonals, and matrices that have nothing else.
#include "weft/ops/layout.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "graph/axes.hpp"
#include "graph/describe.hpp"
#include "graph/op.hpp"
#include "graph/op_families.hpp"
#include "graph/ops/layout_attributes.hpp"

namespace weft {

using graph::describe;
using graph::with_value;

Tensor diagonal(const Tensor& x, Extent offset, int axis_a, int axis_b, Where where) {
  const auto axes = graph::normalized_axes("diagonal", with_value("diagonal", x), {axis_a, axis_b}, where);
  const int a = axes[0], b = axes[1];
  const Extent rows = x.dim(a), columns = x.dim(b);
  // The part of x that the diagonal begins in the corner of, as a square; its elements are a row and a column apart.
  const Extent row = std::min(offset < 0 ? -offset : 0, rows), column = std::min(offset > 0 ? offset : 0, columns);
  const Extent n = std::min(rows - row, columns - column);
  const Tensor square = narrow(narrow(movedim(x, {a, b}, {-2, -1}, where), -2, row, n, where), -1, column, n, where);
  return slice(flatten(square, -2, -1, where), -1, 0, kEnd, n + 1, where);
}

Tensor diag_embed(const Tensor& x, Extent offset, int axis_a, int axis_b, Where where) {
  with_value("diag_embed", x);
  if (x.rank() == 0) throw ShapeError(describe("diag_embed", "x is a scalar; it has no diagonal", {{"x", x}}, where));
  const auto shape_error = [&](const std::string& fact) {
    return ShapeError(describe("diag_embed", fact, {{"x", x}}, where));
  };
  const int rank = x.rank() + 1;
  const auto place = [&](int axis) {
    if (axis < -rank || axis >= rank)
      throw shape_error(fmt::format("axis {} of the result is outside of [{}, {})", axis, -rank, rank));
    return axis < 0 ? axis + rank : axis;
  };
  const int a = place(axis_a), b = place(axis_b);
  if (a == b) throw shape_error(fmt::format("axis {} is given twice", axis_b));
  const Extent size = offset < 0 ? -offset : offset, n = x.dim(-1) + size;
  // Element i is in row i, or with a negative offset in column i; elsewhere zeros.
  std::vector<std::pair<Extent, Extent>> padding(static_cast<std::size_t>(x.rank()), {0, 0});
  padding.back() = {0, size};
  Shape square = x.shape();
  square[x.rank() - 1] = n;
  square.push_back(n);
  const Tensor elements = expand(unsqueeze(weft::pad(x, padding, where), offset < 0 ? -2 : -1, where), square, where);
  const Tensor row(graph::iota(square, rank - 2, DType::i32, x.device())),
      column(graph::iota(square, rank - 1, DType::i32, x.device()));
  const Tensor matrix =
      weft::where(eq(column, row + static_cast<double>(offset)), elements, full({}, 0, x.dtype(), x.device()));
  return movedim(matrix, {-2, -1}, {a, b}, where);
}

Tensor diag(const Tensor& x, Extent offset, Where where) {
  with_value("diag", x);
  if (x.rank() == 1) return diag_embed(x, offset, -2, -1, where);
  if (x.rank() == 2) return diagonal(x, offset, 0, 1, where);
  throw ShapeError(describe("diag", "x is neither [n] nor a matrix", {{"x", x}}, where));
}

Tensor diagflat(const Tensor& x, Extent offset, Where where) {
  return diag_embed(reshape(with_value("diagflat", x), {x.numel()}, where), offset, -2, -1, where);
}

namespace graph {
namespace {

std::vector<AttributeSpec> diagonal_attributes(Extent axis_a, Extent axis_b) {
  return {whole_attribute("offset", "columns to the right of the main diagonal", 0, {"k"}),
          whole_attribute("axis_a", "axis of the rows", axis_a, {"dim1", "axis1"}),
          whole_attribute("axis_b", "axis of the columns", axis_b, {"dim2", "axis2"})};
}

const std::vector<OpRow>& rows_of_diagonals() {
  static const std::vector<OpRow> rows = {
      {.name = "diagonal",
       .family = "layout",
       .inputs = {{"x"}},
       .attributes = diagonal_attributes(0, 1),
       .doc = "The diagonal of two axes, as the last axis.",
       .formula = "y_..i = x_..i..(i + offset)..",
       .torch = "torch.diagonal(x, offset, axis_a, axis_b)",
       .numpy = "np.diagonal(x, offset, axis_a, axis_b)",
       .cases = {{"a matrix", {{{6, 7}}}},
                 {"above, of the last axes",
                  {{{2, 5, 4}}},
                  {{"offset", Extent{1}}, {"axis_a", Extent{-2}}, {"axis_b", Extent{-1}}}},
                 {"below", {{{6, 4, 3}}}, {{"offset", Extent{-2}}, {"axis_b", Extent{2}}}},
                 {"outside", {{{3, 4}}}, {{"offset", Extent{4}}}}},
       .errors = {{"one axis", {{{6}}}, {}, "axis 1 is outside of"},
                  {"an axis twice", {{{6, 7}}}, {{"axis_b", Extent{0}}}, "axis 0 is given twice"}},
       .apply =
           [](const Arguments& a) {
             return Tensors{weft::diagonal(a.input(0), a.integer("offset"), a.small("axis_a"), a.small("axis_b"))};
           }},
      {.name = "diag_embed",
       .family = "layout",
       .inputs = {{"x"}},
       .attributes = diagonal_attributes(-2, -1),
       .doc = "The last axis as the diagonal of two new axes, zeros elsewhere.",
       .torch = "torch.diag_embed(x, offset, axis_a, axis_b)",
       .cases = {{"rows", {{{3, 4}}}},
                 {"above, other axes",
                  {{{3, 4}}},
                  {{"offset", Extent{2}}, {"axis_a", Extent{0}}, {"axis_b", Extent{2}}}},
                 {"below", {{{3, 4}}}, {{"offset", Extent{-1}}}}},
       .errors = {{"scalar", {{{}}}, {}, "x is a scalar"},
                  {"an axis twice", {{{6}}}, {{"axis_a", Extent{1}}}, "axis -1 is given twice"}},
       .apply =
           [](const Arguments& a) {
             return Tensors{weft::diag_embed(a.input(0), a.integer("offset"), a.small("axis_a"), a.small("axis_b"))};
           }},
      {.name = "diag",
       .family = "layout",
       .inputs = {{"x"}},
       .attributes = {whole_attribute("offset", "columns to the right of the main diagonal", 0, {"k", "diagonal"})},
       .doc = "The diagonal of a matrix, or the matrix with that diagonal.",
       .torch = "torch.diag(x, offset)",
       .numpy = "np.diag(x, offset)",
       .cases = {{"of a matrix", {{{6, 7}}}, {{"offset", Extent{2}}}},
                 {"to a matrix", {{{5}}}, {{"offset", Extent{-1}}}}},
       .errors = {{"three axes", {{{2, 3, 4}}}, {}, "x is neither [n] nor a matrix"}},
       .apply = [](const Arguments& a) { return Tensors{weft::diag(a.input(0), a.integer("offset"))}; }},
      {.name = "diagflat",
       .family = "layout",
       .inputs = {{"x"}},
       .attributes = {whole_attribute("offset", "columns to the right of the main diagonal", 0, {"k"})},
       .doc = "The matrix with the elements of x, row by row, on a diagonal.",
       .torch = "torch.diagflat(x, offset)",
       .numpy = "np.diagflat(x, offset)",
       .cases = {{"a matrix", {{{2, 3}}}, {{"offset", Extent{1}}}}, {"a scalar", {{{}}}, {{"offset", Extent{-2}}}}},
       .apply = [](const Arguments& a) { return Tensors{weft::diagflat(a.input(0), a.integer("offset"))}; }},
  };
  return rows;
}

}  // namespace

OpRows diagonal_rows() {
  OpRows list;
  for (const OpRow& row : rows_of_diagonals()) list.push_back(&row);
  return list;
}

}  // namespace graph

}  // namespace weft
