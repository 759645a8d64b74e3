// Elements by index along an axis: gathers, and scatters that replace, add or reduce.
#include "weft/ops/indexing.hpp"

#include <fmt/format.h>

#include "graph/axes.hpp"
#include "graph/describe.hpp"
#include "graph/no_grad.hpp"
#include "graph/op.hpp"
#include "graph/op_families.hpp"
#include "graph/ops/index_rows.hpp"
#include "graph/ops/indexing.hpp"
#include "graph/scatter.hpp"
#include "weft/ops/layout.hpp"
#include "weft/ops/order.hpp"

namespace weft {

namespace graph {

Tensor added_along(const Tensor& indices, const Tensor& updates, int axis, Extent extent) {
  return graph::wrap(graph::scatter_add_along(indices.node(), updates.node(), axis, extent));
}

Tensor last_positions(const Tensor& indices, int axis, Extent extent) {
  const graph::NodeRef at = graph::index_type(indices.node());
  return Tensor(graph::call_nodes(graph::last_along_row(), {Tensor(at)}, {axis, extent})[0]) - 1.0;
}

}  // namespace graph

using graph::added_along;
using graph::are_bools;
using graph::check_indexed;
using graph::describe;
using graph::last_positions;
using graph::NamedOperands;

namespace {

/// Indices and updates with the extents of x but along the axis: padded with places that nothing is written to.
struct Aligned {
  int axis;
  Tensor indices, updates;
};

Aligned aligned(std::string_view op, const Tensor& x, int axis, const Tensor& indices, const Tensor& updates,
                Where where) {
  const NamedOperands operands = {{"x", x}, {"indices", indices}, {"updates", updates}};
  check_indexed(op, operands, where);
  const int a = graph::normalized_axis(op, x, axis, where);
  if (x.dtype() != updates.dtype())
    throw DTypeError(describe(op, "the dtypes of x and updates differ; cast one", operands, where));
  bool fits = indices.rank() == x.rank() && updates.rank() == x.rank();
  for (int d = 0; fits && d < x.rank(); ++d)
    fits = indices.dim(d) <= updates.dim(d) && (d == a || indices.dim(d) <= x.dim(d));
  if (!fits)
    throw ShapeError(
        describe(op, fmt::format("indices are longer than updates, or than x along an axis other than {}", axis),
                 operands, where));
  Tensor used = updates;
  std::vector<std::pair<Extent, Extent>> padding(static_cast<std::size_t>(x.rank()), {0, 0});
  for (int d = 0; d < x.rank(); ++d) {
    used = narrow(used, d, 0, indices.dim(d), where);
    if (d != a) padding[static_cast<std::size_t>(d)].second = x.dim(d) - indices.dim(d);
  }
  const Tensor index(graph::index_type(indices.node()));
  // As u32, -1 is the largest number, which is outside too.
  const Tensor marked = index.dtype() == DType::u32 ? cast(index, DType::i32) : index;
  return {a, weft::pad(marked, padding, PadMode::constant, -1, where), weft::pad(used, padding, where)};
}

Tensor written_along(const Tensor& x, const Aligned& s) {
  return Tensor(graph::call_nodes(graph::put_along_row(), {x, s.indices, s.updates}, {s.axis})[0]);
}

/// Products of the updates of each place: by doubling within the runs of equal indices.
Tensor products_along(const Aligned& s, Extent extent, Tensor& has_any) {
  const Extent n = s.indices.dim(s.axis);
  const auto [at, positions] = sort(s.indices, s.axis);
  Tensor product = take_along_axis(s.updates, positions, s.axis);
  for (Extent by = 1; by < n; by *= 2) {
    const Tensor same = eq(narrow(at, s.axis, by, n - by), narrow(at, s.axis, 0, n - by));
    const Tensor later = narrow(product, s.axis, by, n - by), earlier = narrow(product, s.axis, 0, n - by);
    product = concat({narrow(product, s.axis, 0, by), weft::where(same, later * earlier, later)}, s.axis);
  }
  const Tensor last = last_positions(at, s.axis, extent);
  has_any = last >= 0.0;
  return take_along_axis(product, last, s.axis);
}

/// The largest updates: in their own order the last one of a place is the largest.
Tensor largest_along(const Aligned& s, bool smallest, Extent extent, Tensor& has_any) {
  const bool negated = smallest && is_float(s.updates.dtype());  // so that a NaN comes last
  const auto [values, positions] = sort(negated ? -s.updates : s.updates, s.axis, smallest && !negated);
  const Tensor last = last_positions(take_along_axis(s.indices, positions, s.axis), s.axis, extent);
  has_any = last >= 0.0;
  const Tensor largest = take_along_axis(values, last, s.axis);
  return negated ? -largest : largest;
}

}  // namespace

Tensor gather(const Tensor& x, int axis, const Tensor& indices, Where where) {
  const NamedOperands operands = {{"x", x}, {"indices", indices}};
  check_indexed("gather", operands, where);
  const int a = graph::normalized_axis("gather", x, axis, where);
  bool fits = indices.rank() == x.rank();
  for (int d = 0; fits && d < x.rank(); ++d) fits = d == a || indices.dim(d) <= x.dim(d);
  if (!fits)
    throw ShapeError(describe("gather", fmt::format("indices are longer than x along an axis other than {}", axis),
                              operands, where));
  Tensor from = x;
  for (int d = 0; d < x.rank(); ++d)
    if (d != a) from = narrow(from, d, 0, indices.dim(d), where);
  return take_along_axis(from, indices, a, where);
}

Tensor scatter(const Tensor& x, int axis, const Tensor& indices, const Tensor& updates, Where where) {
  return written_along(x, aligned("scatter", x, axis, indices, updates, where));
}

Tensor scatter_add(const Tensor& x, int axis, const Tensor& indices, const Tensor& updates, Where where) {
  const Aligned s = aligned("scatter_add", x, axis, indices, updates, where);
  return x + added_along(s.indices, s.updates, s.axis, x.dim(s.axis));
}

Tensor scatter_reduce(const Tensor& x, int axis, const Tensor& indices, const Tensor& updates,
                      ScatterReduction reduction, bool include_self, Where where) {
  if (are_bools(x, updates))
    return cast(
        scatter_reduce(cast(x, DType::i32), axis, indices, cast(updates, DType::i32), reduction, include_self, where),
        DType::boolean);
  const Aligned s = aligned("scatter_reduce", x, axis, indices, updates, where);
  const Extent extent = x.dim(s.axis);
  Tensor has_any, reduced;
  switch (reduction) {
    case ScatterReduction::sum:
    case ScatterReduction::mean: {
      const bool is_mean = reduction == ScatterReduction::mean;
      if (is_mean && !is_float(x.dtype()))
        throw DTypeError(describe("scatter_reduce", "a mean takes floats; cast x and updates",
                                  {{"x", x}, {"updates", updates}}, where));
      reduced = added_along(s.indices, s.updates, s.axis, extent);
      if (include_self) reduced = reduced + x;
      if (include_self && !is_mean) return reduced;
      const Tensor count = added_along(s.indices, full(s.indices.shape(), 1, DType::i32, x.device()), s.axis, extent);
      has_any = count > 0.0;
      if (is_mean) reduced = reduced / cast(maximum(count + (include_self ? 1.0 : 0.0), 1.0), x.dtype());
      return weft::where(has_any, reduced, x);
    }
    case ScatterReduction::prod:
      reduced = products_along(s, extent, has_any);
      if (include_self) reduced = reduced * x;
      break;
    case ScatterReduction::amax:
      reduced = largest_along(s, false, extent, has_any);
      if (include_self) reduced = maximum(reduced, x);
      break;
    case ScatterReduction::amin:
      reduced = largest_along(s, true, extent, has_any);
      if (include_self) reduced = minimum(reduced, x);
      break;
  }
  return weft::where(has_any, reduced, x);
}

namespace graph {
namespace {

std::vector<OpCase> reductions_of_scatter() {
  std::vector<OpCase> cases;
  for (const char* how : {"sum", "prod", "mean", "amax", "amin"})
    for (const bool self : {true, false})
      cases.push_back({fmt::format("{}{}", how, self ? "" : " without x"),
                       {{{3, 5}}, index_noise({3, 8}, 4), {{3, 8}}},
                       {{"axis", Extent{1}}, {"reduction", std::string(how)}, {"include_self", self}}});
  cases.push_back({"integers",
                   {{{4, 3}, -9, 9, DType::i32}, index_noise({6, 2}, 3), {{6, 3}, -9, 9, DType::i32}},
                   {{"reduction", std::string("amin")}},
                   false});
  return cases;
}

const std::vector<OpRow>& rows_along_axis() {
  static const std::vector<OpRow> rows = {
      {.name = "gather",
       .family = "indexing",
       .inputs = {{"x"}, integers_input()},
       .attributes = {index_axis()},
       .doc = "Elements of x by index along an axis; indices may be shorter than x along the others.",
       .formula = "y[.., i, ..] = x[.., indices[.., i, ..], ..]",
       .torch = "torch.gather(x, axis, indices.long())",
       .cases = {{"shorter elsewhere", {{{3, 8}}, index_noise({2, 4}, 7)}, {{"axis", Extent{1}}}},
                 {"along axis 0", {{{4, 3, 2}}, index_noise({6, 3, 2}, 3)}}},
       .errors = {{"longer elsewhere",
                   {{{3, 8}}, index_noise({4, 4}, 7)},
                   {{"axis", Extent{1}}},
                   "indices are longer than x"},
                  {"floats", {{{3, 8}}, {{3, 8}}}, {}, "indices are not integers"}},
       .apply = [](const Arguments& a) { return Tensors{weft::gather(a.input(0), a.small("axis"), a.input(1))}; }},
      {.name = "scatter",
       .aliases = {"put_along_axis"},
       .family = "indexing",
       .inputs = {{"x"}, integers_input(), {"updates"}},
       .attributes = {index_axis()},
       .result = "that of x",
       .doc = "x with updates at their indices along an axis; of equal indices the last one counts.",
       .formula = "x[.., indices[.., i, ..], ..] = updates[.., i, ..]",
       .torch = "torch.scatter(x, axis, indices.long(), updates)",
       .numpy = "np.put_along_axis(x, indices, updates, axis)",
       .onnx = "ScatterElements",
       .cases = {{"rows", {{{2, 5}}, some_indices({2, 3}, {4, 0, 2, 1, 3, 0}), {{2, 3}}}, {{"axis", Extent{1}}}},
                 {"shorter elsewhere", {{{4, 3}}, some_indices({2, 2}, {3, 0, 1, 2}), {{3, 2}}}, {}, false},
                 {"integers",
                  {{{2, 5}, -9, 9, DType::i32}, some_indices({2, 2}, {4, 0, 1, 3}), {{2, 2}, -9, 9, DType::i32}},
                  {{"axis", Extent{1}}},
                  false}},
       .errors = {{"fewer updates",
                   {{{2, 5}}, index_noise({2, 3}, 4), {{2, 2}}},
                   {{"axis", Extent{1}}},
                   "indices are longer than updates"},
                  {"another dtype",
                   {{{2, 5}}, index_noise({2, 3}, 4), {{2, 3}, 0, 4, DType::i32}},
                   {{"axis", Extent{1}}},
                   "the dtypes of x and updates differ"}},
       .apply =
           [](const Arguments& a) {
             return Tensors{weft::scatter(a.input(0), a.small("axis"), a.input(1), a.input(2))};
           }},
      {.name = "scatter_reduce",
       .family = "indexing",
       .inputs = {{"x"}, integers_input(), {"updates"}},
       .attributes = {index_axis(), index_reduction(),
                      index_flag("include_self", true, "whether the value of x takes part")},
       .result = "that of x",
       .doc = "x with the updates of each place along an axis reduced: their sum, product, mean or an extreme.",
       .torch = "torch.scatter_reduce(x, axis, indices.long(), updates, reduction, include_self=include_self)",
       .cases = reductions_of_scatter(),
       .errors = {{"mean of integers",
                   {{{2, 5}, 0, 4, DType::i32}, index_noise({2, 3}, 4), {{2, 3}, 0, 4, DType::i32}},
                   {{"reduction", std::string("mean")}},
                   "a mean takes floats"}},
       .apply =
           [](const Arguments& a) {
             return Tensors{weft::scatter_reduce(a.input(0), a.small("axis"), a.input(1), a.input(2),
                                                 static_cast<ScatterReduction>(a.choice("reduction")),
                                                 a.boolean("include_self"))};
           }},
  };
  return rows;
}

}  // namespace

OpRows along_axis_rows() {
  OpRows list;
  for (const OpRow& row : rows_along_axis()) list.push_back(&row);
  return list;
}

}  // namespace graph

}  // namespace weft
