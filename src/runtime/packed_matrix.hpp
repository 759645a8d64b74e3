// Matrices that stay in blocks on the device: packed once, multiplied and read from without becoming f32.
#pragma once

#include <cstddef>
#include <span>

#include "base/function_ref.hpp"
#include "tensor/block_format.hpp"
#include "weft/tensor.hpp"

namespace weft {
namespace backend {
class SharedMemory;
class WeightPacking;
}  // namespace backend

/// W [n, k] in a layout of the device's own. `words` are its memory and mean nothing elsewhere.
struct PackedMatrix {
  Tensor words;  // u32
  BlockType type = BlockType::f32;
  Extent n = 0, k = 0;

  std::size_t bytes() const { return static_cast<std::size_t>(words.numel()) * 4; }
};

/// Whether the device has products with matrices of this type.
bool can_pack(BlockType type, Device device);
struct PackOptions {
  backend::SharedMemory* memory = nullptr;  ///< of `WeightPacking::shared_memory`
  /// Called with each part of `blocks`, in order, before it is read; parts before it are not read again.
  FunctionRef<void(std::span<const std::byte> part)> before = {};
};
/// From the blocks of a file, row by row. Errors: DTypeError if the device cannot; ShapeError if k does not divide into
/// blocks, or `blocks` are not n rows.
PackedMatrix pack_matrix(BlockType type, std::span<const std::byte> blocks, Extent n, Extent k, Device device,
                         const PackOptions& options = {});

/// How the device packs weights; null where it has no products with them.
const backend::WeightPacking* weight_packing(Device device);

/// The packed bytes, and a matrix over such bytes, which `owner` keeps; they begin at a multiple of 64 and are only read. For
/// devices whose packed weights can be kept (`WeightPacking::can_keep`). UsageError for fewer bytes than it takes. Where
/// `WeightPacking::layout_digest` of a type is the same, bytes of another process serve as well.
std::span<const std::byte> packed_bytes(const PackedMatrix& matrix);
PackedMatrix matrix_over(BlockType type, Extent n, Extent k, std::span<const std::byte> packed,
                         std::shared_ptr<const void> owner, Device device = {});

/// x W^T + b; b [n] may be undefined. Not exact, x may be rounded to eight bits, a scale for each 32 elements of a row.
/// Where `chosen` is given, rows of x for which it is zero are left out: x W^T is zero there, whatever x and W hold, and
/// W is not read where no row is chosen.
///
/// Shapes    x [..., k] -> [..., n]; chosen [the number of rows of x]
/// Dtypes    f32
/// Errors    ShapeError, DTypeError, DeviceError as `linear`. No gradient: packed weights do not train
Tensor packed_linear(const Tensor& x, const PackedMatrix& weight, const Tensor& bias = {}, bool exact = false,
                     const Tensor& chosen = {}, Where where = Where::current());
/// Rows of W by i32 index [T] -> f32 [T, k], the values that the blocks stand for. An index outside reads zeros.
Tensor packed_rows(const PackedMatrix& table, const Tensor& indices, Where where = Where::current());

}  // namespace weft
