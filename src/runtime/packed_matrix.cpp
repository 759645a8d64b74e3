#include "runtime/packed_matrix.hpp"

#include <fmt/format.h>

#include "backend/contract.hpp"
#include "graph/packed.hpp"
#include "runtime/devices.hpp"
#include "runtime/runtime_state.hpp"

namespace weft {
namespace {

/// A leaf in the packed layout. Types of blocks have no other.
Tensor packed_leaf(DType type, const Shape& shape, Device device, backend::BufferPtr buffer) {
  graph::NodeRef node = graph::make_node(
      {.kind = graph::Kind::data, .type = type, .shape = shape, .device = device, .packed = !is_block(type)});
  node->storage.set(std::make_unique<runtime::BufferStorage>(std::move(buffer)));
  return Tensor(std::move(node));
}

const backend::WeightPacking& packing_for(DType type, Device device) {
  const backend::WeightPacking* packing = weight_packing(device);
  if (!packing || !packing->supports(type))
    throw DTypeError(fmt::format("{} has no products with {}; cast it to f32 on the CPU, then move the result",
                                 device.to_string(), name_of(type)));
  return *packing;
}

}  // namespace

const backend::WeightPacking* weight_packing(Device device) { return runtime::backend_of(device).weight_packing(); }

bool can_pack(BlockType type, Device device) {
  const backend::WeightPacking* packing = weight_packing(device);
  return packing && packing->supports(type);
}

Tensor pack_matrix(BlockType type, std::span<const std::byte> blocks, const Shape& shape, Device device,
                   const PackOptions& options) {
  const backend::WeightPacking& packing = packing_for(type, device);
  graph::check_block_shape("tensor", type, shape);
  constexpr std::string_view label = "weights in blocks";
  const Extent n = graph::rows_of(shape), k = graph::columns_of(shape);
  const std::size_t bytes = packing.packed_bytes(type, n, k);
  const backend::BufferPtr buffer =
      options.memory ? options.memory->allocate(bytes, label) : runtime::allocate(device, bytes, label);
  packing.pack(type, blocks, n, k, *buffer, options.before);
  return packed_leaf(type, shape, device, buffer);
}

Tensor matrix_without_values(BlockType type, const Shape& shape, Device device) {
  packing_for(type, device);
  graph::check_block_shape("tensor", type, shape);
  return packed_leaf(type, shape, device, runtime::allocate(device, 0, "weights in blocks"));
}

void unpack_matrix(const Tensor& matrix, std::span<std::byte> blocks) {
  const graph::Node& node = *matrix.node();
  // A value in memory may be read from any session.
  const backend::Backend& backend = *graph::session_of(node).part<runtime::RuntimeState>().device(node.device).backend;
  backend.weight_packing()->unpack(node.type, *runtime::buffer_of(node), graph::rows_of(node.shape),
                                   graph::columns_of(node.shape), blocks);
}

bool is_packed_matrix(const Tensor& tensor) { return graph::has_packed_layout(*tensor.node()); }

std::size_t packed_size(const Tensor& matrix) {
  return packing_for(matrix.dtype(), matrix.device())
      .packed_bytes(matrix.dtype(), graph::rows_of(matrix.shape()), graph::columns_of(matrix.shape()));
}

std::span<const std::byte> packed_bytes(const Tensor& matrix) {
  return packing_for(matrix.dtype(), matrix.device())
      .view(*runtime::buffer_of(*matrix.node()))
      .first(packed_size(matrix));
}

Tensor matrix_over(BlockType type, const Shape& shape, std::span<const std::byte> packed,
                   std::shared_ptr<const void> owner, Device device) {
  const backend::WeightPacking& packing = packing_for(type, device);
  const std::size_t bytes = packing.packed_bytes(type, graph::rows_of(shape), graph::columns_of(shape));
  if (packed.size() < bytes)
    throw UsageError(fmt::format("packed matrix: {} {} takes {} bytes, and {} are given", name_of(type),
                                 shape.to_string(), bytes, packed.size()));
  return packed_leaf(type, shape, device, packing.borrow(std::move(owner), packed.first(bytes)));
}

}  // namespace weft
