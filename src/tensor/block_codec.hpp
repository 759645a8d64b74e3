// Declares the functions of each family of block formats for the table in block_format.cpp, and helpers that read scales.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/half.hpp"

namespace weft::codec {

#define WEFT_BLOCK_CODEC(name)                                   \
  void dequantise_##name(const std::byte*, float*, std::size_t); \
  void quantise_##name(const float*, std::byte*, std::size_t);
WEFT_BLOCK_CODEC(f32)
WEFT_BLOCK_CODEC(f16)
WEFT_BLOCK_CODEC(bf16)
WEFT_BLOCK_CODEC(f64)
WEFT_BLOCK_CODEC(q4_0)
WEFT_BLOCK_CODEC(q4_1)
WEFT_BLOCK_CODEC(q5_0)
WEFT_BLOCK_CODEC(q5_1)
WEFT_BLOCK_CODEC(q8_0)
WEFT_BLOCK_CODEC(q2_k)
WEFT_BLOCK_CODEC(q3_k)
WEFT_BLOCK_CODEC(q4_k)
WEFT_BLOCK_CODEC(q5_k)
WEFT_BLOCK_CODEC(q6_k)
WEFT_BLOCK_CODEC(iq4_nl)
WEFT_BLOCK_CODEC(iq4_xs)
WEFT_BLOCK_CODEC(mxfp4)
#undef WEFT_BLOCK_CODEC
void dequantise_i8(const std::byte*, float*, std::size_t);
void dequantise_i16(const std::byte*, float*, std::size_t);
void dequantise_i32(const std::byte*, float*, std::size_t);
void dequantise_i64(const std::byte*, float*, std::size_t);

/// Values in files need not be aligned.
template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}
template <class T>
void store(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

inline float load_scale(const std::byte* at) { return f32_from_f16(load<std::uint16_t>(at)); }

/// The f16 nearest to a scale, as a float; finite, so that values too large saturate.
inline float rounded_scale(float scale) { return f32_from_f16(f16_from_f32(std::clamp(scale, -65504.0f, 65504.0f))); }
inline void store_scale(std::byte* at, float scale) { store(at, f16_from_f32(scale)); }

/// Half of the scale of MXFP4, 2^(exponent - 128): its table of values is doubled.
inline float half_scale(unsigned exponent) {
  return std::bit_cast<float>(exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23);
}

inline unsigned low_nibble(std::byte b) { return static_cast<unsigned>(b) & 15u; }
inline unsigned high_nibble(std::byte b) { return static_cast<unsigned>(b) >> 4; }
inline std::byte nibbles(int low, int high) { return static_cast<std::byte>(low | high << 4); }

/// The values of IQ4_NL and IQ4_XS: ascending, densest at 0, as weights are.
inline constexpr int kIq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
/// The values of e2m1 (MXFP4), doubled so that they are integers: the scale is halved instead. Bit 3 is the sign.
inline constexpr int kE2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

}  // namespace weft::codec
