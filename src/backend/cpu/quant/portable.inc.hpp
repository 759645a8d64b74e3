// Vectors of 16 bytes for tile.inc.hpp: the compiler's portable ones, on x86 with SSE2 for missing operations.
#pragma once

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "backend/cpu/quant/tile.inc.hpp"

namespace weft::cpu {
namespace {

struct QuantPortable {
  typedef float Float __attribute__((vector_size(16)));
  typedef std::int32_t Int __attribute__((vector_size(16)));
  typedef std::uint32_t Words __attribute__((vector_size(16)));
  typedef std::uint8_t Bytes __attribute__((vector_size(16)));
  typedef float LooseFloat __attribute__((vector_size(16), aligned(4), may_alias));
  typedef std::int32_t LooseInt __attribute__((vector_size(16), aligned(4), may_alias));
  static constexpr const char* kName = "baseline";
  static constexpr bool kHasDot = true, kDotIsSigned = false;
  static constexpr int kLanes = 4;
  static constexpr int kWholeGroupRows = 1;
  static constexpr int kRuns = 1;
  static constexpr int kEightBitHeights[kQuantHeights] = {1, 4, 0, 0, 0};
  static constexpr int kExactHeights[kQuantHeights] = {1, 4, 0, 0, 0};

  static Float zero() { return Float{}; }
  static Float load(const float* p) { return *reinterpret_cast<const LooseFloat*>(p); }
  static void store(float* p, Float x) { *reinterpret_cast<LooseFloat*>(p) = x; }
  static Float broadcast(const float* p) { return Float{*p, *p, *p, *p}; }
  static Float add(Float x, Float y) { return x + y; }
  static Float multiply(Float x, Float y) { return x * y; }
  static Float multiply_add(Float x, Float y, Float z) { return x * y + z; }
  static Float to_float(Int x) { return __builtin_convertvector(x, Float); }
  static Float load_f16(const std::byte* p) {
    const Words half{at(p, 0), at(p, 1), at(p, 2), at(p, 3)};
    // The bits as an f32 whose exponent is 112 too small; infinity and NaN are too small by as much again.
    const Words magnitude = (half & 0x7FFFu) << 13;
    const Float scaled = reinterpret_cast<Float>(magnitude) * 0x1p112f;
    const Words special = reinterpret_cast<Words>(magnitude >= (0x7C00u << 13)) & 0x7F800000u;
    return reinterpret_cast<Float>(reinterpret_cast<Words>(scaled) | special | (half & 0x8000u) << 16);
  }
  static Float load_bf16(const std::byte* p) {
    return reinterpret_cast<Float>(Words{at(p, 0), at(p, 1), at(p, 2), at(p, 3)} << 16);
  }
  static Float load_i8(const std::byte* p) {
    const auto* q = reinterpret_cast<const std::int8_t*>(p);
    return Float{static_cast<float>(q[0]), static_cast<float>(q[1]), static_cast<float>(q[2]),
                 static_cast<float>(q[3])};
  }

  static Int zero_int() { return Int{}; }
  static Int load_int(const std::byte* p) { return *reinterpret_cast<const LooseInt*>(p); }
  static void store_int(std::byte* p, Int x) { *reinterpret_cast<LooseInt*>(p) = x; }
  static Int broadcast_int(const std::byte* p) { return *reinterpret_cast<const std::int32_t*>(p) - Int{}; }
  template <int kShift>
  static Int shift_left(const std::int32_t* p) {
    return (*p - Int{}) << kShift;
  }
  static Int low_nibbles(Int x) { return x & 0x0F0F0F0F; }
  static Int high_nibbles(Int x) { return reinterpret_cast<Int>(reinterpret_cast<Words>(x) >> 4) & 0x0F0F0F0F; }
  static Int look_up(const std::uint8_t* table, Int index) {
    Bytes bytes = reinterpret_cast<Bytes>(index);
    for (int i = 0; i < 16; ++i) bytes[i] = table[bytes[i]];
    return reinterpret_cast<Int>(bytes);
  }
  static Int add_bits(Int x, const std::byte* bits, int column, int value) {
    const unsigned mask = at(bits + column / 2, 0);
    const Bytes bit{1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    Bytes spread{};
    for (int i = 0; i < 16; ++i) spread[i] = static_cast<std::uint8_t>(mask >> i / 8 * 8);
    const Bytes set = reinterpret_cast<Bytes>((spread & bit) == bit);
    return x | reinterpret_cast<Int>(set & static_cast<std::uint8_t>(value));
  }
  static Int add_i32(Int x, Int y) { return x + y; }
  static Int byte_of(Int x, int t) { return reinterpret_cast<Int>(reinterpret_cast<Words>(x) >> 8 * t) & 255; }
  static Int subtract(Int x, int y) { return x - y; }

  static Int dot(Int sum, Int x, Int y) {
#if defined(__SSE2__)
    const __m128i a = reinterpret_cast<__m128i>(x), b = reinterpret_cast<__m128i>(y), zero = _mm_setzero_si128();
    const __m128i b_wide = _mm_srai_epi16(_mm_unpacklo_epi8(b, b), 8);  // all four of y are the same
    const __m128 low = _mm_castsi128_ps(_mm_madd_epi16(_mm_unpacklo_epi8(a, zero), b_wide));
    const __m128 high = _mm_castsi128_ps(_mm_madd_epi16(_mm_unpackhi_epi8(a, zero), b_wide));
    const __m128i even = _mm_castps_si128(_mm_shuffle_ps(low, high, 0x88));
    const __m128i odd = _mm_castps_si128(_mm_shuffle_ps(low, high, 0xDD));
    return sum + reinterpret_cast<Int>(_mm_add_epi32(even, odd));
#else
    for (int t = 0; t < 4; ++t) sum += byte_of(x, t) * ((y << (24 - 8 * t)) >> 24);
    return sum;
#endif
  }

 private:
  static std::uint32_t at(const std::byte* p, int i) { return reinterpret_cast<const std::uint16_t*>(p)[i]; }
};

}  // namespace
}  // namespace weft::cpu
