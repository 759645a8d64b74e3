// Matrix products.
#include <fmt/format.h>

#include "graph/autocast.hpp"
#include "graph/axes.hpp"
#include "graph/describe.hpp"
#include "graph/no_grad.hpp"
#include "graph/op.hpp"
#include "graph/op_families.hpp"
#include "weft/inference.hpp"
#include "weft/ops.hpp"

namespace weft {

using graph::describe;
using graph::NodeRef;

namespace {

using Operands = std::vector<std::pair<std::string, Tensor>>;

constexpr ops::DTypes kProductTypes = ops::DTypes::numbers;

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
  if (is_block(b.dtype())) {
    if (b.node()->kind != graph::Kind::permute)
      throw DTypeError(describe("matmul",
                                "b is in blocks along its last axis, and products take such a matrix as "
                                "transpose(b) only; cast it to f32",
                                operands, where));
    return packed_linear(a, Tensor(b.node()->inputs[0]), {}, true, where);
  }
  if (graph::autocast_is_on()) {
    const AutocastRule rule = graph::autocast_rule_of("matmul", "product");
    const Tensor left(graph::autocast_input(rule, a.node())), right(graph::autocast_input(rule, b.node()));
    const graph::NoAutocast done;
    return matmul(left, right, where);
  }
  check_product("matmul", a, b, operands, where);
  if (a.rank() == 0 || b.rank() == 0)
    throw ShapeError(describe("matmul", "an operand is a scalar; use *", operands, where));
  // Rank 1: a row on the left, a column on the right; the added axis is removed at the end.
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
    // One matrix on the right: the batch joins the rows, which gives one large product.
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

Tensor int_matmul(const Tensor& a, const Tensor& b, Where where) {
  if (!a.defined() || !b.defined()) throw UsageError("int_matmul: an operand has no value");
  const Operands operands = {{"a", a}, {"b", b}};
  if (!is_integer(a.dtype()) || !is_integer(b.dtype()))
    throw DTypeError(describe("int_matmul", "takes integers", operands, where));
  return matmul(cast(a, DType::i32), cast(b, DType::i32), where);
}

namespace graph {
namespace {

const OpRow& matmul_row() {
  static const OpRow row{
      .name = "matmul",
      .aliases = {"mm", "bmm", "mv"},
      .family = "product",
      .inputs = {{.name = "a", .dtypes = kProductTypes}, {.name = "b", .dtypes = kProductTypes}},
      .result = "that of the inputs",
      .doc =
          "Matrix product over the last two axes, batch axes broadcast; of rank 1, dot product or matrix times vector.",
      .formula = "c[..., i, j] = sum_k a[..., i, k] b[..., k, j]",
      .torch = "torch.matmul(a, b)",
      .numpy = "np.matmul(a, b)",
      .onnx = "MatMul",
      .cases = {{"one element", {{{1, 1}}, {{1, 1}}}},
                {"odd extents", {{{17, 33}}, {{33, 9}}}},
                {"whole tiles", {{{64, 64}}, {{64, 64}}}},
                {"batches that broadcast", {{{3, 1, 20, 8}}, {{5, 8, 11}}}},
                {"dot product", {{{300}}, {{300}}}},
                {"matrix times vector", {{{7, 300}}, {{300}}}},
                {"large", {{{256, 1024}}, {{1024, 192}}}},
                {"no rows", {{{0, 5}}, {{5, 3}}}},
                {"a sum of nothing", {{{4, 0}}, {{0, 3}}}}},
      .errors = {{"columns and rows differ", {{{2, 3}}, {{4, 5}}}, {}, "columns of a differ from rows of b"},
                 {"a scalar", {{{}}, {{4, 5}}}, {}, "an operand is a scalar; use *"},
                 {"batches that do not broadcast", {{{2, 3, 4}}, {{3, 4, 5}}}, {}, "batch axes do not broadcast"},
                 {"dtypes differ", {{{2, 3}}, {{3, 4}, 0, 3, DType::i32}}, {}, "the dtypes differ"}},
      .apply = [](const Arguments& a) { return Tensors{weft::matmul(a.input(0), a.input(1))}; }};
  return row;
}

const OpRow& int_matmul_row() {
  static const OpRow row{
      .name = "int_matmul",
      .family = "product",
      .inputs = {{.name = "a", .dtypes = ops::DTypes::integers}, {.name = "b", .dtypes = ops::DTypes::integers}},
      .result = "i32",
      .differentiable = false,
      .doc = "Matrix product of integers with sums of 32 bits, which wrap around; shapes as in matmul.",
      .formula = "c[..., i, j] = sum_k a[..., i, k] b[..., k, j] mod 2^32",
      .torch = "torch.matmul(a.int(), b.int())",
      .numpy = "np.matmul(a.astype(np.int32), b.astype(np.int32))",
      .onnx = "MatMulInteger",
      .cases = {{"odd extents", {{{17, 33}, -128, 127, DType::i32}, {{33, 9}, -128, 127, DType::i32}}},
                {"a batch", {{{3, 20, 70}, -9, 9, DType::i32}, {{3, 70, 11}, -9, 9, DType::i32}}},
                {"matrix times vector", {{{7, 300}, -128, 127, DType::i32}, {{300}, -128, 127, DType::i32}}},
                {"large", {{{70, 600}, 0, 255, DType::i32}, {{600, 140}, -128, 127, DType::i32}}},
                {"no rows", {{{0, 5}, 0, 9, DType::i32}, {{5, 3}, 0, 9, DType::i32}}},
                {"a sum of nothing", {{{4, 0}, 0, 9, DType::i32}, {{0, 3}, 0, 9, DType::i32}}}},
      .errors = {{"columns and rows differ",
                  {{{2, 3}, 0, 9, DType::i32}, {{4, 5}, 0, 9, DType::i32}},
                  {},
                  "columns of a differ from rows of b"},
                 {"floats", {{{2, 3}}, {{3, 4}, 0, 9, DType::i32}}, {}, "takes integers"}},
      .apply = [](const Arguments& a) { return Tensors{weft::int_matmul(a.input(0), a.input(1))}; }};
  return row;
}

const OpRow& linear_row() {
  static const OpRow row{
      .name = "linear",
      .family = "product",
      .inputs = {{.name = "x", .dtypes = kProductTypes},
                 {.name = "weight", .dtypes = kProductTypes},
                 {.name = "bias", .dtypes = kProductTypes, .optional = true}},
      .doc = "x W^T + b, with W [out, in].",
      .formula = "y = x W^T + b",
      .torch = "F.linear(x, weight, bias)",
      .onnx = "Gemm",
      .infer =
          [](const Call& c) {
            const Tensor &x = c.input(0), &weight = c.input(1), &bias = c.input(2);
            if (x.dtype() != weight.dtype()) c.dtype_error("the dtypes differ; cast one");
            if (weight.rank() != 2 || x.rank() < 1 || x.dim(-1) != weight.dim(1))
              c.shape_error("the last axis of x differs from the columns of weight [out, in]");
            if (bias.defined() && (bias.rank() != 1 || bias.dim(0) != weight.dim(0)))
              c.shape_error("bias is not [out]");
            Shape shape = x.shape();
            shape[shape.rank() - 1] = weight.dim(0);
            return std::vector<Result>{{bias.defined() ? promote(x.dtype(), bias.dtype()) : x.dtype(), shape}};
          },
      .decompose =
          [](const Call& c) {
            const Tensor y = weft::matmul(c.input(0), weft::transpose(c.input(1)), c.where());
            return Tensors{c.input(2).defined() ? elementwise("add", {y, c.input(2)}, {}, c.where()) : y};
          },
      .cases = {{"rows", {{{6, 9, 50}}, {{33, 50}}, {{33}}}}, {"without bias", {{{5, 7}}, {{3, 7}}, {.absent = true}}}},
      .errors = {{"columns differ", {{{2, 3}}, {{4, 5}}}, {}, "the last axis of x differs"},
                 {"long bias", {{{2, 3}}, {{4, 3}}, {{3}}}, {}, "bias is not [out]"}}};
  return row;
}

}  // namespace

OpRows product_rows() { return {&matmul_row(), &int_matmul_row(), &linear_row()}; }

}  // namespace graph

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Where where) {
  if (x.defined() && weight.defined() && graph::has_packed_layout(*weight.node()))
    return packed_linear(x, weight, bias, true, where);
  return graph::call(graph::linear_row(), {x, weight, bias}, graph::Words{}, where);
}

}  // namespace weft
