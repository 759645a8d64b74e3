// Matrices in the layout that a device's products with weights read: tensors of blocks, and matrices of f32, f16 and bf16
// that were packed.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/function_ref.hpp"
#include "tensor/block_format.hpp"
#include "weft/tensor.hpp"

namespace weft {
namespace backend {
class SharedMemory;
class WeightPacking;
}  // namespace backend

/// Whether the device has products with matrices of this type.
bool can_pack(BlockType type, Device device);
struct PackOptions {
  backend::SharedMemory* memory = nullptr;  ///< of `WeightPacking::shared_memory`
  /// Called with each part of `blocks`, in order, before it is read; parts before it are not read again.
  FunctionRef<void(std::span<const std::byte> part)> before = {};
};
/// A tensor of this shape, whose last axis is columns, from the blocks (or elements) of a file, row by row. Only products and
/// row gathers read it. All tensors of block types are packed. Errors: DTypeError if the device cannot; ShapeError for a shape
/// without axes, columns that do not divide into blocks, or `blocks` of another size than the rows.
Tensor pack_matrix(BlockType type, std::span<const std::byte> blocks, const Shape& shape, Device device,
                   const PackOptions& options = {});
/// A tensor of this kind without memory, which plans can be made with and nothing can be run with. Errors as above.
Tensor matrix_without_values(BlockType type, const Shape& shape, Device device);
/// The blocks of such a tensor in memory. UsageError unless `blocks` has the right size.
void unpack_matrix(const Tensor& matrix, std::span<std::byte> blocks);

/// How the device packs weights; null if it has no products with packed weights.
const backend::WeightPacking* weight_packing(Device device);

/// Whether a tensor is packed, and the bytes that it takes.
bool is_packed_matrix(const Tensor& tensor);
std::size_t packed_size(const Tensor& matrix);
/// The packed bytes, and a tensor of this shape over such bytes, which `owner` keeps; they begin at a multiple of 64 and are only
/// read. For devices whose packed weights can be kept (`WeightPacking::can_keep`). UsageError for fewer bytes than it takes.
/// Packed bytes of another process can be used if `WeightPacking::layout_digest` of the type is the same.
std::span<const std::byte> packed_bytes(const Tensor& matrix);
Tensor matrix_over(BlockType type, const Shape& shape, std::span<const std::byte> packed,
                   std::shared_ptr<const void> owner, Device device = {});

}  // namespace weft
