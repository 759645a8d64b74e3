// Element types: one row of a table for each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "weft/half.hpp"

namespace weft {

/// Types of elements. Ops compute with the types down to u8. The others are for storage: ops refuse them, and a cast unpacks
/// them in the kernel that reads them. The types from q4_0 on are the blocks of GGUF files: small integers that share scales. A
/// bool takes one byte on the host and on the CPU, and a u32 on a GPU (backends convert on upload and download).
enum class DType : std::uint8_t {
  f32,
  f64,
  i32,
  u32,
  boolean,
  f16,
  bf16,
  i64,
  i16,
  i8,
  u64,
  u16,
  u8,
  fp8_e4m3,
  fp8_e5m2,
  fp4_e2m1,
  int4,
  uint4,
  int2,
  uint2,
  ternary,
  binary,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,  // 32 elements and one scale; *_1 also have a minimum
  q2_k,
  q3_k,
  q4_k,
  q5_k,
  q6_k,  // 256 elements in 8 or 16 groups, whose scales are small integers themselves
  iq4_nl,
  iq4_xs,
  mxfp4,  // 4 bits that index a table of values
};

enum class ElementKind : std::uint8_t { real, integer, boolean, storage, block };

/// The row of a type says everything about it.
struct Element {
  DType type;
  std::string_view name;  ///< "f32", as in listings and in expressions
  /// Bits of an element in memory; elements below 8 bits are packed, the first in the low bits of a byte. 0 for blocks, whose
  /// elements share bits: see `block_bytes`.
  int bits;
  ElementKind kind;
  bool is_signed;
  /// The type that ops compute in. For f16 and bf16 they compute in f32 and round the result; for integers of 8 and 16 bits
  /// they compute in i32 and keep the low bits.
  DType compute;
  double lowest, highest;  ///< the limits of finite numbers (for i64 and u64 rounded to a double)
  int digits;              ///< bits of the significand with the leading one, or of the magnitude of an integer
  bool has_infinity;
  std::string_view host;         ///< type in C++; "" for types without one
  std::string_view safetensors;  ///< names in files; "" or -1 if a format has no such type
  std::string_view npy;
  int gguf, onnx;
  std::string_view wgsl;   ///< type of a loaded value in a shader; "" if a GPU does not support the type
  bool on_cpu, on_gpu;     ///< whether tensors on these devices may have it
  int block_elements = 1;  ///< kind block: elements that share scales, neighbours along the last axis
  int block_bytes = 0;     ///< kind block: bytes of a block in a file and on the host
};

/// The row of a GGUF block format. Its scales are f16 numbers, or powers of two, times small integers.
constexpr Element block_element(DType type, std::string_view name, int digits, int gguf, int block_elements,
                                int block_bytes) {
  return {type,
          name,
          0,
          ElementKind::block,
          true,
          DType::f32,
          -0x1.fffffep127,
          0x1.fffffep127,
          digits,
          false,
          "",
          "",
          "",
          gguf,
          -1,
          "f32",
          true,
          true,
          block_elements,
          block_bytes};
}

inline constexpr Element kElements[] = {
    {DType::f32, "f32", 32, ElementKind::real, true, DType::f32, -0x1.fffffep127, 0x1.fffffep127, 24, true, "float",
     "F32", "f4", 0, 1, "f32", true, true},
    {DType::f64, "f64", 64, ElementKind::real, true, DType::f64, -std::numeric_limits<double>::max(),
     std::numeric_limits<double>::max(), 53, true, "double", "F64", "f8", 28, 11, "", true, false},
    {DType::i32, "i32", 32, ElementKind::integer, true, DType::i32, -0x1p31, 0x1p31 - 1, 31, false, "std::int32_t",
     "I32", "i4", 26, 6, "i32", true, true},
    {DType::u32, "u32", 32, ElementKind::integer, false, DType::u32, 0, 0x1p32 - 1, 32, false, "std::uint32_t", "U32",
     "u4", -1, 12, "u32", true, true},
    {DType::boolean, "bool", 8, ElementKind::boolean, false, DType::boolean, 0, 1, 1, false, "bool", "BOOL", "b1", -1,
     9, "bool", true, true},
    {DType::f16, "f16", 16, ElementKind::real, true, DType::f32, -65504, 65504, 11, true, "weft::Float16", "F16", "f2",
     1, 10, "f32", true, true},
    {DType::bf16, "bf16", 16, ElementKind::real, true, DType::f32, -0x1.fep127, 0x1.fep127, 8, true, "weft::BFloat16",
     "BF16", "", 30, 16, "f32", true, true},
    {DType::i64, "i64", 64, ElementKind::integer, true, DType::i64, -0x1p63, 0x1p63, 63, false, "std::int64_t", "I64",
     "i8", 27, 7, "", true, false},
    {DType::i16, "i16", 16, ElementKind::integer, true, DType::i32, -32768, 32767, 15, false, "std::int16_t", "I16",
     "i2", 25, 5, "i32", true, true},
    {DType::i8, "i8", 8, ElementKind::integer, true, DType::i32, -128, 127, 7, false, "std::int8_t", "I8", "i1", 24, 3,
     "i32", true, true},
    {DType::u64, "u64", 64, ElementKind::integer, false, DType::u64, 0, 0x1p64, 64, false, "std::uint64_t", "U64", "u8",
     -1, 13, "", true, false},
    {DType::u16, "u16", 16, ElementKind::integer, false, DType::i32, 0, 65535, 16, false, "std::uint16_t", "U16", "u2",
     -1, 4, "i32", true, true},
    {DType::u8, "u8", 8, ElementKind::integer, false, DType::i32, 0, 255, 8, false, "std::uint8_t", "U8", "u1", -1, 2,
     "i32", true, true},
    {DType::fp8_e4m3, "fp8_e4m3", 8, ElementKind::storage, true, DType::f32, -448, 448, 4, false, "", "F8_E4M3", "", -1,
     17, "f32", true, true},
    {DType::fp8_e5m2, "fp8_e5m2", 8, ElementKind::storage, true, DType::f32, -57344, 57344, 3, true, "", "F8_E5M2", "",
     -1, 19, "f32", true, true},
    {DType::fp4_e2m1, "fp4_e2m1", 4, ElementKind::storage, true, DType::f32, -6, 6, 2, false, "", "F4", "", -1, 23,
     "f32", true, true},
    {DType::int4, "int4", 4, ElementKind::storage, true, DType::f32, -8, 7, 3, false, "", "", "", -1, 22, "f32", true,
     true},
    {DType::uint4, "uint4", 4, ElementKind::storage, false, DType::f32, 0, 15, 4, false, "", "", "", -1, 21, "f32",
     true, true},
    {DType::int2, "int2", 2, ElementKind::storage, true, DType::f32, -2, 1, 1, false, "", "", "", -1, 26, "f32", true,
     true},
    {DType::uint2, "uint2", 2, ElementKind::storage, false, DType::f32, 0, 3, 2, false, "", "", "", -1, 25, "f32", true,
     true},
    {DType::ternary, "ternary", 2, ElementKind::storage, true, DType::f32, -1, 1, 1, false, "", "", "", -1, -1, "f32",
     true, true},
    {DType::binary, "binary", 1, ElementKind::storage, true, DType::f32, -1, 1, 1, false, "", "", "", -1, -1, "f32",
     true, true},
    // name, digits, number in GGUF, elements and bytes of a block
    block_element(DType::q4_0, "q4_0", 4, 2, 32, 18),
    block_element(DType::q4_1, "q4_1", 4, 3, 32, 20),
    block_element(DType::q5_0, "q5_0", 5, 6, 32, 22),
    block_element(DType::q5_1, "q5_1", 5, 7, 32, 24),
    block_element(DType::q8_0, "q8_0", 7, 8, 32, 34),
    block_element(DType::q2_k, "q2_k", 2, 10, 256, 84),
    block_element(DType::q3_k, "q3_k", 3, 11, 256, 110),
    block_element(DType::q4_k, "q4_k", 4, 12, 256, 144),
    block_element(DType::q5_k, "q5_k", 5, 13, 256, 176),
    block_element(DType::q6_k, "q6_k", 6, 14, 256, 210),
    block_element(DType::iq4_nl, "iq4_nl", 4, 20, 32, 18),
    block_element(DType::iq4_xs, "iq4_xs", 4, 23, 256, 136),
    block_element(DType::mxfp4, "mxfp4", 2, 39, 32, 17),
};
inline constexpr int kDTypeCount = static_cast<int>(std::size(kElements));

constexpr const Element& element(DType type) { return kElements[static_cast<int>(type)]; }
/// Every type, and those that ops compute with, in the order of the enumeration.
inline constexpr DType kAllDTypes[] = {
    DType::f32,      DType::f64,      DType::i32,  DType::u32,   DType::boolean, DType::f16,    DType::bf16,
    DType::i64,      DType::i16,      DType::i8,   DType::u64,   DType::u16,     DType::u8,     DType::fp8_e4m3,
    DType::fp8_e5m2, DType::fp4_e2m1, DType::int4, DType::uint4, DType::int2,    DType::uint2,  DType::ternary,
    DType::binary,   DType::q4_0,     DType::q4_1, DType::q5_0,  DType::q5_1,    DType::q8_0,   DType::q2_k,
    DType::q3_k,     DType::q4_k,     DType::q5_k, DType::q6_k,  DType::iq4_nl,  DType::iq4_xs, DType::mxfp4};
inline constexpr DType kComputeDTypes[] = {DType::f32, DType::f64,  DType::i32, DType::u32, DType::boolean,
                                           DType::f16, DType::bf16, DType::i64, DType::i16, DType::i8,
                                           DType::u64, DType::u16,  DType::u8};

/// Whether the elements of a block share scales, so that none can be read alone.
constexpr bool is_block(DType type) { return element(type).kind == ElementKind::block; }
/// Bytes of one element. 1 for elements below 8 bits, which share bytes: use `bytes_of` to count them. 0 for
/// blocks.
constexpr std::size_t size_bytes(DType type) { return static_cast<std::size_t>((element(type).bits + 7) / 8); }
/// Bytes of `count` elements of `bits` bits each, rounded up to a whole byte.
constexpr std::size_t bytes_of_bits(int bits, std::size_t count) {
  const auto b = static_cast<std::size_t>(bits);
  return b % 8 == 0 ? count * (b / 8) : count / 8 * b + (count % 8 * b + 7) / 8;
}
/// Bytes of `count` elements in host form; blocks must be whole.
constexpr std::size_t bytes_of(DType type, std::size_t count) {
  const Element& row = element(type);
  if (row.kind == ElementKind::block)
    return count / static_cast<std::size_t>(row.block_elements) * static_cast<std::size_t>(row.block_bytes);
  return bytes_of_bits(row.bits, count);
}
constexpr bool is_float(DType type) { return element(type).kind == ElementKind::real; }
constexpr bool is_integer(DType type) { return element(type).kind == ElementKind::integer; }
/// Whether the type only stores values, which are unpacked before ops compute with them.
constexpr bool is_storage(DType type) { return element(type).kind == ElementKind::storage || is_block(type); }
/// Whether several elements share a byte: element i takes the bits from i * bits on, counted from the lowest of a byte.
constexpr bool is_packed(DType type) { return element(type).bits < 8 && !is_block(type); }
/// The type that ops compute in; for most types it is the type itself.
constexpr DType compute_type(DType type) { return element(type).compute; }
/// Whether ops compute in another type and round or truncate their results to this one.
constexpr bool is_narrow(DType type) { return element(type).compute != type && !is_storage(type); }

/// "f32", "i64", "bool".
constexpr std::string_view name_of(DType type) { return element(type).name; }
/// The type with this name, as printed by `name_of`, if there is one.
std::optional<DType> dtype_from_name(std::string_view name);
/// The names of all types for which `holds` is true, such as "f32, f64 and i32".
std::string dtype_list(bool (*holds)(const Element&));

/// The common type of two operands, as in the array-API standard: for two integers the narrowest that holds both (i8 with u8 is
/// i16, i32 with u32 is i64), for two floats the wider (f16 with bf16 is f32), for an integer and a float the float, for bool
/// and another type the other. DTypeError for u64 with a signed integer, which have no common integer type, and for storage
/// types, unless both are equal.
DType promote(DType a, DType b);

template <class T>
struct DTypeOf;
#define WEFT_DTYPE_OF(host, dtype)               \
  template <>                                    \
  struct DTypeOf<host> {                         \
    static constexpr DType value = DType::dtype; \
  };
WEFT_DTYPE_OF(float, f32)
WEFT_DTYPE_OF(double, f64)
WEFT_DTYPE_OF(Float16, f16)
WEFT_DTYPE_OF(BFloat16, bf16)
WEFT_DTYPE_OF(std::int64_t, i64)
WEFT_DTYPE_OF(std::int32_t, i32)
WEFT_DTYPE_OF(std::int16_t, i16)
WEFT_DTYPE_OF(std::int8_t, i8)
WEFT_DTYPE_OF(std::uint64_t, u64)
WEFT_DTYPE_OF(std::uint32_t, u32)
WEFT_DTYPE_OF(std::uint16_t, u16)
WEFT_DTYPE_OF(std::uint8_t, u8)
WEFT_DTYPE_OF(bool, boolean)
#undef WEFT_DTYPE_OF
template <class T>
inline constexpr DType dtype_of = DTypeOf<T>::value;

}  // namespace weft
