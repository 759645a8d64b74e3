// Element types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace weft {

/// Types that tensors hold. f64 computes on the CPU only; a bool takes one byte on the host and on the CPU, and a u32
/// on a GPU (backends convert on upload and download).
enum class DType : std::uint8_t { f32, f64, i32, u32, boolean };

inline constexpr DType kAllDTypes[] = {DType::f32, DType::f64, DType::i32, DType::u32, DType::boolean};

constexpr std::size_t size_bytes(DType type) { return type == DType::f64 ? 8 : type == DType::boolean ? 1 : 4; }
constexpr bool is_float(DType type) { return type == DType::f32 || type == DType::f64; }
constexpr bool is_integer(DType type) { return type == DType::i32 || type == DType::u32; }

/// "f32", "f64", "i32", "u32", "bool".
constexpr std::string_view name_of(DType type) {
  constexpr std::string_view names[] = {"f32", "f64", "i32", "u32", "bool"};
  return names[static_cast<int>(type)];
}
/// The type of a name as printed by `name_of`, if there is one.
std::optional<DType> dtype_from_name(std::string_view name);

/// The type two operands meet in (array-API standard): bool < i32/u32 < f32 < f64; i32 with u32 is i32.
DType promote(DType a, DType b);

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::f64;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct DTypeOf<std::uint32_t> {
  static constexpr DType value = DType::u32;
};
template <>
struct DTypeOf<bool> {
  static constexpr DType value = DType::boolean;
};
template <class T>
inline constexpr DType dtype_of = DTypeOf<T>::value;

}  // namespace weft
