// Routines: irregular ops with a kernel of their own, which read and write whole contiguous values. One row each.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <string_view>

#include "weft/shape.hpp"

namespace weft::ops {

enum class Routine : std::uint8_t { write_rows, cache_attention, sample_token, unpack_rows };

struct RoutineRow {
  Routine routine;
  std::string_view name;
  /// The input whose memory the result may take over, or -1: its elements are those of the input but for what is written.
  int in_place;
  std::string_view doc;
};
std::span<const RoutineRow> routines();
const RoutineRow& row_of(Routine routine);

/// How rows of a cache keep their elements. f32: as they are. f16: two in a u32, the first in its low half. q8: blocks of
/// 32 elements as nine u32, the f32 scale (largest magnitude / 127) and then 32 signed bytes.
enum class CacheType : std::uint8_t { f32, f16, q8 };
std::string_view name_of(CacheType type);
/// 32-bit words of a row of `width` elements; 0 where the type has no such rows.
Extent row_words(CacheType type, Extent width);

/// Attributes travel as integers; reals as their bits.
inline Extent bits_of(double value) { return std::bit_cast<Extent>(value); }
inline double real_of(Extent bits) { return std::bit_cast<double>(bits); }

/// write_rows (cache [R, words], rows [T, W], at [T]): {type}.
struct WriteRows {
  CacheType type = CacheType::f32;
};
/// cache_attention (q [T, H, D], k [R, words], v [R, words], first [T], length [T]): {type, heads of k, scale, window,
/// soft cap, ring}.
struct CacheAttention {
  CacheType type = CacheType::f32;
  Extent kv_heads = 1;
  double scale = 1;
  Extent window = 0;    // 0: none
  double soft_cap = 0;  // 0: none
  Extent ring = 0;      // rows that the positions of a sequence share in turn; 0: each has its own
};
/// unpack_rows (weights, packed for the device, rows [T]): {block type, n}; k is the result's width.
struct UnpackRows {
  Extent block_type = 0, n = 0;
};
UnpackRows unpack_rows_of(std::span<const Extent> attributes);
WriteRows write_rows_of(std::span<const Extent> attributes);
CacheAttention cache_attention_of(std::span<const Extent> attributes);

}  // namespace weft::ops
