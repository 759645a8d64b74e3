// Casts between types of 8 and 16 bits and the types that they compute in. The bits are those of tensor/element.hpp on every
// instruction set; but f16 to f32 makes a signalling NaN quiet.
#pragma once

#include <array>

#include "backend/cpu/loop/tile_kernels.inc.hpp"
#include "tensor/element.hpp"

namespace weft::cpu {
namespace {

template <int N>
using Words = V<std::uint32_t, N>;

/// Floats of f16 bits.
inline F floats_of_f16(V<std::uint16_t, kFloats> half) {
#if defined(__AVX512F__)
  return (F)_mm512_cvtph_ps((__m256i)half);
#elif defined(__F16C__)
  return (F)_mm256_cvtph_ps((__m128i)half);
#elif defined(__aarch64__)
  return vcvt_f32_f16(vreinterpret_f16_u16(half));
#else
  const U h = __builtin_convertvector(half, U), rest = h & 0x7FFFu;
  U bits = (U)((F)(rest << 13) * 0x1p112f);  // the product adjusts the exponent, and also handles denormals
  bits = rest >= 0x7C00u ? (rest << 13) + ((255u - 31u) << 23) : bits;
  bits = rest > 0x7C00u ? bits | 0x400000u : bits;
  return (F)(bits | (h & 0x8000u) << 16);
#endif
}

template <int N>
inline V<std::uint16_t, N> f16_of_floats(V<float, N> x) {
#if defined(__AVX512F__)
  if constexpr (N == 16)
    return (V<std::uint16_t, N>)_mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif defined(__aarch64__)
  if constexpr (N == 4) return vreinterpret_u16_f16(vcvt_f16_f32(x));
#endif
  using W = Words<N>;
  const W bits = (W)x, rest = bits & 0x7FFFFFFFu;
  // Below 2^-14 the last place of the sum is the unit of a denormal f16, so the sum rounds there.
  const W small = (W)((V<float, N>)rest + 0.5f) - 0x3F000000u;
  const W normal = (rest + 0xFFFu + (rest >> 13 & 1u) - ((127u - 15u) << 23)) >> 13;
  W half = rest < 0x38800000u ? small : normal;
  half = rest >= 0x47800000u ? W{} + 0x7C00u : half;
  half = rest > 0x7F800000u ? 0x7E00u | (rest >> 13 & 0x3FFu) : half;
  return __builtin_convertvector(half | (bits >> 16 & 0x8000u), V<std::uint16_t, N>);
}

inline F floats_of_bf16(V<std::uint16_t, kFloats> x) { return (F)(__builtin_convertvector(x, U) << 16); }

template <int N>
inline V<std::uint16_t, N> bf16_of_floats(V<float, N> x) {
  using W = Words<N>;
  const W bits = (W)x;
  const W rounded = (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
  const W kept = (bits & 0x7FFFFFFFu) > 0x7F800000u ? bits >> 16 | 0x40u : rounded;
  return __builtin_convertvector(kept, V<std::uint16_t, N>);
}

/// Doubles as floats that later round as the doubles would: inexact values are truncated and get an odd last bit.
inline HalfF to_odd(D x) {
  using M = V<std::int32_t, kDoubles>;
  const HalfF nearest = __builtin_convertvector(x, HalfF);
  const D back = __builtin_convertvector(nearest, D);
  const M inexact = __builtin_convertvector((back < x) | (back > x), M);
  const M beyond = __builtin_convertvector(abs(back) > abs(x), M);
  M bits = (M)nearest + beyond;  // true is -1
  bits |= inexact & 1;
  return (HalfF)bits;
}

/// The codes of a small float: `exponent_bits` and `fraction` bits below a sign.
template <int exponent_bits, int fraction, int bias, int highest, bool has_infinity, bool has_nan, int N>
inline V<std::uint8_t, N> small_of_floats(V<float, N> x) {
  using W = Words<N>;
  constexpr std::uint32_t kDrop = 23 - fraction, kHalf = (1u << (kDrop - 1)) - 1, kNormal = (127 - bias + 1) << 23,
                          kUnit = static_cast<std::uint32_t>(127 + 1 - bias - fraction + 23) << 23;
  const W bits = (W)x, rest = bits & 0x7FFFFFFFu;
  const W small = (W)((V<float, N>)rest + __builtin_bit_cast(float, kUnit)) - kUnit;
  const W normal = ((rest + kHalf + (rest >> kDrop & 1u)) >> kDrop) - ((127u - bias) << fraction);
  W code = rest < kNormal ? small : normal;
  code = code > static_cast<std::uint32_t>(highest) ? W{} + static_cast<std::uint32_t>(highest) : code;
  constexpr std::uint32_t kOnes = ((1u << exponent_bits) - 1) << fraction;
  if constexpr (has_infinity) code = rest == 0x7F800000u ? W{} + kOnes : code;
  const std::uint32_t nan = kOnes | (has_infinity ? 1u << (fraction - 1) : (1u << fraction) - 1);
  const W sign = bits >> 31 << (exponent_bits + fraction);
  const W signed_code = code | sign;
  if constexpr (has_nan)
    return __builtin_convertvector(rest > 0x7F800000u ? nan | sign : signed_code, V<std::uint8_t, N>);
  return __builtin_convertvector(rest > 0x7F800000u ? W{} : signed_code, V<std::uint8_t, N>);
}

/// The values of such codes: their bits as those of a float, times a factor that adjusts the exponent. Denormals are also
/// correct. Bits above those of a code are ignored, here and below.
template <int exponent_bits, int fraction, int bias, bool has_infinity, bool has_nan>
inline F floats_of_small(U code) {
  const U sign = code >> (exponent_bits + fraction) & 1u;
  constexpr std::uint32_t kMask = (1u << (exponent_bits + fraction)) - 1,
                          kOnes = ((1u << exponent_bits) - 1) << fraction,
                          kScale = static_cast<std::uint32_t>(127 + 127 - bias) << 23;
  const U rest = code & kMask;
  U bits = (U)((F)(rest << (23 - fraction)) * __builtin_bit_cast(float, kScale));
  if constexpr (has_infinity) bits = rest == kOnes ? U{} + 0x7F800000u : bits;
  bits |= sign << 31;
  if constexpr (has_nan && has_infinity) bits = rest > kOnes ? U{} + 0x7FC00000u : bits;
  if constexpr (has_nan && !has_infinity) bits = rest == kMask ? U{} + 0x7FC00000u : bits;
  return (F)bits;
}
inline F floats_of_e4m3(U code) { return floats_of_small<4, 3, 7, false, true>(code); }
inline F floats_of_e5m2(U code) { return floats_of_small<5, 2, 15, true, true>(code); }
inline F floats_of_e2m1(U code) { return floats_of_small<2, 1, 1, false, false>(code); }

/// The codes of a small integer: rounded, ties to even, and clamped to [low, high]; 0 for NaN. Adding and subtracting 1.5 *
/// 2^23 rounds, and leaves the number in the low bits of the sum.
template <int bits, int low, int high, int N>
inline V<std::uint8_t, N> small_of_numbers(V<float, N> x) {
  using W = Words<N>;
  const V<float, N> inside = x > high  ? V<float, N>{} + high
                             : x < low ? V<float, N>{} + low
                             : x == x  ? x
                                       : V<float, N>{};
  return __builtin_convertvector((W)(inside + 0x1.8p23f) & ((1u << bits) - 1), V<std::uint8_t, N>);
}
template <int bits, bool is_signed>
inline F numbers_of_small(U code) {
  const I number = (I)code;
  return __builtin_convertvector(is_signed ? number << (32 - bits) >> (32 - bits) : number & ((1 << bits) - 1), F);
}
inline F numbers_of_binary(U code) { return __builtin_convertvector(2 * ((I)code & 1) - 1, F); }

template <class To, class X>
inline auto integers_of(X x) {
  constexpr int N = kLanes<X>;
  constexpr auto low = static_cast<Lane<X>>(std::numeric_limits<To>::min()),
                 high = static_cast<Lane<X>>(std::numeric_limits<To>::max());
  const X inside = x > high ? X{} + high : x < low ? X{} + low : x == x ? x : X{};
  return __builtin_convertvector(__builtin_convertvector(inside, V<std::int32_t, N>), V<To, N>);
}

template <class T>
void fill_narrow_integer(TileTable& table) {
  constexpr int t = at(dtype_of<T>), f32 = at(DType::f32), f64 = at(DType::f64), i32 = at(DType::i32);
  table.cast[t][i32] = tile<std::int32_t, T>([](V<T, kFloats> x) { return __builtin_convertvector(x, I); });
  table.cast[i32][t] = tile<T, std::int32_t>([](I x) { return __builtin_convertvector(x, V<T, kFloats>); });
  table.cast[f32][t] = tile<T, float>([](F x) { return integers_of<T>(x); });
  table.cast[f64][t] = tile<T, double>([](D x) { return integers_of<T>(x); });
}

template <DType type, int exponent_bits, int fraction, int bias, int highest, bool has_infinity, bool has_nan>
void fill_small_float(TileTable& table) {
  constexpr int t = at(type), f32 = at(DType::f32), f64 = at(DType::f64);
  table.cast[t][f32] = tile<float, Byte>([](V<Byte, kFloats> x) {
    return floats_of_small<exponent_bits, fraction, bias, has_infinity, has_nan>(__builtin_convertvector(x, U));
  });
  table.cast[f32][t] = tile<Byte, float>(
      [](F x) { return small_of_floats<exponent_bits, fraction, bias, highest, has_infinity, has_nan, kFloats>(x); });
  table.cast[f64][t] = tile<Byte, double>([](D x) {
    return small_of_floats<exponent_bits, fraction, bias, highest, has_infinity, has_nan, kDoubles>(to_odd(x));
  });
}

template <DType type, int bits, bool is_signed, int low, int high>
void fill_small_integer(TileTable& table) {
  constexpr int t = at(type), f32 = at(DType::f32), f64 = at(DType::f64);
  table.cast[t][f32] = tile<float, Byte>(
      [](V<Byte, kFloats> x) { return numbers_of_small<bits, is_signed>(__builtin_convertvector(x, U)); });
  table.cast[f32][t] = tile<Byte, float>([](F x) { return small_of_numbers<bits, low, high, kFloats>(x); });
  table.cast[f64][t] = tile<Byte, double>([](D x) { return small_of_numbers<bits, low, high, kDoubles>(to_odd(x)); });
}

template <int N>
inline V<std::uint8_t, N> signs_of(V<float, N> x) {
  return __builtin_convertvector(x > 0 ? Words<N>{} + 1u : Words<N>{}, V<std::uint8_t, N>);
}

void fill_binary(TileTable& table) {
  constexpr int t = at(DType::binary), f32 = at(DType::f32), f64 = at(DType::f64);
  table.cast[t][f32] =
      tile<float, Byte>([](V<Byte, kFloats> x) { return numbers_of_binary(__builtin_convertvector(x, U)); });
  table.cast[f32][t] = tile<Byte, float>([](F x) { return signs_of<kFloats>(x); });
  table.cast[f64][t] = tile<Byte, double>([](D x) { return signs_of<kDoubles>(to_odd(x)); });
}

void fill_narrow(TileTable& table) {
  constexpr int f32 = at(DType::f32), f64 = at(DType::f64), f16 = at(DType::f16), bf16 = at(DType::bf16);
  using Bits = std::uint16_t;
  table.cast[f16][f32] = tile<float, Bits>([](V<Bits, kFloats> x) { return floats_of_f16(x); });
  table.cast[f32][f16] = tile<Bits, float>([](F x) { return f16_of_floats<kFloats>(x); });
  table.cast[f64][f16] = tile<Bits, double>([](D x) { return f16_of_floats<kDoubles>(to_odd(x)); });
  table.cast[bf16][f32] = tile<float, Bits>([](V<Bits, kFloats> x) { return floats_of_bf16(x); });
  table.cast[f32][bf16] = tile<Bits, float>([](F x) { return bf16_of_floats<kFloats>(x); });
  table.cast[f64][bf16] = tile<Bits, double>([](D x) { return bf16_of_floats<kDoubles>(to_odd(x)); });
  fill_narrow_integer<std::int8_t>(table);
  fill_narrow_integer<std::uint8_t>(table);
  fill_narrow_integer<std::int16_t>(table);
  fill_narrow_integer<std::uint16_t>(table);
  fill_small_float<DType::fp8_e4m3, 4, 3, 7, 0x7E, false, true>(table);
  fill_small_float<DType::fp8_e5m2, 5, 2, 15, 0x7B, true, true>(table);
  fill_small_float<DType::fp4_e2m1, 2, 1, 1, 0x7, false, false>(table);
  fill_small_integer<DType::int4, 4, true, -8, 7>(table);
  fill_small_integer<DType::uint4, 4, false, 0, 15>(table);
  fill_small_integer<DType::int2, 2, true, -2, 1>(table);
  fill_small_integer<DType::uint2, 2, false, 0, 3>(table);
  fill_small_integer<DType::ternary, 2, true, -1, 1>(table);
  fill_binary(table);
  // Copies ignore the values that they copy.
  for (const Element& row : kElements) {
    const int t = at(row.type);
    if (row.compute == row.type) continue;
    if (row.bits == 16) {
      table.cast[t][t] = tile<Bits, Bits>([](Native<Bits> x) { return x; });
      table.stream[t] = stream_rows<Bits>;
    } else if (row.bits <= 8) {  // elements smaller than a byte are codes of a byte each
      table.cast[t][t] = tile<Byte, Byte>([](Native<Byte> x) { return x; });
      table.stream[t] = stream_rows<Byte>;
    }
  }
}

}  // namespace
}  // namespace weft::cpu
