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
#else
  const U h = __builtin_convertvector(half, U), rest = h & 0x7FFFu;
  U bits = (U)((F)(rest << 13) * 0x1p112f);  // the product moves the exponent, and makes denormals right too
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
#endif
  using W = Words<N>;
  const W bits = (W)x, rest = bits & 0x7FFFFFFFu;
  // Below 2^-14 the last place of the sum is the unit of a denormal f16, so that it rounds there.
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

/// Doubles as floats that round on as the doubles would: what is not exact is cut and gets an odd last bit.
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

/// The codes of a small float: `exponent` and `fraction` bits below a sign.
template <int exponent_bits, int fraction, int bias, int highest, bool has_infinity, int N>
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
  code = rest > 0x7F800000u ? W{} + nan : code;
  return __builtin_convertvector(code | (bits >> 31 << 7), V<std::uint8_t, N>);
}

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

/// Values of the codes of a type of eight bits.
template <DType type>
const std::array<float, 256>& values_of() {
  static const std::array<float, 256> values = [] {
    std::array<float, 256> made;
    for (std::uint32_t i = 0; i < 256; ++i) made[i] = static_cast<float>(decode_float(type, i));
    return made;
  }();
  return values;
}

template <DType type, int exponent_bits, int fraction, int bias, int highest, bool has_infinity>
void fill_small_float(TileTable& table) {
  constexpr int t = at(type), f32 = at(DType::f32), f64 = at(DType::f64);
  table.cast[t][f32] = tile<float, std::uint8_t>([](V<std::uint8_t, kFloats> x) {
    const std::array<float, 256>& values = values_of<type>();
    F y;
    for (int i = 0; i < kFloats; ++i) y[i] = values[x[i]];
    return y;
  });
  table.cast[f32][t] = tile<std::uint8_t, float>(
      [](F x) { return small_of_floats<exponent_bits, fraction, bias, highest, has_infinity, kFloats>(x); });
  table.cast[f64][t] = tile<std::uint8_t, double>(
      [](D x) { return small_of_floats<exponent_bits, fraction, bias, highest, has_infinity, kDoubles>(to_odd(x)); });
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
  fill_small_float<DType::fp8_e4m3, 4, 3, 7, 0x7E, false>(table);
  fill_small_float<DType::fp8_e5m2, 5, 2, 15, 0x7B, true>(table);
  // Copies do not look at what they copy.
  for (const Element& row : kElements) {
    const int t = at(row.type);
    if (row.compute == row.type) continue;
    if (row.bits == 16) {
      table.cast[t][t] = tile<Bits, Bits>([](Native<Bits> x) { return x; });
      table.stream[t] = stream_rows<Bits>;
    } else if (row.bits == 8) {
      table.cast[t][t] = tile<Byte, Byte>([](Native<Byte> x) { return x; });
      table.stream[t] = stream_rows<Byte>;
    }
  }
}

}  // namespace
}  // namespace weft::cpu
