// The 16-bit floats, IEEE binary16 (f16) and bfloat16 (bf16): conversions of their bits, and host types for both.
#pragma once

#include <bit>
#include <cstdint>

namespace weft {

/// The value of f16 bits, exactly; a NaN keeps its sign and payload.
constexpr float f32_from_f16(std::uint16_t half) {
  const std::uint32_t sign = std::uint32_t{half & 0x8000u} << 16;
  const std::uint32_t rest = half & 0x7FFFu;
  // Below 2^-14 the exponent field is 0 and the fraction counts 2^-24. Infinities and NaNs keep an exponent of all ones.
  const float magnitude = rest < 0x400
                              ? static_cast<float>(rest) * 0x1p-24f
                              : std::bit_cast<float>((rest << 13) + ((rest < 0x7C00 ? 127u - 15u : 255u - 31u) << 23));
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
}

/// The nearest f16, ties to even; beyond 65519.99 infinity. A NaN becomes quiet and keeps its sign and the top of its payload.
constexpr std::uint16_t f16_from_f32(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint16_t sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000u);
  const std::uint32_t rest = bits & 0x7FFFFFFFu;
  std::uint32_t half = 0;
  if (rest > 0x7F800000u) {
    half = 0x7E00u | (rest >> 13 & 0x3FFu);
  } else if (rest >= 0x47800000u) {  // 65536; numbers just below round up to infinity by their carry
    half = 0x7C00u;
  } else if (rest <
             0x38800000u) {  // 2^-14: the sum's last place is the unit of a denormal f16, so that it rounds there
    half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(rest) + 0.5f) - 0x3F000000u;
  } else {
    half = (rest + 0xFFFu + (rest >> 13 & 1u) - ((127u - 15u) << 23)) >> 13;
  }
  return static_cast<std::uint16_t>(sign | half);
}

/// The value of bf16 bits, exactly.
constexpr float f32_from_bf16(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

/// The nearest bf16, ties to even. A NaN becomes quiet and keeps its sign and the top of its payload.
constexpr std::uint16_t bf16_from_f32(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<std::uint16_t>(bits >> 16 | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

/// A double as an f32 that rounds to any narrower float just as the double itself would: inexact values get an odd last bit, so
/// that the first rounding cannot create a tie.
constexpr float f32_to_odd(double value) {
  const float nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || value != value) return nearest;
  std::uint32_t bits = std::bit_cast<std::uint32_t>(nearest);
  const double magnitude = value < 0 ? -value : value;
  const double rounded = nearest < 0 ? -static_cast<double>(nearest) : static_cast<double>(nearest);
  if (rounded > magnitude) --bits;  // towards zero; of infinity that is the largest number
  return std::bit_cast<float>(bits | 1u);
}

/// An f16 on the host. Arithmetic happens in float: conversion to float is implicit, conversion from float is explicit.
struct Float16 {
  std::uint16_t bits = 0;
  constexpr Float16() = default;
  explicit constexpr Float16(float value) : bits(f16_from_f32(value)) {}
  static constexpr Float16 from_bits(std::uint16_t bits) {
    Float16 made;
    made.bits = bits;
    return made;
  }
  constexpr operator float() const { return f32_from_f16(bits); }
};

/// A bf16 on the host, in the same way.
struct BFloat16 {
  std::uint16_t bits = 0;
  constexpr BFloat16() = default;
  explicit constexpr BFloat16(float value) : bits(bf16_from_f32(value)) {}
  static constexpr BFloat16 from_bits(std::uint16_t bits) {
    BFloat16 made;
    made.bits = bits;
    return made;
  }
  constexpr operator float() const { return f32_from_bf16(bits); }
};

}  // namespace weft
