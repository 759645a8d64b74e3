// The layout of weights in blocks for the CPU's quantised products: the values of every block format, exactly, in an order that
// kernels of all instruction sets read sequentially.
//
// A matrix W[n, k] is stored in groups of 16 rows, and a group in chunks of 1, 2 or 8 blocks of 32 along k, each with its
// scales first, so that a product reads memory sequentially. The values of a block are eight words of 64 bytes; byte 4 c + t of
// word g is the unsigned integer of row c at k = 4 g + t, so that one instruction for dot products of four bytes multiplies a
// word with four activations. Four-bit values share a byte: words g and g + 4 are the low and the high halves of the g-th 64
// bytes; bits above the fourth follow as one mask of 64 bits a word. Plain floats have the layout [k][16].
#pragma once

#include <cstdint>

#include "tensor/block_format.hpp"

namespace weft::cpu {

inline constexpr int kQuantGroup = 16;  // rows of W that are stored together
inline constexpr int kQuantBlock = 32;  // elements of k in a block
inline constexpr int kQuantSuper = 8;   // blocks that share an f16 scale of scales

enum class QuantValues : std::uint8_t {
  nibble,
  iq4_table,
  e2m1_table,
  nibble_and_bit,
  nibble_and_two_bits,
  byte,
  f32,
  f16,
  bf16
};
/// half: an f16 for each block; single: an f32; coded: signed bytes times an f16 for every 256 elements.
enum class QuantScales : std::uint8_t { none, half, single, coded };

/// value = scale * (q - zero) + minimum, with q in [0, max].
struct QuantFormat {
  QuantValues values = QuantValues::f32;
  QuantScales scales = QuantScales::none;
  bool has_minimum = false;
  int scales_per_block = 1;  // 2: of 16 elements each
  int zero_shift = -1;       // zero = 1 << zero_shift; -1: zero = 0
  int max = 0;

  constexpr bool is_plain() const { return scales == QuantScales::none; }
  constexpr int zero() const { return zero_shift < 0 ? 0 : 1 << zero_shift; }
  constexpr int planes() const {
    return values == QuantValues::nibble_and_bit ? 1 : values == QuantValues::nibble_and_two_bits ? 2 : 0;
  }
  /// Bytes of the values of a block of a group.
  constexpr std::int64_t value_bytes() const {
    constexpr std::int64_t kCount = kQuantGroup * kQuantBlock;
    switch (values) {
      case QuantValues::f32: return 4 * kCount;
      case QuantValues::f16:
      case QuantValues::bf16: return 2 * kCount;
      case QuantValues::byte: return kCount;
      default: return kCount / 2 + planes() * kCount / 8;
    }
  }
  /// Blocks whose scales are stored together, before their values: as many as fill cache lines, or share a factor.
  constexpr int chunk_blocks() const {
    return scales == QuantScales::coded ? kQuantSuper : scales == QuantScales::half ? 2 : 1;
  }
  /// Bytes of the scales of a chunk, in whole lines. half: scales of 16 rows, block after block, then minimums; coded: 16
  /// factors of scales, then of minimums, then signed codes of scales, of minimums, 16 of each in turn.
  constexpr std::int64_t scale_bytes() const {
    const int kinds = has_minimum ? 2 : 1;
    std::int64_t bytes = 0;
    if (scales == QuantScales::half) bytes = kQuantGroup * 2 * kinds * chunk_blocks();
    if (scales == QuantScales::single) bytes = kQuantGroup * 4;
    if (scales == QuantScales::coded) bytes = kQuantGroup * kinds * (2 + kQuantSuper * scales_per_block);
    return (bytes + 63) / 64 * 64;
  }
  constexpr std::int64_t chunk_bytes() const { return scale_bytes() + value_bytes() * chunk_blocks(); }
  /// The start of block `b`'s chunk in a group, and the start of the block's values.
  constexpr std::int64_t chunk_at(std::int64_t b) const { return b / chunk_blocks() * chunk_bytes(); }
  constexpr std::int64_t values_at(std::int64_t b) const {
    return chunk_at(b) + scale_bytes() + b % chunk_blocks() * value_bytes();
  }
  /// The last chunk ends with its last block.
  constexpr std::int64_t group_bytes(std::int64_t blocks) const {
    return blocks == 0 ? 0 : values_at(blocks - 1) + value_bytes();
  }
};

/// The formats that have products, in the order of the kernels' tables.
inline constexpr BlockType kQuantTypes[] = {
    BlockType::f32,  BlockType::f16,    BlockType::bf16,   BlockType::q4_0,  BlockType::q4_1, BlockType::q5_0,
    BlockType::q5_1, BlockType::q8_0,   BlockType::q2_k,   BlockType::q3_k,  BlockType::q4_k, BlockType::q5_k,
    BlockType::q6_k, BlockType::iq4_nl, BlockType::iq4_xs, BlockType::mxfp4,
};
inline constexpr int kQuantTypeCount = sizeof kQuantTypes / sizeof kQuantTypes[0];

/// Index of a type in kQuantTypes; -1 if it has no products.
constexpr int quant_index(BlockType type) {
  for (int i = 0; i < kQuantTypeCount; ++i)
    if (kQuantTypes[i] == type) return i;
  return -1;
}

constexpr QuantFormat quant_format(BlockType type) {
  using V = QuantValues;
  using S = QuantScales;
  switch (type) {
    case BlockType::f16: return {.values = V::f16};
    case BlockType::bf16: return {.values = V::bf16};
    case BlockType::q4_0: return {.values = V::nibble, .scales = S::half, .zero_shift = 3, .max = 15};
    case BlockType::q4_1: return {.values = V::nibble, .scales = S::half, .has_minimum = true, .max = 15};
    case BlockType::q5_0: return {.values = V::nibble_and_bit, .scales = S::half, .zero_shift = 4, .max = 31};
    case BlockType::q5_1: return {.values = V::nibble_and_bit, .scales = S::half, .has_minimum = true, .max = 31};
    case BlockType::q8_0: return {.values = V::byte, .scales = S::half, .zero_shift = 7, .max = 255};
    case BlockType::q2_k:
      return {.values = V::nibble, .scales = S::coded, .has_minimum = true, .scales_per_block = 2, .max = 3};
    case BlockType::q3_k:
      return {.values = V::nibble, .scales = S::coded, .scales_per_block = 2, .zero_shift = 2, .max = 7};
    case BlockType::q4_k: return {.values = V::nibble, .scales = S::coded, .has_minimum = true, .max = 15};
    case BlockType::q5_k: return {.values = V::nibble_and_bit, .scales = S::coded, .has_minimum = true, .max = 31};
    case BlockType::q6_k:
      return {.values = V::nibble_and_two_bits, .scales = S::coded, .scales_per_block = 2, .zero_shift = 5, .max = 63};
    case BlockType::iq4_nl: return {.values = V::iq4_table, .scales = S::half, .zero_shift = 7, .max = 241};
    case BlockType::iq4_xs: return {.values = V::iq4_table, .scales = S::coded, .zero_shift = 7, .max = 241};
    case BlockType::mxfp4: return {.values = V::e2m1_table, .scales = S::single, .zero_shift = 4, .max = 28};
    default: return {};
  }
}

/// The entries of the tables plus their zero: IQ4's of 128, twice those of e2m1 of 16.
inline constexpr std::uint8_t kIq4Values[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                                129, 141, 153, 166, 181, 197, 217, 241};
inline constexpr std::uint8_t kE2m1Values[16] = {16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4};

}  // namespace weft::cpu
