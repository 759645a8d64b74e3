// The layout of weights in blocks in a GPU's memory: the values of every block format, exactly, in whole words, so that threads
// read 16 bytes at a time.
//
// A matrix W [n, k] is four runs of words, each begun at a multiple of 64: values, high bits, scales, factors. Each run
// has the blocks of 32 elements row after row (n * ceil(k / 32)). Of 32 elements, chunk c (0 to 7) is elements 4 c to
// 4 c + 3, and element i of a chunk is in byte i of a word:
//   values   nibble: 4 words; chunk c is in word c / 2, in the low halves of the bytes for even c, else the high ones.
//            byte: 8 words, signed. f16, bf16: 16 words, two elements each. f32: 32 words.
//   high     bits above the fourth: one plane a word with bit c of byte i, or two planes as two words with bits 2 (c % 4)
//            of word c / 4.
//   scales   half: f16 scale, f16 minimum; single: f32 scale; coded: signed bytes scale, minimum of elements 0 to 15,
//            scale, minimum of elements 16 to 31.
//   factors  coded only, one for eight blocks: f16 that scales, f16 that minimums are multiplied by.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tensor/block_format.hpp"

namespace weft::webgpu {

inline constexpr Extent kQuantBlock = 32;

enum class QuantValues : std::uint8_t { nibble, byte, f16, bf16, f32 };
enum class QuantScales : std::uint8_t { none, half, single, coded };

/// value = scale * (q - zero) + minimum.
struct QuantForm {
  QuantValues values = QuantValues::f16;
  QuantScales scales = QuantScales::none;
  bool has_minimum = false;
  int group = 32;  // elements that share a scale: 16 or 32
  int zero = 0;
  int planes = 0;  // of bits above the fourth

  Extent value_words() const {
    switch (values) {
      case QuantValues::nibble: return 4;
      case QuantValues::byte: return 8;
      case QuantValues::f16:
      case QuantValues::bf16: return 16;
      case QuantValues::f32: return 32;
    }
    return 0;
  }
};

/// Whether there are products with weights of this type.
bool has_quantised_products(BlockType type);
QuantForm quant_form(BlockType type);

/// First words of the runs of a matrix, and the total number of words.
struct QuantLayout {
  Extent blocks = 0;  // of a row
  Extent high = 0, scales = 0, factors = 0, words = 0;
};
QuantLayout quant_layout(const QuantForm& form, Extent n, Extent k);

/// Packs the blocks of a file, n rows of k elements. ShapeError unless k divides into blocks and the number of bytes fits.
std::vector<std::uint32_t> pack_quantised(BlockType type, std::span<const std::byte> blocks, Extent n, Extent k);
/// Restores the packed blocks, bit for bit, except that MXFP4's code of -0 becomes that of 0, because they are one byte here.
/// ShapeError as `pack_quantised`.
void unpack_quantised(BlockType type, std::span<const std::uint32_t> words, Extent n, Extent k,
                      std::span<std::byte> blocks);

}  // namespace weft::webgpu
