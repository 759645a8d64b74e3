// Single elements on the host: reading, writing, rounding and printing by the row of their type. For constants, references
// and listings; loops over many elements have kernels.
#pragma once

#include <cstddef>
#include <string>

#include "weft/dtype.hpp"

namespace weft {

/// What a cast of the number gives: floats round to the nearest, ties to even (f16 and bf16 overflow to infinity, fp8 and
/// fp4 saturate; infinity stays where there is one, and fp4 has no NaN, for which it takes 0); integers truncate and saturate, and NaN gives 0; to bool it is value != 0. Storage types
/// of integers round to the nearest, ties to even, and saturate; ternary and binary take the sign (ternary beyond a half).
/// Integers of 64 bits come as the double next to them.
double rounded_to(DType type, double value);

/// The element as bytes of the host; types of whole bytes only. `value` is taken as it is after `rounded_to`.
void write_element(DType type, double value, void* out);
/// The element at `at`, as a double (of 64-bit integers the nearest).
double read_element(DType type, const void* at);
/// As in listings: "0.1", "-3", "true"; 64-bit integers with all digits.
std::string element_text(DType type, const void* at);

/// Elements cast on the host, as the op `cast` does; types of whole bytes only.
void cast_elements(DType from, const std::byte* elements, DType to, std::byte* out, std::size_t count);
/// Whether every value of `from` is one of `to` too, so that a cast loses nothing.
bool holds_all(DType to, DType from);

/// What `rounded_to` gives fp8 and fp4 is written in `bits` bits: sign, then exponent, then fraction.
struct SmallFloat {
  int exponent_bits, fraction_bits, bias;
};
SmallFloat small_float_of(DType type);
/// Bits of the nearest number of a small float or f16, bf16; and its value.
std::uint32_t encode_float(DType type, double value);
double decode_float(DType type, std::uint32_t bits);

}  // namespace weft
