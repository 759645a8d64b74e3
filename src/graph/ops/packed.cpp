// Tensors in blocks: products with them, reading their rows and values, and rounding to blocks.
#include "graph/packed.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "graph/describe.hpp"
#include "graph/no_grad.hpp"
#include "graph/op.hpp"
#include "graph/op_families.hpp"
#include "weft/inference.hpp"
#include "weft/ops.hpp"

namespace weft {

using graph::describe;

namespace graph {

Extent rows_of(const Shape& shape) {
  Extent rows = 1;
  for (int axis = 0; axis + 1 < shape.rank(); ++axis) rows *= shape[axis];
  return rows;
}

namespace {

/// Every type that devices may have products for.
const std::vector<DType> kPacked = [] {
  std::vector<DType> types = {DType::f32, DType::f16, DType::bf16};
  std::copy_if(std::begin(kAllDTypes), std::end(kAllDTypes), std::back_inserter(types), is_block);
  return types;
}();

/// Checks that input `i` of the call is a packed matrix.
void check_packed(const Call& c, std::size_t i) {
  if (!has_packed_layout(*c.input(i).node()))
    c.dtype_error(fmt::format("{} is not in blocks; use linear and embedding, or cast it to a type of blocks",
                              c.row().inputs[i].name));
}

}  // namespace

void check_block_shape(std::string_view context, DType type, const Shape& shape) {
  const int elements = element(type).block_elements;
  if (shape.rank() == 0)
    throw ShapeError(fmt::format("{}: a scalar has no blocks of {} elements ({})", context, elements, name_of(type)));
  if (columns_of(shape) % elements != 0)
    throw ShapeError(
        fmt::format("{}: rows of {} elements do not divide into blocks of {} ({}); choose a type of smaller "
                    "blocks, or pad the rows",
                    context, columns_of(shape), elements, name_of(type)));
}

Tensor unpacked(const Tensor& packed, Where where) {
  const Tensor all(iota({rows_of(packed.shape())}, 0, DType::i32, packed.device()));
  return Tensor(reshape(call_nodes(unpack_rows_row(), {packed, all}, Words{}, where)[0], packed.shape()));
}

Tensor in_blocks(const Tensor& x, DType type, Where where) {
  const Tensor values(cast(x.node(), DType::f32));
  return Tensor(call_nodes(pack_rows_row(), {values}, words_of(pack_rows_row().attributes, PackRows{type}), where)[0]);
}

const OpRow& unpack_rows_row() {
  static const OpRow row{
      .name = "unpack_rows",
      .family = "packed",
      .inputs = {{.name = "weights", .only = kPacked}, {.name = "rows", .only = {DType::i32}}},
      .result = "f32",
      .differentiable = false,
      .doc = "Rows by index of a matrix in blocks, as f32; an index outside reads zeros.",
      .infer =
          [](const Call& c) {
            check_packed(c, 0);
            if (c.input(1).rank() != 1) c.shape_error("rows are not [T]");
            return std::vector<Result>{{DType::f32, Shape{c.input(1).dim(0), columns_of(c.input(0).shape())}}};
          },
      .no_gradient = "weights in blocks do not train; cast them to f32 first, and train these",
      .reads_packed = true,
      .form = KernelForm::routine};
  return row;
}

const OpRow& pack_rows_row() {
  static const OpRow row{.name = "pack_rows",
                         .family = "packed",
                         .inputs = {{.name = "x", .only = {DType::f32}}},
                         .attributes = {field("type", &PackRows::type, "the type of blocks", {.required = true})},
                         .result = "type",
                         .differentiable = false,
                         .doc = "x [..., k] rounded to blocks of neighbours along the last axis.",
                         .infer =
                             [](const Call& c) {
                               const DType type = c.attributes<PackRows>().type;
                               if (!is_block(type))
                                 c.dtype_error(fmt::format("{} is not a type of blocks", name_of(type)));
                               check_block_shape(c.row().name, type, c.input(0).shape());
                               return std::vector<Result>{{type, c.input(0).shape()}};
                             },
                         .no_gradient = "rounding to blocks has none; keep the f32 values to train",
                         .no_kernel = "round on the CPU and move the result: cast(x.to(kCpu), type).to(device)",
                         .form = KernelForm::routine};
  return row;
}

const OpRow& packed_matmul_row() {
  static const OpRow row{
      .name = "packed_matmul",
      .family = "packed",
      .inputs = {{.name = "x", .only = {DType::f32}},
                 {.name = "weights", .only = kPacked},
                 {.name = "experts", .optional = true, .only = {DType::i32}}},
      .attributes = {field("exact", &PackedMatmul::exact, "x stays f32; else it may be rounded to eight bits")},
      .result = "f32",
      .differentiable = false,
      .doc =
          "x W^T with x [1, m, k] and W [n, k] in blocks. With experts [m s], W is [E, n, k], and row i of the result "
          "is row i / s "
          "of x times the matrix of experts[i], or zeros if there is none of this number.",
      .infer =
          [](const Call& c) {
            const Tensor &x = c.input(0), &weights = c.input(1), &experts = c.input(2);
            check_packed(c, 1);
            const int rank = experts.defined() ? 3 : 2;
            if (weights.rank() != rank)
              c.shape_error(rank == 2 ? "weights are not [n, k]" : "weights are not [E, n, k]");
            if (x.rank() != 3 || x.dim(0) != 1 || x.dim(2) != weights.dim(rank - 1))
              c.shape_error(fmt::format("x is not [1, m, {}]", weights.dim(rank - 1)));
            Extent rows = x.dim(1);
            if (experts.defined()) {
              if (weights.dim(1) % kRowsOfExperts != 0)
                c.shape_error(
                    fmt::format("the matrix of an expert has {} rows, not a multiple of {}; pad it with zeros",
                                weights.dim(1), kRowsOfExperts));
              if (experts.rank() != 1 || (rows > 0 ? experts.dim(0) % rows : experts.dim(0)) != 0)
                c.shape_error("experts are not as many numbers for each row of x");
              rows = experts.dim(0);
            }
            return std::vector<Result>{{DType::f32, Shape{1, rows, weights.dim(rank - 2)}}};
          },
      .no_gradient = "packed weights are for generation; load the model's weights as f32 to train",
      .no_kernel = "load the weights as f32, or use the CPU",
      .reads_packed = true,
      .form = KernelForm::packed_product,
      .flops =
          [](const Call& c) {
            const Tensor &x = c.input(0), &weights = c.input(1), &experts = c.input(2);
            const Extent rows = experts.defined() ? experts.dim(0) : x.dim(1);
            return 2.0 * static_cast<double>(rows) * static_cast<double>(weights.dim(-2) * weights.dim(-1));
          }};
  return row;
}

OpRows block_rows() { return {&packed_matmul_row(), &unpack_rows_row(), &pack_rows_row()}; }

}  // namespace graph

Tensor packed_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, bool exact, Where where) {
  constexpr std::string_view op = "packed_linear";
  if (!x.defined() || !weight.defined()) throw UsageError("packed_linear: an operand has no value");
  const auto text = [&](std::string_view fact) { return describe(op, fact, {{"x", x}, {"weight", weight}}, where); };
  if (!graph::has_packed_layout(*weight.node()))
    throw DTypeError(text("the weight is not in blocks; use linear, or cast it to a type of blocks"));
  if (x.dtype() != DType::f32) throw DTypeError(text("x is not f32; cast it"));
  if (x.device() != weight.device()) throw DeviceError(text("x and the weight are on different devices"));
  if (weight.rank() != 2 || x.rank() < 1 || x.dim(-1) != weight.dim(1))
    throw ShapeError(text("the last axis of x differs from the columns of weight [out, in]"));
  const Extent n = weight.dim(0), k = weight.dim(1);
  if (bias.defined() && (bias.rank() != 1 || bias.dim(0) != n))
    throw ShapeError(describe(op, fmt::format("bias is not [{}]", n), {{"bias", bias}}, where));
  const Extent rows = graph::rows_of(x.shape());
  Shape shape = x.shape();
  shape[shape.rank() - 1] = n;
  const graph::OpRow& row = graph::packed_matmul_row();
  const graph::NodeRef product =
      graph::call_nodes(row, {Tensor(graph::reshape(x.node(), {1, rows, k})), weight, Tensor()},
                        graph::words_of(row.attributes, graph::PackedMatmul{exact}), where)[0];
  const Tensor y = graph::wrap(graph::reshape(product, shape));
  return bias.defined() ? elementwise("add", {y, bias}, {}, where) : y;
}

Tensor expert_linear(const Tensor& x, const Tensor& weights, const Tensor& experts, bool exact, Where where) {
  constexpr std::string_view op = "expert_linear";
  if (!x.defined() || !weights.defined() || !experts.defined())
    throw UsageError("expert_linear: an operand has no value");
  Shape leading(std::vector<Extent>(x.shape().begin(), x.shape().end() - (x.rank() > 0 ? 1 : 0)));
  Shape given = experts.shape();
  if (given.rank() == leading.rank() + 1) leading.push_back(given[given.rank() - 1]);
  if (x.rank() < 1 || weights.rank() != 3 || x.dim(-1) != weights.dim(2) || given != leading)
    throw ShapeError(describe(op, "not x [..., k], weights [experts, out, k], and experts [...] or [..., s]",
                              {{"x", x}, {"weights", weights}, {"experts", experts}}, where));
  const graph::OpRow& row = graph::packed_matmul_row();
  const Extent rows = graph::rows_of(x.shape());
  const graph::NodeRef product =
      graph::call_nodes(row,
                        {Tensor(graph::reshape(x.node(), {1, rows, x.dim(-1)})), weights,
                         Tensor(graph::reshape(experts.node(), {experts.numel()}))},
                        graph::words_of(row.attributes, graph::PackedMatmul{exact}), where)[0];
  given.push_back(weights.dim(1));
  return graph::wrap(graph::reshape(product, given));
}

Tensor packed_rows(const Tensor& table, const Tensor& indices, Where where) {
  constexpr std::string_view op = "packed_rows";
  if (!indices.defined() || !table.defined()) throw UsageError("packed_rows: an operand has no value");
  if (indices.dtype() != DType::i32)
    throw DTypeError(describe(op, "indices are not i32", {{"indices", indices}}, where));
  if (indices.rank() != 1) throw ShapeError(describe(op, "indices are not [T]", {{"indices", indices}}, where));
  if (table.rank() < 2) throw ShapeError(describe(op, "the table is not [..., n, k]", {{"table", table}}, where));
  if (indices.device() != table.device())
    throw DeviceError(describe(op, "operands on different devices", {{"indices", indices}}, where));
  return graph::call(graph::unpack_rows_row(), {table, indices}, graph::Words{}, where);
}

}  // namespace weft
