#include "runtime/packed_matrix.hpp"

#include <fmt/format.h>

#include "backend/contract.hpp"
#include "graph/cache.hpp"
#include "graph/describe.hpp"
#include "graph/no_grad.hpp"
#include "graph/op.hpp"
#include "runtime/devices.hpp"
#include "weft/ops.hpp"

namespace weft {

using graph::describe;

const backend::WeightPacking* weight_packing(Device device) { return runtime::backend_of(device).weight_packing(); }

bool can_pack(BlockType type, Device device) {
  const backend::WeightPacking* packing = weight_packing(device);
  return packing && packing->supports(type);
}

PackedMatrix pack_matrix(BlockType type, std::span<const std::byte> blocks, Extent n, Extent k, Device device,
                         const PackOptions& options) {
  if (!can_pack(type, device))
    throw DTypeError(fmt::format("pack_matrix: {} has no products with {}; load the matrix as f32", device.to_string(),
                                 name_of(type)));
  constexpr std::string_view label = "weights in blocks";
  const backend::WeightPacking& packing = *weight_packing(device);
  const std::size_t bytes = packing.packed_bytes(type, n, k);
  const backend::BufferPtr buffer =
      options.memory ? options.memory->allocate(bytes, label) : runtime::allocate(device, bytes, label);
  packing.pack(type, blocks, n, k, *buffer, options.before);
  return {Tensor(runtime::data_node(DType::u32, {static_cast<Extent>(bytes / 4)}, device, buffer)), type, n, k};
}

std::span<const std::byte> packed_bytes(const PackedMatrix& matrix) {
  return weight_packing(matrix.words.device())->view(*runtime::buffer_of(*matrix.words.node())).first(matrix.bytes());
}

PackedMatrix matrix_over(BlockType type, Extent n, Extent k, std::span<const std::byte> packed,
                         std::shared_ptr<const void> owner, Device device) {
  const backend::WeightPacking& packing = *weight_packing(device);
  const std::size_t bytes = packing.packed_bytes(type, n, k);
  if (packed.size() < bytes)
    throw UsageError(fmt::format("packed matrix: {} [{}, {}] takes {} bytes, and {} are given", name_of(type), n, k,
                                 bytes, packed.size()));
  const backend::BufferPtr buffer = packing.borrow(std::move(owner), packed.first(bytes));
  return {Tensor(runtime::data_node(DType::u32, {static_cast<Extent>(bytes / 4)}, device, buffer)), type, n, k};
}

Tensor packed_linear(const Tensor& x, const PackedMatrix& weight, const Tensor& bias, bool exact, const Tensor& chosen,
                     Where where) {
  constexpr std::string_view op = "packed_linear";
  if (!x.defined() || !weight.words.defined()) throw UsageError("packed_linear: an operand has no value");
  if (x.dtype() != DType::f32) throw DTypeError(describe(op, "x is not f32; cast it", {{"x", x}}, where));
  if (x.device() != weight.words.device())
    throw DeviceError(describe(op, "x and the weight are on different devices", {{"x", x}}, where));
  if (x.rank() < 1 || x.dim(-1) != weight.k)
    throw ShapeError(
        describe(op, fmt::format("the last axis of x differs from the columns of weight [{}, {}]", weight.n, weight.k),
                 {{"x", x}}, where));
  if (bias.defined() && (bias.rank() != 1 || bias.dim(0) != weight.n))
    throw ShapeError(describe(op, fmt::format("bias is not [{}]", weight.n), {{"bias", bias}}, where));
  const Extent rows =
      weight.k > 0 ? x.numel() / weight.k : Shape(std::vector<Extent>(x.shape().begin(), x.shape().end() - 1)).numel();
  if (chosen.defined()) {
    if (chosen.dtype() != DType::f32) throw DTypeError(describe(op, "chosen is not f32", {{"chosen", chosen}}, where));
    if (chosen.shape() != Shape{rows})
      throw ShapeError(describe(op, fmt::format("chosen is not [{}], one number for each row of x", rows),
                                {{"x", x}, {"chosen", chosen}}, where));
    if (chosen.device() != x.device())
      throw DeviceError(describe(op, "x and chosen are on different devices", {{"x", x}, {"chosen", chosen}}, where));
  }
  Shape shape = x.shape();
  shape[shape.rank() - 1] = weight.n;
  const graph::NodeRef product = graph::call_nodes(
      graph::packed_matmul_row(), {Tensor(graph::reshape(x.node(), {1, rows, weight.k})), weight.words, chosen},
      graph::words_of(graph::packed_matmul_row().attributes,
                      graph::PackedMatmul{static_cast<Extent>(weight.type), weight.n, weight.k, exact}),
      where)[0];
  const Tensor y = graph::wrap(graph::reshape(product, shape));
  return bias.defined() ? elementwise("add", {y, bias}, {}, where) : y;
}

Tensor packed_rows(const PackedMatrix& table, const Tensor& indices, Where where) {
  constexpr std::string_view op = "packed_rows";
  if (!indices.defined() || !table.words.defined()) throw UsageError("packed_rows: an operand has no value");
  if (indices.dtype() != DType::i32)
    throw DTypeError(describe(op, "indices are not i32", {{"indices", indices}}, where));
  if (indices.rank() != 1) throw ShapeError(describe(op, "indices are not [T]", {{"indices", indices}}, where));
  if (indices.device() != table.words.device())
    throw DeviceError(describe(op, "operands on different devices", {{"indices", indices}}, where));
  return graph::call(graph::unpack_rows_row(), {table.words, indices},
                     graph::UnpackRows{static_cast<Extent>(table.type), table.n, table.k}, where);
}

}  // namespace weft
