#include "tensor/element.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "weft/error.hpp"

namespace weft {
namespace {

template <class T>
T saturated(double value) {
  constexpr T low = std::numeric_limits<T>::min(), high = std::numeric_limits<T>::max();
  if (std::isnan(value)) return 0;
  // high + 1 is a power of two, and so exact.
  if (value >= std::ldexp(1.0, std::numeric_limits<T>::digits)) return high;
  return value <= static_cast<double>(low) ? low : static_cast<T>(value);
}

template <class T>
T get(const void* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}
template <class T>
void put(void* out, T value) {
  std::memcpy(out, &value, sizeof value);
}

/// Calls `use` with a value of the host type of integers.
template <class Use>
void as_integer(DType type, Use use) {
  switch (type) {
    case DType::i8: return use(std::int8_t{});
    case DType::i16: return use(std::int16_t{});
    case DType::i32: return use(std::int32_t{});
    case DType::i64: return use(std::int64_t{});
    case DType::u8: return use(std::uint8_t{});
    case DType::u16: return use(std::uint16_t{});
    case DType::u32: return use(std::uint32_t{});
    case DType::u64: return use(std::uint64_t{});
    default: throw InternalError(fmt::format("{} is not an integer type of the host", name_of(type)));
  }
}

double nearest_even(double value) { return std::nearbyint(value); }

}  // namespace

SmallFloat small_float_of(DType type) {
  switch (type) {
    case DType::fp8_e4m3: return {4, 3, 7};
    case DType::fp8_e5m2: return {5, 2, 15};
    case DType::fp4_e2m1: return {2, 1, 1};
    default: throw InternalError(fmt::format("{} is not a float of fewer than 16 bits", name_of(type)));
  }
}

std::uint32_t encode_float(DType type, double value) {
  if (type == DType::f16) return f16_from_f32(f32_to_odd(value));
  if (type == DType::bf16) return bf16_from_f32(f32_to_odd(value));
  const SmallFloat f = small_float_of(type);
  const Element& row = element(type);
  const std::uint32_t sign = std::signbit(value) ? 1u << (f.exponent_bits + f.fraction_bits) : 0;
  const std::uint32_t ones = (1u << f.exponent_bits) - 1;
  if (std::isnan(value)) {
    if (type == DType::fp4_e2m1) return 0;  // it has no NaN
    // All ones (fp8_e4m3), or a quiet NaN above infinity.
    return sign | ones << f.fraction_bits |
           (row.has_infinity ? 1u << (f.fraction_bits - 1) : (1u << f.fraction_bits) - 1);
  }
  const double magnitude = std::fabs(value);
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  const int least = 1 - f.bias;  // the exponent of the smallest normal number
  const int scale = std::max(exponent - 1, least) - f.fraction_bits;
  const double rounded = magnitude == 0 || std::isinf(magnitude)
                             ? magnitude
                             : std::ldexp(nearest_even(std::ldexp(magnitude, -scale)), scale);
  if (rounded > row.highest) {
    if (row.has_infinity && std::isinf(value)) return sign | ones << f.fraction_bits;
    return sign | encode_float(type, row.highest);
  }
  if (rounded < std::ldexp(1.0, least))  // the fraction counts units of the smallest number
    return sign | static_cast<std::uint32_t>(std::ldexp(rounded, f.fraction_bits - least));
  std::frexp(rounded, &exponent);
  const auto fraction = static_cast<std::uint32_t>(std::ldexp(rounded, f.fraction_bits - (exponent - 1)));
  const auto field = static_cast<std::uint32_t>(exponent - 1 + f.bias);
  return sign | field << f.fraction_bits | (fraction - (1u << f.fraction_bits));
}

double decode_float(DType type, std::uint32_t bits) {
  if (type == DType::f16) return f32_from_f16(static_cast<std::uint16_t>(bits));
  if (type == DType::bf16) return f32_from_bf16(static_cast<std::uint16_t>(bits));
  const SmallFloat f = small_float_of(type);
  const std::uint32_t ones = (1u << f.exponent_bits) - 1, fraction = bits & ((1u << f.fraction_bits) - 1),
                      exponent = bits >> f.fraction_bits & ones;
  const double sign = bits >> (f.exponent_bits + f.fraction_bits) & 1 ? -1 : 1;
  if (exponent == ones && element(type).has_infinity)
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  if (type == DType::fp8_e4m3 && exponent == ones && fraction == (1u << f.fraction_bits) - 1)
    return std::numeric_limits<double>::quiet_NaN();
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - f.bias - f.fraction_bits);
  return sign * std::ldexp(fraction + (1u << f.fraction_bits), static_cast<int>(exponent) - f.bias - f.fraction_bits);
}

double rounded_to(DType type, double value) {
  switch (type) {
    case DType::f64: return value;
    case DType::f32: return static_cast<float>(value);
    case DType::f16:
    case DType::bf16:
    case DType::fp8_e4m3:
    case DType::fp8_e5m2:
    case DType::fp4_e2m1:
      return std::isnan(value) && type != DType::fp4_e2m1 ? value : decode_float(type, encode_float(type, value));
    case DType::boolean: return value != 0;
    case DType::ternary: return value > 0.5 ? 1 : value < -0.5 ? -1 : 0;
    case DType::binary: return value > 0 ? 1 : -1;
    case DType::int4:
    case DType::uint4:
    case DType::int2:
    case DType::uint2: {
      const Element& row = element(type);
      return std::isnan(value) ? 0 : std::clamp(nearest_even(value), row.lowest, row.highest);
    }
    default: break;
  }
  double result = 0;
  as_integer(type, [&]<class T>(T) { result = static_cast<double>(saturated<T>(value)); });
  return result;
}

void write_element(DType type, double value, void* out) {
  switch (type) {
    case DType::f32: return put(out, static_cast<float>(value));
    case DType::f64: return put(out, value);
    case DType::boolean: return put(out, static_cast<std::uint8_t>(value != 0));
    case DType::f16:
    case DType::bf16: return put(out, static_cast<std::uint16_t>(encode_float(type, value)));
    case DType::fp8_e4m3:
    case DType::fp8_e5m2: return put(out, static_cast<std::uint8_t>(encode_float(type, value)));
    default: as_integer(type, [&]<class T>(T) { put(out, saturated<T>(value)); });
  }
}

double read_element(DType type, const void* at) {
  switch (type) {
    case DType::f32: return get<float>(at);
    case DType::f64: return get<double>(at);
    case DType::boolean: return get<std::uint8_t>(at) != 0;
    case DType::f16:
    case DType::bf16: return decode_float(type, get<std::uint16_t>(at));
    case DType::fp8_e4m3:
    case DType::fp8_e5m2: return decode_float(type, get<std::uint8_t>(at));
    default: break;
  }
  double result = 0;
  as_integer(type, [&]<class T>(T) { result = static_cast<double>(get<T>(at)); });
  return result;
}

std::string element_text(DType type, const void* at) {
  switch (type) {
    case DType::boolean: return get<std::uint8_t>(at) != 0 ? "true" : "false";
    case DType::f64: return fmt::format("{:.10g}", get<double>(at));
    case DType::f32: return fmt::format("{:.6g}", get<float>(at));
    case DType::f16:
    case DType::bf16: return fmt::format("{:.4g}", read_element(type, at));
    case DType::fp8_e4m3:
    case DType::fp8_e5m2: return fmt::format("{:g}", read_element(type, at));
    default: break;
  }
  std::string text;
  as_integer(type, [&]<class T>(T) { text = fmt::format("{}", get<T>(at)); });
  return text;
}

void cast_elements(DType from, const std::byte* elements, DType to, std::byte* out, std::size_t count) {
  const std::size_t size = size_bytes(from), step = size_bytes(to);
  if (from == to) {
    if (count > 0) std::memcpy(out, elements, count * size);
    return;
  }
  const auto each = [&](auto convert) {
    for (std::size_t i = 0; i < count; ++i) convert(elements + i * size, out + i * step);
  };
  if (to == DType::f32 && from == DType::f16)
    return each([](const void* at, void* to) { put(to, f32_from_f16(get<std::uint16_t>(at))); });
  if (to == DType::f32 && from == DType::bf16)
    return each([](const void* at, void* to) { put(to, f32_from_bf16(get<std::uint16_t>(at))); });
  if (is_integer(from) && is_integer(to))
    return as_integer(from, [&]<class From>(From) {
      as_integer(
          to, [&]<class To>(To) { each([](const void* at, void* to) { put(to, static_cast<To>(get<From>(at))); }); });
    });
  each([&](const void* at, void* result) { write_element(to, read_element(from, at), result); });
}

bool holds_all(DType to, DType from) {
  if (to == from || from == DType::boolean) return true;
  const Element &wide = element(to), &narrow = element(from);
  if (is_integer(from) && is_integer(to)) return wide.bits > narrow.bits && (wide.is_signed || !narrow.is_signed);
  if (!is_float(to)) return false;
  // An f32 has the range of every type here but f64, and f16 with its range of 65504 that of 8 bits.
  return wide.digits >= narrow.digits && wide.highest >= narrow.highest &&
         (is_integer(from) || to == DType::f32 || to == DType::f64);
}

}  // namespace weft
