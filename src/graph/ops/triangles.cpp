// Triangles of matrices, and the positions of their elements.
#include <fmt/format.h>

#include <algorithm>

#include "graph/axes.hpp"
#include "graph/describe.hpp"
#include "graph/op.hpp"
#include "graph/op_families.hpp"
#include "graph/ops/layout_attributes.hpp"
#include "graph/ops/runs.hpp"
#include "weft/ops/making.hpp"

namespace weft {

using graph::describe;
using graph::with_value;

namespace {

Tensor triangle(const Tensor& x, int diagonal, bool lower, std::string_view op, Where where) {
  with_value(op, x);
  if (x.rank() < 2) throw ShapeError(describe(op, "needs two axes", {{"x", x}}, where));
  const Extent m = x.dim(-2), n = x.dim(-1);
  const Tensor row(graph::iota({m, n}, 0, DType::i32, x.device())),
      column(graph::iota({m, n}, 1, DType::i32, x.device()));
  const Tensor edge = row + static_cast<double>(diagonal);
  const Tensor inside = lower ? column <= edge : column >= edge;
  if (x.dtype() == DType::boolean) return elementwise("logical_and", {inside, x}, {}, where);
  return elementwise("where", {inside, x, scalar_like(0, x)}, {}, where);
}

/// Rows, and then columns, of the elements of a triangle: those above or below a diagonal, with it.
Tensor positions_of_triangle(std::string_view op, bool is_upper, Extent rows, Extent columns, Extent offset,
                             Device device) {
  if (rows < 0 || columns < 0) throw ShapeError(fmt::format("{}: {} rows and {} columns", op, rows, columns));
  const auto within = [&](Extent column) { return std::clamp<Extent>(column, 0, columns); };
  Extent total = 0;
  for (Extent i = 0; i < rows; ++i) total += is_upper ? columns - within(i + offset) : within(i + offset + 1);
  const double shift = static_cast<double>(std::clamp(offset, -rows, columns));
  const Tensor edge =
      clamp(arange(rows, DType::i32, device) + (is_upper ? shift : shift + 1), 0, static_cast<double>(columns));
  const Tensor first = is_upper ? edge : zeros({rows}, DType::i32, device);
  const Tensor counts = is_upper ? static_cast<double>(columns) - edge : edge;
  const graph::RunNumbers found = graph::numbers_of_runs(first, counts, total, Where::current());
  return stack({found.run, found.number}, 0);
}

}  // namespace

Tensor tril(const Tensor& x, int diagonal, Where where) { return triangle(x, diagonal, true, "tril", where); }

Tensor triu(const Tensor& x, int diagonal, Where where) { return triangle(x, diagonal, false, "triu", where); }

Tensor tril_indices(Extent rows, Extent columns, Extent offset, Device device) {
  return positions_of_triangle("tril_indices", false, rows, columns, offset, device);
}

Tensor triu_indices(Extent rows, Extent columns, Extent offset, Device device) {
  return positions_of_triangle("triu_indices", true, rows, columns, offset, device);
}

namespace graph {
namespace {

OpRow triangle_indices_row(std::string name, std::string which, Tensor (*function)(Extent, Extent, Extent, Device)) {
  const std::string torch = fmt::format("torch.{}(rows, columns, offset)", name);
  return {.name = name,
          .family = "making",
          .attributes = {whole_attribute("rows", "rows"),
                         whole_attribute("columns", "columns"),
                         {.name = "offset",
                          .type = AttributeType::integer,
                          .default_value = Extent{0},
                          .doc = "columns by which the edge of the triangle is moved to the right",
                          .aliases = {"k"}}},
          .result = "i32",
          .differentiable = false,
          .doc = fmt::format("Rows and columns of the elements of the {} triangle, row by row: [2, elements].", which),
          .torch = torch,
          .cases = {{"square", {}, {{"rows", Extent{4}}, {"columns", Extent{4}}}},
                    {"moved", {}, {{"rows", Extent{3}}, {"columns", Extent{6}}, {"offset", Extent{2}}}},
                    {"moved to the left", {}, {{"rows", Extent{6}}, {"columns", Extent{3}}, {"offset", Extent{-3}}}},
                    {"nothing", {}, {{"rows", Extent{0}}, {"columns", Extent{3}}}}},
          .errors = {{"negative", {}, {{"rows", Extent{-1}}, {"columns", Extent{3}}}, "-1 rows and 3 columns"}},
          .apply = [function](const Arguments& a) {
            return Tensors{function(a.integer("rows"), a.integer("columns"), a.integer("offset"), default_device())};
          }};
}

/// The row of tril or triu, which `function` calls.
OpRow triangle_row(const std::string& name, std::string_view side, OpCase shifted,
                   Tensor (*function)(const Tensor&, int)) {
  return {.name = name,
          .family = "view",
          .inputs = {{"x"}},
          .attributes = {{.name = "diagonal",
                          .type = AttributeType::integer,
                          .default_value = Extent{0},
                          .doc = "shifts the edge to the right",
                          .aliases = {"k"}}},
          .doc = fmt::format("The {} triangle of the last two axes, zeros elsewhere.", side),
          .torch = fmt::format("x.{}(diagonal)", name),
          .cases = {std::move(shifted), {"bools", {{{4, 5}, 0, 1, DType::boolean}}, {}, false}},
          .errors = {{"one axis", {{{6}}}, {}, "needs two axes"}},
          .apply = [function](const Arguments& a) { return Tensors{function(a.input(0), a.small("diagonal"))}; }};
}

const std::vector<OpRow>& rows_of_triangles() {
  static const std::vector<OpRow> rows = {
      triangle_row("tril", "lower", {"below the diagonal", {{{2, 6, 7}}}, {{"diagonal", Extent{-1}}}},
                   [](const Tensor& x, int diagonal) { return tril(x, diagonal); }),
      triangle_row("triu", "upper", {"above the diagonal", {{{2, 6, 7}}}, {{"diagonal", Extent{1}}}},
                   [](const Tensor& x, int diagonal) { return triu(x, diagonal); }),
      triangle_indices_row("tril_indices", "lower", weft::tril_indices),
      triangle_indices_row("triu_indices", "upper", weft::triu_indices),
  };
  return rows;
}

}  // namespace

OpRows triangle_rows() {
  OpRows list;
  for (const OpRow& row : rows_of_triangles()) list.push_back(&row);
  return list;
}

}  // namespace graph

}  // namespace weft
