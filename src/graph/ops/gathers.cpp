// Gathers and scatters: elements by index.
#include <fmt/format.h>

#include "graph/axes.hpp"
#include "graph/describe.hpp"
#include "graph/no_grad.hpp"
#include "graph/op.hpp"
#include "graph/op_families.hpp"
#include "graph/scatter.hpp"
#include "weft/inference.hpp"
#include "weft/ops.hpp"
#include "weft/ops/order.hpp"

namespace weft {

using graph::describe;
using graph::NodeRef;

namespace {

using Operands = std::vector<std::pair<std::string, Tensor>>;

}  // namespace

Tensor embedding(const Tensor& table, const Tensor& indices, Where where) {
  if (!table.defined() || !indices.defined()) throw UsageError("embedding: an operand has no value");
  const Operands operands = {{"table", table}, {"indices", indices}};
  if (table.rank() != 2) throw ShapeError(describe("embedding", "table is not [rows, columns]", operands, where));
  if (!is_integer(indices.dtype()))
    throw DTypeError(describe("embedding", "indices are not integers; cast them", operands, where));
  if (table.device() != indices.device())
    throw DeviceError(describe("embedding", "operands on different devices", operands, where));
  const Extent count = indices.numel(), columns = table.dim(1);
  if (graph::has_packed_layout(*table.node())) {
    Shape shape = indices.shape();
    shape.push_back(columns);
    const graph::NodeRef at = graph::cast(graph::reshape(graph::index_type(indices.node()), {count}), DType::i32);
    return reshape(packed_rows(table, Tensor(at), where), shape);
  }
  const NodeRef rows = graph::expand(graph::reshape(graph::index_type(indices.node()), {count, 1}), {count, columns});
  Shape shape = indices.shape();
  shape.push_back(columns);
  return graph::wrap(graph::reshape(graph::gather(table.node(), rows, 0), shape));
}

Tensor take_along_axis(const Tensor& x, const Tensor& indices, int axis, Where where) {
  if (!x.defined() || !indices.defined()) throw UsageError("take_along_axis: an operand has no value");
  const Operands operands = {{"x", x}, {"indices", indices}};
  const int a = graph::normalized_axis("take_along_axis", x, axis, where);
  if (!is_integer(indices.dtype()))
    throw DTypeError(describe("take_along_axis", "indices are not integers; cast them", operands, where));
  bool fits = x.rank() == indices.rank();
  for (int i = 0; fits && i < x.rank(); ++i) fits = i == a || x.shape()[i] == indices.shape()[i];
  if (!fits)
    throw ShapeError(
        describe("take_along_axis", fmt::format("extents differ elsewhere than on axis {}", axis), operands, where));
  return graph::wrap(graph::gather(x.node(), indices.node(), a));
}

Tensor scatter_add(const Tensor& indices, const Tensor& updates, Extent rows, Where where) {
  if (!indices.defined() || !updates.defined()) throw UsageError("scatter_add: an operand has no value");
  const Operands operands = {{"indices", indices}, {"updates", updates}};
  if (!is_integer(indices.dtype()))
    throw DTypeError(describe("scatter_add", "indices are not integers; cast them", operands, where));
  if (updates.dtype() == DType::boolean)
    throw DTypeError(describe("scatter_add", "updates are bool; cast them", operands, where));
  if (indices.rank() != 1 || updates.rank() < 1 || updates.dim(0) != indices.dim(0))
    throw ShapeError(describe("scatter_add", "indices are not [n] with updates [n, ...]", operands, where));
  if (rows < 0) throw ShapeError(describe("scatter_add", fmt::format("{} rows", rows), operands, where));
  Shape shape = updates.shape();
  const Extent columns = indices.dim(0) ? updates.numel() / indices.dim(0)
                                        : Shape(std::vector<Extent>(shape.begin() + 1, shape.end())).numel();
  shape[0] = rows;
  return graph::wrap(graph::reshape(
      graph::scatter_add(indices.node(), graph::reshape(updates.node(), {indices.dim(0), columns}), rows), shape));
}

namespace graph {

const OpRow& scatter_rows_row() {
  static const OpRow row{
      .name = "scatter_add_rows",
      .family = "gather",
      .inputs = {{"indices", ops::DTypes::integers}, {"updates", ops::DTypes::numbers}},
      .attributes = {field("rows", &ScatterAttributes::rows, "extent 0 of the result", {.required = true, .least = 0})},
      .result = "that of updates",
      .doc = "out[r, c] = sum of updates[i, c] with indices[i] = r; indices [n], updates [n, columns].",
      .infer =
          [](const Call& c) {
            const Tensor &indices = c.input(0), &updates = c.input(1);
            if (indices.rank() != 1 || updates.rank() != 2 || updates.dim(0) != indices.dim(0))
              c.shape_error("indices are not [n] with updates [n, columns]");
            return std::vector<Result>{
                {updates.dtype(), Shape{c.attributes<ScatterAttributes>().rows, updates.dim(1)}}};
          },
      .decompose =
          [](const Call& c) {  // each row of the result sums the updates whose index it is
            const Tensor &indices = c.input(0), &updates = c.input(1);
            const Extent rows = c.attributes<ScatterAttributes>().rows, n = indices.dim(0), columns = updates.dim(1);
            const Tensor row(iota({rows, n, columns}, 0, indices.dtype(), indices.device()));
            const Tensor index = weft::expand(weft::reshape(indices, {1, n, 1}), {rows, n, columns});
            const Tensor update = weft::expand(weft::reshape(updates, {1, n, columns}), {rows, n, columns});
            const Tensor added =
                elementwise("where", {elementwise("eq", {row, index}), update, scalar_like(0, update)}, {}, c.where());
            return Tensors{
                cast(sum(added, {1}, {}, c.where()), updates.dtype(), c.where())};  // sums of few bits are i32
          },
      .gradient =
          [](const GradientCall& g) {
            const Tensor &indices = g.call.input(0), &updates = g.call.input(1);
            const NodeRef rows = expand(reshape(indices.node(), {indices.dim(0), 1}), updates.shape());
            return Tensors{Tensor(), Tensor(gather(g.gradients[0].node(), rows, 0))};
          },
      .form = KernelForm::scatter_add,
      .flops = [](const Call& c) { return static_cast<double>(c.input(1).numel()); },
      .cases = {{"rows",
                 {{.shape = {6}, .type = DType::i32, .values = {2, 0, 2, 1, 2, 0}}, {{6, 35}}},
                 {{"rows", Extent{4}}}},
                {"rows outside",
                 {{.shape = {4}, .type = DType::i32, .values = {5, -1, 1, 1}}, {{4, 3}}},
                 {{"rows", Extent{2}}}}},
      .errors =
          {{"another length", {{{4}, 0, 2, DType::i32}, {{5, 3}}}, {{"rows", Extent{2}}}, "indices are not [n]"},
           {"negative rows", {{{4}, 0, 2, DType::i32}, {{4, 3}}}, {{"rows", Extent{-2}}}, "attribute rows is -2"}}};
  return row;
}

NodeRef scatter_add(const NodeRef& indices, const NodeRef& updates, Extent rows) {
  if (is_narrow(updates->type))  // sums of narrow types are made in their compute type and rounded once
    return cast(scatter_add(indices, cast(updates, compute_type(updates->type)), rows), updates->type);
  return call_nodes(scatter_rows_row(), {Tensor(index_type(indices)), Tensor(updates)}, {rows})[0];
}

const OpRow& scatter_along_row() {
  static const OpRow row{
      .name = "scatter_add_along_axis",
      .family = "gather",
      .inputs = {{"indices", ops::DTypes::integers}, {"updates", ops::DTypes::numbers}},
      .attributes = {field("axis", &ScatterAlongAttributes::axis, "axis that the indices count", {.aliases = {"dim"}}),
                     field("extent", &ScatterAlongAttributes::extent, "of the result along the axis",
                           {.required = true, .least = 0})},
      .result = "that of updates",
      .doc = "Updates added up at their indices along an axis; indices outside are dropped.",
      .formula = "out[.., r, ..] = sum of updates[.., t, ..] with indices[.., t, ..] = r",
      .infer =
          [](const Call& c) {
            const auto a = c.attributes<ScatterAlongAttributes>();
            const Tensor& updates = c.input(1);
            if (c.input(0).shape() != updates.shape()) c.shape_error("the shapes of indices and updates differ");
            Shape shape = updates.shape();
            shape[c.axis(a.axis)] = a.extent;
            return std::vector<Result>{{updates.dtype(), shape}};
          },
      .decompose =
          [](const Call& c) {  // each place compares its index with all indices
            const auto a = c.attributes<ScatterAlongAttributes>();
            const Tensor &indices = c.input(0), &updates = c.input(1);
            const int axis = c.axis(a.axis);
            Shape taken = updates.shape(), grown = updates.shape();  // [.., place, taken, ..]
            std::vector<Extent> with_one = taken.vector(), with_place = grown.vector();
            with_one.insert(with_one.begin() + axis, 1);
            with_place.insert(with_place.begin() + axis, a.extent);
            const auto spread = [&](const Tensor& x) {
              return weft::expand(weft::reshape(x, Shape(with_one)), Shape(with_place));
            };
            const Tensor place(iota(Shape(with_place), axis, indices.dtype(), indices.device()));
            const Tensor update = spread(updates);
            const Tensor added = elementwise(
                "where", {elementwise("eq", {place, spread(indices)}), update, scalar_like(0, update)}, {}, c.where());
            return Tensors{sum(added, {axis + 1}, {}, c.where())};
          },
      .gradient =
          [](const GradientCall& g) {
            const int axis = g.call.axis(g.call.attributes<ScatterAlongAttributes>().axis);
            return Tensors{Tensor(), Tensor(gather(g.gradients[0].node(), g.call.input(0).node(), axis))};
          },
      .form = KernelForm::routine,
      .flops = [](const Call& c) { return static_cast<double>(c.input(1).numel()); },
      .cases = {{"the last axis",
                 {{.shape = {2, 4}, .type = DType::i32, .values = {2, 0, 2, 1, 3, 3, -1, 5}}, {{2, 4}}},
                 {{"axis", Extent{-1}}, {"extent", Extent{4}}}},
                {"in the middle",
                 {{{3, 7, 5}, -1, 4, DType::i32}, {{3, 7, 5}}},
                 {{"axis", Extent{1}}, {"extent", Extent{4}}}},
                {"many", {{{40, 300}, 0, 50, DType::i32}, {{40, 300}}}, {{"axis", Extent{1}}, {"extent", Extent{50}}}},
                {"integers",
                 {{{6, 9}, 0, 4, DType::i32}, {{6, 9}, -9, 9, DType::i32}},
                 {{"axis", Extent{0}}, {"extent", Extent{5}}},
                 false},
                {"nothing", {{{3, 0}, 0, 2, DType::i32}, {{3, 0}}}, {{"axis", Extent{1}}, {"extent", Extent{2}}}}},
      .errors = {{"shapes that differ",
                  {{{3, 4}, 0, 2, DType::i32}, {{3, 5}}},
                  {{"axis", Extent{1}}, {"extent", Extent{4}}},
                  "the shapes of indices and updates differ"},
                 {"an axis outside",
                  {{{3}, 0, 2, DType::i32}, {{3}}},
                  {{"axis", Extent{1}}, {"extent", Extent{4}}},
                  "axis 1 is outside of"}}};
  return row;
}

NodeRef scatter_add_along(const NodeRef& indices, const NodeRef& updates, int axis, Extent extent) {
  if (is_narrow(updates->type))
    return cast(scatter_add_along(indices, cast(updates, compute_type(updates->type)), axis, extent), updates->type);
  const NodeRef at = index_type(indices);
  Shape shape = updates->shape;
  Extent outer = 1, inner = 1;
  for (int d = 0; d < shape.rank(); ++d)
    (d < axis ? outer : d == axis ? shape[axis] : inner) *= d == axis ? 1 : shape[d];
  const Extent taken = shape[axis];
  shape[axis] = extent;
  // One thread adds up a line along the axis in order. If there are few lines, they are treated as one long list of places.
  constexpr Extent kLinesMin = 32;
  if (outer * inner >= kLinesMin || shape.numel() > INT32_MAX || updates->shape.numel() == 0)
    return call_nodes(scatter_along_row(), {Tensor(at), Tensor(updates)}, {axis, extent})[0];
  const Shape lines{outer, taken, inner};
  const Tensor index = weft::reshape(Tensor(at), lines);
  const auto number = [&](Extent value) { return scalar_like(static_cast<double>(value), index); };
  const auto coordinate = [&](int d) { return Tensor(iota(lines, d, at->type, at->device)); };
  const Tensor place = (coordinate(0) * number(extent) + index) * number(inner) + coordinate(2);
  const Tensor inside = elementwise("logical_and", {index >= number(0), index < number(extent)});
  const Tensor rows = elementwise("where", {inside, place, number(shape.numel())});
  const Extent count = updates->shape.numel();
  return reshape(scatter_add(reshape(rows.node(), {count}), reshape(updates, {count, 1}), shape.numel()), shape);
}

const OpRow& last_along_row() {
  static const OpRow row{
      .name = "last_along_axis",
      .family = "gather",
      .inputs = {{"indices", ops::DTypes::integers}},
      .attributes = {field("axis", &ScatterAlongAttributes::axis, "axis that the indices count", {.aliases = {"dim"}}),
                     field("extent", &ScatterAlongAttributes::extent, "of the result along the axis",
                           {.required = true, .least = 0})},
      .result = "i32",
      .differentiable = false,
      .doc = "Which index along an axis names a place last: 1 + its position, or 0 where none does.",
      .formula = "out[.., r, ..] = max of 0 and of 1 + t with indices[.., t, ..] = r",
      .infer =
          [](const Call& c) {
            const auto a = c.attributes<ScatterAlongAttributes>();
            Shape shape = c.input(0).shape();
            shape[c.axis(a.axis)] = a.extent;
            return std::vector<Result>{{DType::i32, shape}};
          },
      .decompose =
          [](const Call& c) {  // in the order of indices, the last of equal ones is the last of its run
            const auto a = c.attributes<ScatterAlongAttributes>();
            const Tensor& indices = c.input(0);
            const int axis = c.axis(a.axis);
            const Extent n = indices.dim(axis);
            Shape shape = indices.shape();
            if (n == 0) {
              shape[axis] = a.extent;
              return Tensors{full(shape, 0, DType::i32, indices.device())};
            }
            const auto [at, positions] = weft::sort(indices, axis);
            shape[axis] = 1;
            const Tensor differs = ne(weft::narrow(at, axis, 1, n - 1), weft::narrow(at, axis, 0, n - 1));
            const Tensor is_last = weft::concat({differs, full(shape, 1, DType::boolean, indices.device())}, axis);
            const Tensor place = elementwise("where", {is_last, positions + 1.0, scalar_like(0, positions)});
            return Tensors{Tensor(scatter_add_along(at.node(), place.node(), axis, a.extent))};
          },
      .form = KernelForm::routine,
      .flops = [](const Call& c) { return static_cast<double>(c.input(0).numel()); },
      .cases = {{"the last axis",
                 {{.shape = {2, 4}, .type = DType::i32, .values = {2, 0, 2, 1, 3, 3, -1, 5}}},
                 {{"axis", Extent{-1}}, {"extent", Extent{4}}}},
                {"in the middle", {{{3, 7, 5}, -1, 4, DType::i32}}, {{"axis", Extent{1}}, {"extent", Extent{4}}}},
                {"many", {{{40, 300}, 0, 50, DType::i32}}, {{"axis", Extent{1}}, {"extent", Extent{50}}}},
                {"one line", {{{3000}, -2, 900, DType::i32}}, {{"extent", Extent{899}}}},
                {"nothing", {{{3, 0}, 0, 2, DType::i32}}, {{"axis", Extent{1}}, {"extent", Extent{2}}}}},
      .errors = {{"negative extent",
                  {{{3, 4}, 0, 2, DType::i32}},
                  {{"axis", Extent{1}}, {"extent", Extent{-4}}},
                  "attribute extent is -4"}}};
  return row;
}

namespace {

struct PutAttributes {
  Extent axis = -1;
};

/// 1 + the last t that names each place of the result of a put, or 0.
Tensor last_put(const Call& c, int axis) {
  return Tensor(call_nodes(last_along_row(), {c.input(1)}, {axis, c.input(0).dim(axis)})[0]);
}

}  // namespace

const OpRow& put_along_row() {
  static const OpRow row{
      .name = "scatter_along_axis",
      .family = "gather",
      .inputs = {{"x"}, {"indices", ops::DTypes::integers}, {"updates"}},
      .attributes = {field("axis", &PutAttributes::axis, "axis that the indices count", {.aliases = {"dim"}})},
      .result = "that of x",
      .doc =
          "x with updates at their indices along an axis; of equal indices the last one counts, and indices outside "
          "are "
          "dropped. Indices and updates have the extents of x but along the axis.",
      .formula = "x[.., indices[.., t, ..], ..] = updates[.., t, ..]",
      .infer =
          [](const Call& c) {
            const Tensor &x = c.input(0), &updates = c.input(2);
            const int axis = c.axis(c.attributes<PutAttributes>().axis);
            if (c.input(1).shape() != updates.shape()) c.shape_error("the shapes of indices and updates differ");
            bool fits = updates.rank() == x.rank();
            for (int d = 0; fits && d < x.rank(); ++d) fits = d == axis || updates.dim(d) == x.dim(d);
            if (!fits) c.shape_error("x and updates differ elsewhere than along the axis");
            if (x.dtype() != updates.dtype()) c.dtype_error("the dtypes of x and updates differ; cast one");
            return std::vector<Result>{{x.dtype(), x.shape()}};
          },
      .decompose =
          [](const Call& c) {
            const int axis = c.axis(c.attributes<PutAttributes>().axis);
            const Tensor &x = c.input(0), &updates = c.input(2);
            const Tensor last = last_put(c, axis);
            const Tensor put = Tensor(gather(updates.node(), (last - 1.0).node(), axis));
            return Tensors{elementwise("where", {last > 0.0, put, x}, {}, c.where())};
          },
      .gradient =
          [](const GradientCall& g) {
            const Tensor &indices = g.call.input(1), &d_y = g.gradients[0];
            const int axis = g.call.axis(g.call.attributes<PutAttributes>().axis);
            const Tensor last = last_put(g.call, axis), zero = scalar_like(0, d_y);
            const Tensor place = Tensor(iota(indices.shape(), axis, DType::i32, indices.device())) + 1.0;
            const Tensor is_last = eq(Tensor(gather(last.node(), indices.node(), axis)), place);
            const Tensor d_put = Tensor(gather(d_y.node(), indices.node(), axis));
            return Tensors{elementwise("where", {last > 0.0, zero, d_y}), Tensor(),
                           elementwise("where", {is_last, d_put, zero})};
          },
      .form = KernelForm::routine,
      .flops = [](const Call&) { return 0.0; },
      .cases = {{"the last axis",
                 {{{2, 4}}, {.shape = {2, 5}, .type = DType::i32, .values = {2, 0, 2, 1, -1, 3, 5, 3, 9, 0}}, {{2, 5}}},
                 {{"axis", Extent{-1}}}},
                {"in the middle", {{{3, 4, 5}}, {{3, 7, 5}, -1, 4, DType::i32}, {{3, 7, 5}}}, {{"axis", Extent{1}}}},
                {"integers",
                 {{{40, 30}, -9, 9, DType::i32}, {{9, 30}, 0, 39, DType::i32}, {{9, 30}, -9, 9, DType::i32}},
                 {{"axis", Extent{0}}},
                 false},
                {"nothing", {{{3, 2}}, {{3, 0}, 0, 2, DType::i32}, {{3, 0}}}, {{"axis", Extent{1}}}}},
      .errors = {{"shapes that differ",
                  {{{3, 4}}, {{3, 5}, 0, 2, DType::i32}, {{3, 4}}},
                  {{"axis", Extent{1}}},
                  "the shapes of indices and updates differ"},
                 {"longer elsewhere",
                  {{{3, 4}}, {{4, 4}, 0, 2, DType::i32}, {{4, 4}}},
                  {{"axis", Extent{1}}},
                  "x and updates differ elsewhere"},
                 {"another dtype",
                  {{{3, 4}}, {{3, 4}, 0, 2, DType::i32}, {{3, 4}, 0, 2, DType::i32}},
                  {{"axis", Extent{1}}},
                  "the dtypes of x and updates differ"}}};
  return row;
}

namespace {

struct OneHotAttributes {
  Extent classes = 0;
  DType dtype = DType::f32;
};

const OpRow& one_hot_row() {
  static const OpRow row{
      .name = "one_hot",
      .family = "gather",
      .inputs = {{"indices", ops::DTypes::integers}},
      .attributes = {field("classes", &OneHotAttributes::classes, "extent of the new last axis",
                           {.required = true, .aliases = {"num_classes"}}),
                     field("dtype", &OneHotAttributes::dtype, "dtype of the result")},
      .result = "as given",
      .differentiable = false,
      .doc = "1 where the new last axis equals the index, else 0.",
      .torch = "F.one_hot(indices.long(), classes).double()",
      .onnx = "OneHot",
      .infer =
          [](const Call& c) {
            const auto [classes, dtype] = c.attributes<OneHotAttributes>();
            if (classes < 0) c.shape_error(fmt::format("{} classes", classes));
            Shape shape = c.input(0).shape();
            shape.push_back(classes);
            return std::vector<Result>{{dtype, shape}};
          },
      .decompose =
          [](const Call& c) {
            const Tensor& indices = c.input(0);
            const auto [classes, dtype] = c.attributes<OneHotAttributes>();
            const Tensor position(iota({classes}, 0, indices.dtype(), indices.device()));
            return Tensors{weft::cast(elementwise("eq", {unsqueeze(indices, -1), position}, {}, c.where()), dtype)};
          },
      .cases = {{"indices", {{{4, 6}, 0, 11, DType::i32}}, {{"classes", Extent{12}}}}},
      .errors = {{"negative classes", {{{4}, 0, 2, DType::i32}}, {{"classes", Extent{-1}}}, "-1 classes"},
                 {"floats", {{{4}}}, {{"classes", Extent{3}}}, "takes integers"},
                 {"no classes", {{{4}, 0, 2, DType::i32}}, {}, "attribute classes is missing"}}};
  return row;
}

const OpRow& embedding_row() {
  static const OpRow row{
      .name = "embedding",
      .family = "gather",
      .inputs = {{"table"}, {"indices", ops::DTypes::integers}},
      .result = "that of table",
      .doc = "Rows of table [rows, columns] by index; an index outside reads zeros.",
      .formula = "out[i..., c] = table[indices[i...], c]",
      .torch = "F.embedding(indices.long(), table)",
      .onnx = "Gather",
      .cases = {{"indices of two axes", {{{30, 7}}, {.shape = {2, 2}, .type = DType::i32, .values = {3, 29, 0, 3}}}}},
      .errors = {{"one axis", {{{30}}, {{2}, 0, 3, DType::i32}}, {}, "table is not [rows, columns]"},
                 {"indices that are floats", {{{30, 7}}, {{2}}}, {}, "indices are not integers"}},
      .apply = [](const Arguments& a) { return Tensors{weft::embedding(a.input(0), a.input(1))}; }};
  return row;
}

const OpRow& take_along_axis_row() {
  static const OpRow row{
      .name = "take_along_axis",
      .family = "gather",
      .inputs = {{"x"}, {"indices", ops::DTypes::integers}},
      .attributes = {{.name = "axis",
                      .type = AttributeType::integer,
                      .default_value = Extent{-1},
                      .doc = "axis",
                      .aliases = {"dim"}}},
      .doc = "out[..., i, ...] = x[..., indices[..., i, ...], ...] along an axis; other extents equal those of x.",
      .torch = "torch.gather(x, axis, indices.long())",
      .numpy = "np.take_along_axis(x, indices, axis)",
      .onnx = "GatherElements",
      .cases = {{"along axis 1", {{{3, 8, 5}}, {{3, 4, 5}, 0, 7, DType::i32}}, {{"axis", Extent{1}}}},
                {"one index repeated",
                 {{{3, 8}}, {.shape = {3, 2}, .type = DType::i32, .values = {5, 5, 0, 7, 2, 2}}}}},
      .errors = {{"other extents differ", {{{3, 8}}, {{2, 4}, 0, 7, DType::i32}}, {}, "extents differ elsewhere"}},
      .apply = [](const Arguments& a) {
        return Tensors{weft::take_along_axis(a.input(0), a.input(1), a.small("axis"))};
      }};
  return row;
}

const OpRow& scatter_add_row() {
  static const OpRow row{
      .name = "scatter_add",
      .family = "gather",
      .inputs = {{"indices", ops::DTypes::integers}, {"updates", ops::DTypes::numbers}},
      .attributes = {{.name = "rows", .type = AttributeType::integer, .doc = "extent 0 of the result"}},
      .result = "that of updates",
      .doc = "out[r, ...] = sum of updates[i, ...] with indices[i] = r; indices [n], updates [n, ...].",
      .torch = "torch.zeros((rows, *updates.shape[1:]), dtype=updates.dtype).index_add(0, indices.long(), updates)",
      .onnx = "ScatterND",
      .cases = {{"three axes",
                 {{.shape = {6}, .type = DType::i32, .values = {2, 0, 2, 1, 2, 0}}, {{6, 7, 5}}},
                 {{"rows", Extent{4}}}}},
      .errors = {{"another length", {{{4}, 0, 2, DType::i32}, {{5, 3}}}, {{"rows", Extent{2}}}, "indices are not [n]"}},
      .apply = [](const Arguments& a) {
        return Tensors{weft::scatter_add(a.input(0), a.input(1), a.integer("rows"))};
      }};
  return row;
}

}  // namespace

OpRows gather_rows() {
  return {&embedding_row(),     &take_along_axis_row(), &scatter_add_row(), &scatter_rows_row(),
          &scatter_along_row(), &last_along_row(),      &put_along_row(),   &one_hot_row()};
}

}  // namespace graph

Tensor one_hot(const Tensor& indices, Extent classes, DType type, Where where) {
  return graph::call(graph::one_hot_row(), {indices}, graph::OneHotAttributes{classes, type}, where);
}

}  // namespace weft
