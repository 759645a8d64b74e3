// Vectors of 32 bytes for tile.inc.hpp.
#pragma once

#include <immintrin.h>

#include "backend/cpu/quant/tile.inc.hpp"

namespace weft::cpu {
namespace {

struct QuantAvx2 {
  using Float = __m256;
  using Int = __m256i;
  static constexpr int kLanes = 8;
  static constexpr int kWholeGroupRows = 2;
  static constexpr int kRuns = 1;
  static constexpr int kExactHeights[kQuantHeights] = {1, 2, 4, 0, 0};

  static Float zero() { return _mm256_setzero_ps(); }
  static Float load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, Float x) { _mm256_storeu_ps(p, x); }
  static Float broadcast(const float* p) { return _mm256_broadcast_ss(p); }
  static Float add(Float x, Float y) { return _mm256_add_ps(x, y); }
  static Float multiply(Float x, Float y) { return _mm256_mul_ps(x, y); }
  static Float multiply_add(Float x, Float y, Float z) { return _mm256_fmadd_ps(x, y, z); }
  static Float to_float(Int x) { return _mm256_cvtepi32_ps(x); }
  static Float load_f16(const std::byte* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static Float load_bf16(const std::byte* p) {
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 16));
  }
  static Float load_i8(const std::byte* p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
  }

  static Int zero_int() { return _mm256_setzero_si256(); }
  static Int load_int(const std::byte* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
  static Int broadcast_int(const std::byte* p) { return _mm256_set1_epi32(*reinterpret_cast<const std::int32_t*>(p)); }
  template <int kShift>
  static Int shift_left(const std::int32_t* p) {
    return _mm256_slli_epi32(_mm256_set1_epi32(*p), kShift);
  }
  static Int low_nibbles(Int x) { return _mm256_and_si256(x, _mm256_set1_epi8(15)); }
  static Int high_nibbles(Int x) { return _mm256_and_si256(_mm256_srli_epi16(x, 4), _mm256_set1_epi8(15)); }
  static Int look_up(const std::uint8_t* table, Int index) {
    const __m128i row = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(row), index);
  }
  static Int add_bits(Int x, const std::byte* bits, int column, int value) {
    const Int all = _mm256_set1_epi32(*reinterpret_cast<const std::int32_t*>(bits + column / 2));
    const Int spread =
        _mm256_shuffle_epi8(all, _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303));
    const Int bit = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201));
    const Int set = _mm256_cmpeq_epi8(_mm256_and_si256(spread, bit), bit);
    return _mm256_or_si256(x, _mm256_and_si256(set, _mm256_set1_epi8(static_cast<char>(value))));
  }
  static Int add_i32(Int x, Int y) { return _mm256_add_epi32(x, y); }
  static Int add_i16(Int x, Int y) { return _mm256_add_epi16(x, y); }
  static Int multiply_pairs(Int x, Int y) { return _mm256_maddubs_epi16(x, y); }
  static Int widen_pairs(Int x) { return _mm256_madd_epi16(x, _mm256_set1_epi16(1)); }
  static Int flip_top_bits(Int x) { return _mm256_xor_si256(x, _mm256_set1_epi8(-128)); }
  static Int magnitude(Int x) { return _mm256_abs_epi8(x); }
  static Int with_sign_of(Int x, Int sign) { return _mm256_sign_epi8(x, sign); }
  static Int byte_of(Int x, int t) {
    const Int shifted = t == 0 ? x : _mm256_srli_epi32(x, 8 * t);
    return t == 3 ? shifted : _mm256_and_si256(shifted, _mm256_set1_epi32(255));
  }
  static Int subtract(Int x, int y) { return y == 0 ? x : _mm256_sub_epi32(x, _mm256_set1_epi32(y)); }
};

}  // namespace
}  // namespace weft::cpu
