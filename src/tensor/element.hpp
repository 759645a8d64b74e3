// Single elements on the host: reading, writing, rounding and printing by the row of their type. For constants, references
// and listings; loops over many elements have kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "weft/dtype.hpp"

namespace weft {

/// The result of a cast of the number: floats round to the nearest, ties to even (f16 and bf16 overflow to infinity, fp8 and
/// fp4 saturate; infinity stays where there is one, and fp4 has no NaN, so NaN becomes 0); integers truncate and saturate, and
/// NaN gives 0; to bool it is value != 0. Storage types of integers round to the nearest, ties to even, and saturate, with 0
/// for NaN; ternary is the sign of what is beyond a half; binary is 1 for positive numbers, else -1. 64-bit integers are given
/// as the nearest double.
double rounded_to(DType type, double value);

/// Writes the element as host bytes; for a type below a byte its code, in the low bits of one byte. `value` must already be
/// rounded by `rounded_to`.
void write_element(DType type, double value, void* out);
/// The element that `write_element` wrote, as a double (of 64-bit integers the nearest).
double read_element(DType type, const void* at);
/// Element `index` of elements in host form.
void write_element(DType type, double value, void* elements, std::size_t index);
double read_element(DType type, const void* elements, std::size_t index);
/// The element as text for listings: "0.1", "-3", "true"; 64-bit integers with all digits.
std::string element_text(DType type, const void* elements, std::size_t index);

/// Casts elements on the host, like the op `cast`.
void cast_elements(DType from, const std::byte* elements, DType to, std::byte* out, std::size_t count);
/// Copies `count` elements in host form. Of types below a byte, the other bits of the first and last byte of `to` stay.
void copy_elements(DType type, const void* from, std::size_t from_first, void* to, std::size_t to_first,
                   std::size_t count);
/// Sets the unused bits of the last byte of a packed type to 0.
void clear_unused_bits(DType type, void* elements, std::size_t count);

/// Elements of a packed type as codes, a byte each, and back. `first` and `stride` count elements of `packed`. Packing
/// writes the bytes that it shares with other elements atomically, so that threads may write neighbours.
void unpack_codes(int bits, const void* packed, std::int64_t first, std::int64_t stride, std::uint8_t* codes,
                  std::int64_t count);
void pack_codes(int bits, const std::uint8_t* codes, std::int64_t codes_stride, void* packed, std::int64_t first,
                std::int64_t stride, std::int64_t count);
/// Whether every value of `from` is one of `to` too, so that a cast loses nothing.
bool holds_all(DType to, DType from);

/// The layout of fp8 and fp4 in `bits` bits: sign, then exponent, then fraction.
struct SmallFloat {
  int exponent_bits, fraction_bits, bias;
};
SmallFloat small_float_of(DType type);
/// Bits of the nearest number of a small float or f16, bf16; and its value.
std::uint32_t encode_float(DType type, double value);
double decode_float(DType type, std::uint32_t bits);
/// The code of a value of a storage type, as rounded by `rounded_to`, and the value of a code. Integers are in two's
/// complement; a binary is 1 for 1 and 0 for -1.
std::uint32_t encode_storage(DType type, double value);
double decode_storage(DType type, std::uint32_t code);

}  // namespace weft
