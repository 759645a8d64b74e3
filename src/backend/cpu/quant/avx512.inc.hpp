// Vectors of 64 bytes for tile.inc.hpp, with or without the instruction for dot products of four bytes.
#pragma once

#include <immintrin.h>

#include "backend/cpu/quant/tile.inc.hpp"

namespace weft::cpu {
namespace {

struct QuantAvx512 {
  using Float = __m512;
  using Int = __m512i;
  static constexpr int kLanes = 16;
  static constexpr int kWholeGroupRows = 16;
  static constexpr int kRuns = 4;  // of memory at once, for one row
  static constexpr int kExactHeights[kQuantHeights] = {1, 2, 4, 8, 0};

  static Float zero() { return _mm512_setzero_ps(); }
  static Float load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, Float x) { _mm512_storeu_ps(p, x); }
  static Float broadcast(const float* p) { return _mm512_set1_ps(*p); }
  static Float add(Float x, Float y) { return _mm512_add_ps(x, y); }
  static Float multiply(Float x, Float y) { return _mm512_mul_ps(x, y); }
  static Float multiply_add(Float x, Float y, Float z) { return _mm512_fmadd_ps(x, y, z); }
  static Float to_float(Int x) { return _mm512_cvtepi32_ps(x); }
  static Float load_f16(const std::byte* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static Float load_bf16(const std::byte* p) {
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))), 16));
  }
  static Float load_i8(const std::byte* p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  }

  static Int zero_int() { return _mm512_setzero_si512(); }
  static Int load_int(const std::byte* p) { return _mm512_loadu_si512(p); }
  static void store_int(std::byte* p, Int x) { _mm512_storeu_si512(p, x); }
  static Int broadcast_int(const std::byte* p) { return _mm512_set1_epi32(*reinterpret_cast<const std::int32_t*>(p)); }
  template <int kShift>
  static Int shift_left(const std::int32_t* p) {
    return _mm512_slli_epi32(_mm512_set1_epi32(*p), kShift);
  }
  static Int low_nibbles(Int x) { return _mm512_and_si512(x, _mm512_set1_epi8(15)); }
  static Int high_nibbles(Int x) { return _mm512_and_si512(_mm512_srli_epi16(x, 4), _mm512_set1_epi8(15)); }
  static Int look_up(const std::uint8_t* table, Int index) {
    const __m128i row = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(row), index);
  }
  static Int add_bits(Int x, const std::byte* bits, int, int value) {
    const __mmask64 mask = *reinterpret_cast<const std::uint64_t*>(bits);
    return _mm512_mask_add_epi8(x, mask, x, _mm512_set1_epi8(static_cast<char>(value)));
  }
  static Int add_i32(Int x, Int y) { return _mm512_add_epi32(x, y); }
  static Int add_i16(Int x, Int y) { return _mm512_add_epi16(x, y); }
  static Int multiply_pairs(Int x, Int y) { return _mm512_maddubs_epi16(x, y); }
  static Int widen_pairs(Int x) { return _mm512_madd_epi16(x, _mm512_set1_epi16(1)); }
  static Int flip_top_bits(Int x) { return _mm512_xor_si512(x, _mm512_set1_epi8(-128)); }
  static Int magnitude(Int x) { return _mm512_abs_epi8(x); }
  static Int with_sign_of(Int x, Int sign) {
    return _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(sign), _mm512_setzero_si512(), x);
  }
  static Int byte_of(Int x, int t) {
    const Int shifted = t == 0 ? x : _mm512_srli_epi32(x, 8 * t);
    return t == 3 ? shifted : _mm512_and_si512(shifted, _mm512_set1_epi32(255));
  }
  static Int subtract(Int x, int y) { return y == 0 ? x : _mm512_sub_epi32(x, _mm512_set1_epi32(y)); }
};

}  // namespace
}  // namespace weft::cpu
