// Elements by index: scatters that replace and reduce, slices by index, masks.
#include "weft/ops/indexing.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "graph/axes.hpp"
#include "graph/describe.hpp"
#include "graph/no_grad.hpp"
#include "graph/op.hpp"
#include "graph/op_families.hpp"
#include "graph/scatter.hpp"
#include "weft/ops/layout.hpp"
#include "weft/ops/order.hpp"

namespace weft {

using graph::describe;

namespace {

using NamedOperands = std::vector<std::pair<std::string, Tensor>>;

/// Errors of values that are missing, indices that are not integers, and devices that differ.
void check_indexed(std::string_view op, const NamedOperands& operands, Where where) {
  for (const auto& [name, tensor] : operands) {
    if (!tensor.defined()) throw UsageError(fmt::format("{}: {} has no value", op, name));
    if (name == "indices" && !is_integer(tensor.dtype()))
      throw DTypeError(describe(op, "indices are not integers; cast them", operands, where));
    if (tensor.device() != operands[0].second.device())
      throw DeviceError(describe(op, "operands on different devices; move one with .to(device)", operands, where));
  }
}

Tensor added_along(const Tensor& indices, const Tensor& updates, int axis, Extent extent) {
  return graph::wrap(graph::scatter_add_along(indices.node(), updates.node(), axis, extent));
}

/// For each place along the axis the last t with indices[.., t, ..] = place, or -1.
Tensor last_positions(const Tensor& indices, int axis, Extent extent) {
  const graph::NodeRef at = graph::index_type(indices.node());
  return Tensor(graph::call_nodes(graph::last_along_row(), {Tensor(at)}, {axis, extent})[0]) - 1.0;
}

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

Tensor added_slices(const Tensor& x, int axis, const Tensor& indices, const Tensor& source) {
  if (axis == 0) return weft::scatter_add(indices, source, x.dim(0));
  return added_along(expand(vector_along(indices, axis, x.rank()), source.shape()), source, axis, x.dim(axis));
}

Tensor replaced_slices(const Tensor& x, int axis, const Tensor& indices, const Tensor& source) {
  const Tensor from = last_positions(indices, 0, x.dim(axis));
  return weft::where(vector_along(from >= 0.0, axis, x.rank()), slices_at(source, axis, from), x);
}

/// Bools are added up and multiplied as i32, and are true where the result is not 0.
bool are_bools(const Tensor& x, const Tensor& y) {
  return x.defined() && y.defined() && x.dtype() == DType::boolean && y.dtype() == DType::boolean;
}

/// Negative indices counted from the end of n elements.
Tensor from_the_end(const Tensor& indices, Extent n) {
  // Before i64 becomes u32, in which negative numbers are outside.
  const Tensor at = indices.dtype() == DType::i64 ? indices : Tensor(graph::index_type(indices.node()));
  if (at.dtype() == DType::u32) return at;
  return Tensor(graph::index_type(weft::where(at < 0.0, at + static_cast<double>(n), at).node()));
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

Tensor index_put(const Tensor& x, const std::vector<Tensor>& indices, const Tensor& values, bool accumulate,
                 Where where) {
  if (accumulate && are_bools(x, values))
    return cast(index_put(cast(x, DType::i32), indices, cast(values, DType::i32), true, where), DType::boolean);
  NamedOperands operands = {{"x", x}, {"values", values}};
  for (const Tensor& each : indices) operands.emplace_back("indices", each);
  check_indexed("index_put", operands, where);
  const auto fail = [&](const std::string& fact) { return ShapeError(describe("index_put", fact, operands, where)); };
  const auto k = static_cast<int>(indices.size());
  if (k == 0 || k > x.rank()) throw fail(fmt::format("{} indices for {} axes", k, x.rank()));
  if (values.dtype() != x.dtype())
    throw DTypeError(describe("index_put", "the dtypes of x and values differ; cast one", operands, where));
  Shape places = indices[0].shape();
  for (const Tensor& each : indices)
    if (!graph::broadcast_shapes(Shape(places), each.shape(), places)) throw fail("the indices do not broadcast");
  Extent count = 1;
  Tensor place, inside;
  for (int d = 0; d < k; ++d) {
    const double n = static_cast<double>(x.dim(d));
    const Tensor at = cast(from_the_end(indices[static_cast<std::size_t>(d)], x.dim(d)), DType::i32);
    const Tensor is_inside = (at >= 0.0) & (at < n);
    place = d == 0 ? at : place * n + at;
    inside = d == 0 ? is_inside : inside & is_inside;
    count *= x.dim(d);
  }
  std::vector<Extent> wanted = places.vector();
  wanted.insert(wanted.end(), x.shape().begin() + k, x.shape().end());
  Shape joined;
  if (!graph::broadcast_shapes(values.shape(), Shape(wanted), joined) || joined != Shape(wanted))
    throw fail(fmt::format("values do not broadcast to {}", Shape(wanted).to_string()));
  const Extent each = Shape(std::vector<Extent>(x.shape().begin() + k, x.shape().end())).numel();
  const Tensor flat = reshape(x, {count, each}, where);
  const Tensor at =
      reshape(expand(weft::where(inside, place, scalar_like(-1, place)), places, where), {places.numel()});
  const Tensor rows = reshape(expand(values, Shape(wanted), where), {places.numel(), each}, where);
  return reshape(accumulate ? flat + added_slices(flat, 0, at, rows) : replaced_slices(flat, 0, at, rows), x.shape());
}

Tensor take(const Tensor& x, const Tensor& indices, Where where) {
  check_indexed("take", {{"x", x}, {"indices", indices}}, where);
  const Tensor at = reshape(from_the_end(indices, x.numel()), {indices.numel()}, where);
  return reshape(take_along_axis(reshape(x, {x.numel()}, where), at, 0, where), indices.shape(), where);
}
Tensor put(const Tensor& x, const Tensor& indices, const Tensor& values, bool accumulate, Where where) {
  check_indexed("put", {{"x", x}, {"indices", indices}, {"values", values}}, where);
  if (values.numel() != indices.numel())
    throw ShapeError(describe("put", fmt::format("{} values for {} indices", values.numel(), indices.numel()),
                              {{"x", x}, {"indices", indices}, {"values", values}}, where));
  const Tensor flat = reshape(x, {x.numel()}, where), each = reshape(values, {values.numel()}, where);
  return reshape(index_put(flat, {reshape(indices, {indices.numel()}, where)}, each, accumulate, where), x.shape());
}

Tensor masked_fill(const Tensor& x, const Tensor& mask, double value, Where where) {
  if (!x.defined() || !mask.defined()) throw UsageError("masked_fill: an operand has no value");
  if (mask.dtype() != DType::boolean)
    throw DTypeError(describe("masked_fill", "the mask is not bool; compare it", {{"x", x}, {"mask", mask}}, where));
  return weft::where(expand(mask, x.shape(), where), full({}, value, x.dtype(), x.device()), x, where);
}

Tensor masked_scatter(const Tensor& x, const Tensor& mask, const Tensor& source, Where where) {
  const NamedOperands operands = {{"x", x}, {"mask", mask}, {"source", source}};
  check_indexed("masked_scatter", operands, where);
  if (mask.dtype() != DType::boolean)
    throw DTypeError(describe("masked_scatter", "the mask is not bool; compare it", operands, where));
  if (source.dtype() != x.dtype())
    throw DTypeError(describe("masked_scatter", "the dtypes of x and source differ; cast one", operands, where));
  const Tensor chosen = reshape(expand(mask, x.shape(), where), {x.numel()}, where);
  const Tensor place = cumsum(chosen, 0, /*exclusive=*/true);
  const Tensor next = take_along_axis(reshape(source, {source.numel()}, where), place, 0, where);
  return reshape(weft::where(chosen, next, reshape(x, {x.numel()}, where)), x.shape(), where);
}

namespace graph {
namespace {

AttributeSpec index_axis() {
  return {.name = "axis",
          .type = AttributeType::integer,
          .default_value = Extent{0},
          .doc = "axis that the indices count",
          .aliases = {"dim"}};
}
AttributeSpec index_flag(std::string name, bool fallback, std::string doc) {
  return {.name = std::move(name), .type = AttributeType::boolean, .default_value = fallback, .doc = std::move(doc)};
}
InputSpec integers_input() { return {"indices", ops::DTypes::integers}; }
CaseInput some_indices(Shape shape, std::vector<double> values) {
  return {.shape = std::move(shape), .type = DType::i32, .values = std::move(values)};
}
CaseInput index_noise(Shape shape, double most) { return {std::move(shape), 0, most, DType::i32}; }

AttributeSpec index_reduction() {
  return {.name = "reduction",
          .type = AttributeType::choice,
          .default_value = std::string("sum"),
          .doc = "how the updates of a place are combined",
          .aliases = {"reduce"},
          .choices = {"sum", "prod", "mean", "amax", "amin"}};
}

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

const std::vector<OpRow>& rows_of_indexing() {
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
      {.name = "index_put",
       .family = "indexing",
       .inputs = {{"x"}, {"values"}, {.name = "indices", .dtypes = ops::DTypes::integers, .repeated = true}},
       .attributes = {index_flag("accumulate", false, "adds instead of replacing")},
       .result = "that of x",
       .doc = "x with values at x[indices[0], indices[1], ..].",
       .torch = "torch.index_put(x, tuple(i.long() for i in indices), values, accumulate)",
       .onnx = "ScatterND",
       .cases = {{"elements", {{{4, 5}}, {{3}}, some_indices({3}, {0, -1, 2}), some_indices({3}, {4, 0, -2})}},
                 {"rows, added",
                  {{{4, 5}}, {{2, 3, 5}}, some_indices({2, 3}, {0, 1, 1, -1, 3, 0})},
                  {{"accumulate", true}}},
                 {"broadcast", {{{4, 5, 2}}, {{2}}, some_indices({2, 1}, {0, 3}), some_indices({3}, {4, 0, 2})}}},
       .errors =
           {{"too many indices", {{{4}}, {{3}}, index_noise({3}, 3), index_noise({3}, 3)}, {}, "2 indices for 1 axes"},
            {"values of another shape",
             {{{4, 5}}, {{3}}, index_noise({2}, 3)},
             {},
             "values do not broadcast to [2, 5]"}},
       .apply =
           [](const Arguments& a) {
             return Tensors{weft::index_put(a.input(0), {a.inputs().begin() + 2, a.inputs().end()}, a.input(1),
                                            a.boolean("accumulate"))};
           }},
      {.name = "take",
       .family = "indexing",
       .inputs = {{"x"}, integers_input()},
       .doc = "Elements of the flat x by index.",
       .torch = "torch.take(x, indices.long())",
       .numpy = "np.take(x, indices)",
       .cases = {{"from both ends", {{{3, 8}}, some_indices({2, 2}, {7, -1, 0, 23})}}},
       .errors = {{"floats", {{{3, 8}}, {{2}}}, {}, "indices are not integers"}},
       .apply = [](const Arguments& a) { return Tensors{weft::take(a.input(0), a.input(1))}; }},
      {.name = "put",
       .family = "indexing",
       .inputs = {{"x"}, integers_input(), {"values"}},
       .attributes = {index_flag("accumulate", false, "adds instead of replacing")},
       .result = "that of x",
       .doc = "x with values at places of the flat x.",
       .torch = "torch.put(x, indices.long(), values, accumulate)",
       .numpy = "np.put(x, indices, values)",
       .cases = {{"from both ends", {{{3, 8}}, some_indices({2, 2}, {7, -1, 0, 20}), {{4}}}},
                 {"added", {{{3, 8}}, some_indices({4}, {7, 7, 0, 20}), {{4}}}, {{"accumulate", true}}}},
       .errors = {{"another number", {{{3, 8}}, index_noise({2}, 3), {{3}}}, {}, "3 values for 2 indices"}},
       .apply =
           [](const Arguments& a) {
             return Tensors{weft::put(a.input(0), a.input(1), a.input(2), a.boolean("accumulate"))};
           }},
      {.name = "masked_fill",
       .family = "indexing",
       .inputs = {{"x"}, {"mask"}},
       .attributes = {{.name = "value", .default_value = 0.0, .doc = "of the elements"}},
       .result = "that of x",
       .doc = "x with a value where the mask, which broadcasts to x, is true.",
       .torch = "torch.masked_fill(x, mask, value)",
       .cases = {{"a row of a mask", {{{3, 8}}, {{8}, 0, 1, DType::boolean}}, {{"value", -1.5}}}},
       .errors = {{"integers", {{{3, 8}}, {{8}, 0, 1, DType::i32}}, {}, "the mask is not bool"},
                  {"another shape", {{{3, 8}}, {{7}, 0, 1, DType::boolean}}, {}, "does not broadcast"}},
       .apply =
           [](const Arguments& a) { return Tensors{weft::masked_fill(a.input(0), a.input(1), a.number("value"))}; }},
      {.name = "masked_scatter",
       .family = "indexing",
       .inputs = {{"x"}, {"mask"}, {"source"}},
       .result = "that of x",
       .doc = "x with the elements of source, one after another, where the mask is true.",
       .torch = "torch.masked_scatter(x, mask, source)",
       .cases = {{"two axes", {{{3, 8}}, {{3, 8}, 0, 1, DType::boolean}, {{5, 6}}}}},
       .errors = {{"integers", {{{3, 8}}, {{8}, 0, 1, DType::i32}, {{4}}}, {}, "the mask is not bool"}},
       .apply = [](const Arguments& a) { return Tensors{weft::masked_scatter(a.input(0), a.input(1), a.input(2))}; }},
  };
  return rows;
}

}  // namespace

OpRows indexing_rows() {
  OpRows list;
  for (const OpRow& row : rows_of_indexing()) list.push_back(&row);
  return list;
}

}  // namespace graph

}  // namespace weft
