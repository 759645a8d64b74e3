// The storage formats of tensors in model files: plain numbers, and blocks of small integers that share scales.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/checked.hpp"
#include "weft/dtype.hpp"
#include "weft/error.hpp"
#include "weft/shape.hpp"

namespace weft {

/// The type of a tensor in a model file: plain numbers, or a type of blocks.
using BlockType = DType;

/// A format: what model files need to know of a type in addition to its row in weft/dtype.hpp, which gives the first five
/// fields. `dequantise` gives the values that the format defines, bit for bit as llama.cpp does; `quantise` searches scales for
/// a small sum of squared errors.
struct BlockFormat {
  BlockType type;
  std::string_view name;  ///< "Q4_K", in model files and on the command line
  std::uint32_t gguf_id;  ///< type of a tensor in GGUF
  std::size_t block_bytes;
  std::size_t block_elements;
  int file_type;  ///< general.file_type of a GGUF file mostly of this type; -1: none
  void (*dequantise)(const std::byte* blocks, float* values, std::size_t block_count);
  void (*quantise)(const float* values, std::byte* blocks, std::size_t block_count);  ///< nullptr for integers
  /// Index of the first block with a scale (of plain floats: a value) that is NaN or infinite, else `block_count`.
  std::size_t (*find_not_finite)(const std::byte* blocks, std::size_t block_count);

  bool is_plain() const { return block_elements == 1; }
  bool can_quantise() const { return quantise != nullptr; }
};

std::span<const BlockFormat> block_formats();
/// UsageError for a type that model files do not hold.
const BlockFormat& block_format(BlockType type);
/// "Q4_K", in model files.
inline std::string_view file_name_of(BlockType type) { return block_format(type).name; }

/// By name, in any case of letters ("q4_k"), if there is one.
const BlockFormat* find_block_format(std::string_view name);
/// By the number of a tensor type in GGUF, if there is one.
const BlockFormat* find_block_format(std::uint32_t gguf_id);
/// Name of a tensor type of GGUF that exists but is not read here ("IQ2_XXS"), for messages; else "".
std::string_view unread_gguf_type(std::uint32_t gguf_id);
/// All names, separated by commas, for messages; optionally only the types that values can be quantised to.
std::string block_format_list(bool can_quantise_only = false);

/// Whether rows of this many elements divide into blocks.
inline bool rows_divide(BlockType type, Extent row_elements) {
  return row_elements % static_cast<Extent>(block_format(type).block_elements) == 0;
}

/// Bytes of `elements` values. E, opened by `context`, unless they divide into blocks and the result fits 64 bits.
template <class E = FileError>
std::uint64_t bytes_for(BlockType type, std::uint64_t elements, std::string_view context) {
  const BlockFormat& format = block_format(type);
  if (elements % format.block_elements != 0)
    throw E(fmt::format("{}: {} elements do not divide into blocks of {} ({})", context, elements,
                        format.block_elements, format.name));
  return checked_multiply<E, std::uint64_t>(elements / format.block_elements, format.block_bytes, context);
}
/// Bytes of a tensor; its rows (the last axis) divide into blocks, else E, as for extents that overflow.
template <class E = FileError>
std::uint64_t bytes_for(BlockType type, const Shape& shape, std::string_view context) {
  const std::uint64_t count = checked_numel<E>(shape, context);
  const BlockFormat& format = block_format(type);
  const Extent row = shape.empty() ? 1 : shape.back();
  if (!rows_divide(type, row))
    throw E(fmt::format("{}: rows of {} elements do not divide into blocks of {} ({})", context, row,
                        format.block_elements, format.name));
  return bytes_for<E>(type, count, context);
}

/// The values of whole blocks. i64 and f64 are rounded. UsageError unless the sizes fit.
void dequantise(BlockType type, std::span<const std::byte> blocks, std::span<float> values);
/// Whole blocks of values. UsageError unless the sizes fit, for formats without `quantise`, and, but for plain formats,
/// for values that are not finite. Values too large for the format's scales saturate.
void quantise(BlockType type, std::span<const float> values, std::span<std::byte> blocks);
/// Index of the first element of the first block with a scale or plain value that is not finite, if there is one.
/// UsageError unless `blocks` are whole blocks.
std::optional<std::uint64_t> find_not_finite(BlockType type, std::span<const std::byte> blocks);

}  // namespace weft
