// Layouts of the K formats in their 256-element blocks, for both directions. In each layout element 128 h + 32 j + l (h < 2,
// j < 4, l < 32) is one of those that share the bytes at l.
//
//   Q2_K  16 bytes: scale low, minimum high nibble, of 16 elements each; 64 bytes of 2 bits; d; dmin
//                                                                                    d scale q - dmin minimum
//   Q3_K  32 bytes of third bits; 64 bytes of 2 bits; 12 bytes of 16 6-bit scales; d   d (scale - 32) (q - 4)
//   Q4_K  d; dmin; 12 bytes of 8 6-bit scales and minimums, of 32 elements; 128 bytes of nibbles
//                                                                                    d scale q - dmin minimum
//   Q5_K  as Q4_K, with 32 bytes of fifth bits before the nibbles
//   Q6_K  128 bytes of nibbles; 64 bytes of high 2 bits; 16 signed scales; d          d scale (q - 32)
#pragma once

#include "tensor/block_codec.hpp"

namespace weft::codec {

inline constexpr int kSuper = 256;

/// Scale and minimum of group j < 8 in the 12 bytes of Q4_K and Q5_K. The first four of each are the low six bits of
/// bytes 0-3 and 4-7; of the last four the low nibbles are in bytes 8-11, the high two bits on top of the first ones.
struct ScaleAndMinimum {
  unsigned scale, minimum;
};
inline ScaleAndMinimum load_pair(const std::byte* at, int j) {
  const auto byte = [&](int i) { return static_cast<unsigned>(at[i]); };
  if (j < 4) return {byte(j) & 63u, byte(j + 4) & 63u};
  return {(byte(j + 4) & 15u) | byte(j - 4) >> 6 << 4, byte(j + 4) >> 4 | byte(j) >> 6 << 4};
}
inline void store_pairs(std::byte* at, const int* scales, const int* minimums) {
  for (int j = 0; j < 4; ++j) {
    at[j] = static_cast<std::byte>(scales[j] | scales[j + 4] >> 4 << 6);
    at[j + 4] = static_cast<std::byte>(minimums[j] | minimums[j + 4] >> 4 << 6);
    at[j + 8] = static_cast<std::byte>((scales[j + 4] & 15) | (minimums[j + 4] & 15) << 4);
  }
}

/// Scale j < 16 of Q3_K, 0 to 63: low nibbles in bytes 0-7 (8 on follow in their high halves), high bits in bytes 8-11.
inline unsigned load_q3_scale(const std::byte* at, int j) {
  const unsigned low = static_cast<unsigned>(at[j % 8]) >> 4 * (j / 8) & 15u;
  return low | (static_cast<unsigned>(at[8 + j % 4]) >> 2 * (j / 4) & 3u) << 4;
}
inline void store_q3_scales(std::byte* at, const int* scales) {
  for (int j = 0; j < 8; ++j) at[j] = nibbles(scales[j] & 15, scales[j + 8] & 15);
  for (int j = 0; j < 4; ++j)
    at[8 + j] = static_cast<std::byte>(scales[j] >> 4 | scales[j + 4] >> 4 << 2 | scales[j + 8] >> 4 << 4 |
                                       scales[j + 12] >> 4 << 6);
}

}  // namespace weft::codec
