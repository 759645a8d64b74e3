// Elements at places of a tensor: one index for each of its first axes, or one for its flat elements.
#include "weft/ops/indexing.hpp"

#include <fmt/format.h>

#include "graph/describe.hpp"
#include "graph/op.hpp"
#include "graph/op_families.hpp"
#include "graph/ops/index_rows.hpp"
#include "graph/ops/indexing.hpp"
#include "weft/ops/layout.hpp"

namespace weft {

namespace graph {

void check_indexed(std::string_view op, const NamedOperands& operands, Where where) {
  for (const auto& [name, tensor] : operands) {
    if (!tensor.defined()) throw UsageError(fmt::format("{}: {} has no value", op, name));
    if (name == "indices" && !is_integer(tensor.dtype()))
      throw DTypeError(describe(op, "indices are not integers; cast them", operands, where));
    if (tensor.device() != operands[0].second.device())
      throw DeviceError(describe(op, "operands on different devices; move one with .to(device)", operands, where));
  }
}

bool are_bools(const Tensor& x, const Tensor& y) {
  return x.defined() && y.defined() && x.dtype() == DType::boolean && y.dtype() == DType::boolean;
}

}  // namespace graph

using graph::added_slices;
using graph::are_bools;
using graph::check_indexed;
using graph::describe;
using graph::NamedOperands;
using graph::replaced_slices;

namespace {

/// Negative indices counted from the end of n elements.
Tensor from_the_end(const Tensor& indices, Extent n) {
  // Before i64 becomes u32, in which negative numbers are outside.
  const Tensor at = indices.dtype() == DType::i64 ? indices : Tensor(graph::index_type(indices.node()));
  if (at.dtype() == DType::u32) return at;
  return Tensor(graph::index_type(weft::where(at < 0.0, at + static_cast<double>(n), at).node()));
}

}  // namespace

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

namespace graph {
namespace {

const std::vector<OpRow>& rows_of_indexing() {
  static const std::vector<OpRow> rows = {
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
