// Matrix products, gathers and scatters.
#include <fmt/format.h>

#include "graph/axes.hpp"
#include "graph/describe.hpp"
#include "graph/no_grad.hpp"
#include "graph/node.hpp"
#include "weft/ops.hpp"

namespace weft {

using graph::describe;
using graph::NodeRef;

namespace {

using Operands = std::vector<std::pair<std::string, Tensor>>;

void check_product(std::string_view op, const Tensor& a, const Tensor& b, const Operands& operands, Where where) {
  if (a.device() != b.device())
    throw DeviceError(describe(op, "operands on different devices; move one with .to(device)", operands, where));
  if (a.dtype() != b.dtype()) throw DTypeError(describe(op, "the dtypes differ; cast one", operands, where));
  if (!is_float(a.dtype()) && !is_integer(a.dtype()))
    throw DTypeError(describe(op, "takes floats and integers; cast the operands", operands, where));
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b, Where where) {
  if (!a.defined() || !b.defined()) throw UsageError("matmul: an operand has no value");
  const Operands operands = {{"a", a}, {"b", b}};
  check_product("matmul", a, b, operands, where);
  if (a.rank() == 0 || b.rank() == 0)
    throw ShapeError(describe("matmul", "an operand is a scalar; use *", operands, where));
  // Rank 1: a row on the left, a column on the right; the added axis goes again.
  NodeRef left = a.node(), right = b.node();
  if (a.rank() == 1) left = graph::reshape(left, {1, a.dim(0)});
  if (b.rank() == 1) right = graph::reshape(right, {b.dim(0), 1});
  const Shape sa = left->shape, sb = right->shape;
  const Extent m = sa.dim(-2), k = sa.dim(-1), n = sb.dim(-1);
  if (k != sb.dim(-2)) throw ShapeError(describe("matmul", "columns of a differ from rows of b", operands, where));
  auto batch_of = [](const Shape& s) { return Shape(std::vector<Extent>(s.begin(), s.end() - 2)); };
  Shape batch;
  if (!graph::broadcast_shapes(batch_of(sa), batch_of(sb), batch))
    throw ShapeError(describe("matmul", "batch axes do not broadcast", operands, where));
  NodeRef product;
  if (sb.rank() == 2 && batch == batch_of(sa)) {
    // One matrix on the right: the batch joins the rows, one large product.
    const Extent rows = batch.numel() * m;
    product = graph::matmul(graph::reshape(left, {1, rows, k}), graph::reshape(right, {1, k, n}));
  } else {
    auto flat = [&](const NodeRef& x, Extent rows, Extent columns) {
      Shape full = batch;
      full.push_back(rows);
      full.push_back(columns);
      return graph::reshape(graph::expand(x, full), {batch.numel(), rows, columns});
    };
    product = graph::matmul(flat(left, m, k), flat(right, k, n));
  }
  Shape shape = batch;
  if (a.rank() > 1) shape.push_back(m);
  if (b.rank() > 1) shape.push_back(n);
  return graph::wrap(graph::reshape(product, shape));
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Where where) {
  if (!x.defined() || !weight.defined()) throw UsageError("linear: an operand has no value");
  if (weight.rank() != 2 || x.rank() < 1 || x.dim(-1) != weight.dim(1))
    throw ShapeError(describe("linear", "the last axis of x differs from the columns of weight [out, in]",
                              {{"x", x}, {"weight", weight}}, where));
  const Tensor y = matmul(x, transpose(weight), where);
  if (!bias.defined()) return y;
  if (bias.rank() != 1 || bias.dim(0) != weight.dim(0))
    throw ShapeError(describe("linear", "bias is not [out]", {{"weight", weight}, {"bias", bias}}, where));
  return elementwise("add", {y, bias}, {}, where);
}

Tensor embedding(const Tensor& table, const Tensor& indices, Where where) {
  if (!table.defined() || !indices.defined()) throw UsageError("embedding: an operand has no value");
  const Operands operands = {{"table", table}, {"indices", indices}};
  if (table.rank() != 2) throw ShapeError(describe("embedding", "table is not [rows, columns]", operands, where));
  if (!is_integer(indices.dtype()))
    throw DTypeError(describe("embedding", "indices are not integers; cast them", operands, where));
  if (table.device() != indices.device())
    throw DeviceError(describe("embedding", "operands on different devices", operands, where));
  const Extent count = indices.numel(), columns = table.dim(1);
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

Tensor one_hot(const Tensor& indices, Extent classes, DType type, Where where) {
  if (!indices.defined()) throw UsageError("one_hot: the tensor has no value");
  if (!is_integer(indices.dtype()))
    throw DTypeError(describe("one_hot", "indices are not integers; cast them", {{"indices", indices}}, where));
  if (classes < 0)
    throw ShapeError(describe("one_hot", fmt::format("{} classes", classes), {{"indices", indices}}, where));
  const Tensor position(graph::iota({classes}, 0, indices.dtype(), indices.device()));
  return cast(elementwise("eq", {unsqueeze(indices, -1), position}, {}, where), type, where);
}

}  // namespace weft
