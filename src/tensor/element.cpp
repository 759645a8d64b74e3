#include "tensor/element.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "weft/error.hpp"

namespace weft {
namespace {

template <class T>
T saturated(double value) {
  constexpr T low = std::numeric_limits<T>::min(), high = std::numeric_limits<T>::max();
  if (std::isnan(value)) return 0;
  // high + 1 is a power of two, so it is exact.
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

std::uint32_t encode_storage(DType type, double value) {
  const std::uint32_t mask = (1u << element(type).bits) - 1;
  switch (type) {
    case DType::fp8_e4m3:
    case DType::fp8_e5m2:
    case DType::fp4_e2m1: return encode_float(type, value);
    case DType::binary: return value > 0;
    default: return static_cast<std::uint32_t>(static_cast<std::int32_t>(rounded_to(type, value))) & mask;
  }
}

double decode_storage(DType type, std::uint32_t code) {
  const Element& row = element(type);
  code &= (1u << row.bits) - 1;
  switch (type) {
    case DType::fp8_e4m3:
    case DType::fp8_e5m2:
    case DType::fp4_e2m1: return decode_float(type, code);
    case DType::binary: return code != 0 ? 1 : -1;
    default: {
      const bool negative = row.is_signed && code >> (row.bits - 1) != 0;
      return static_cast<double>(code) - (negative ? static_cast<double>(1u << row.bits) : 0);
    }
  }
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
    default: break;
  }
  if (is_storage(type)) return put(out, static_cast<std::uint8_t>(encode_storage(type, value)));
  as_integer(type, [&]<class T>(T) { put(out, saturated<T>(value)); });
}

void write_element(DType type, double value, void* elements, std::size_t index) {
  if (!is_packed(type)) return write_element(type, value, static_cast<std::byte*>(elements) + index * size_bytes(type));
  const auto code = static_cast<std::uint8_t>(encode_storage(type, value));
  pack_codes(element(type).bits, &code, 1, elements, static_cast<std::int64_t>(index), 1, 1);
}

double read_element(DType type, const void* elements, std::size_t index) {
  if (!is_packed(type)) return read_element(type, static_cast<const std::byte*>(elements) + index * size_bytes(type));
  std::uint8_t code = 0;
  unpack_codes(element(type).bits, elements, static_cast<std::int64_t>(index), 1, &code, 1);
  return decode_storage(type, code);
}

double read_element(DType type, const void* at) {
  switch (type) {
    case DType::f32: return get<float>(at);
    case DType::f64: return get<double>(at);
    case DType::boolean: return get<std::uint8_t>(at) != 0;
    case DType::f16:
    case DType::bf16: return decode_float(type, get<std::uint16_t>(at));
    default: break;
  }
  if (is_storage(type)) return decode_storage(type, get<std::uint8_t>(at));
  double result = 0;
  as_integer(type, [&]<class T>(T) { result = static_cast<double>(get<T>(at)); });
  return result;
}

std::string element_text(DType type, const void* elements, std::size_t index) {
  if (is_float(type) && std::isnan(read_element(type, elements, index))) return "nan";  // of either sign
  if (is_storage(type)) return fmt::format("{:g}", read_element(type, elements, index));
  const void* at = static_cast<const std::byte*>(elements) + index * size_bytes(type);
  switch (type) {
    case DType::boolean: return get<std::uint8_t>(at) != 0 ? "true" : "false";
    case DType::f64: return fmt::format("{:.10g}", get<double>(at));
    case DType::f32: return fmt::format("{:.6g}", get<float>(at));
    case DType::f16:
    case DType::bf16: return fmt::format("{:.4g}", read_element(type, at));
    default: break;
  }
  std::string text;
  as_integer(type, [&]<class T>(T) { text = fmt::format("{}", get<T>(at)); });
  return text;
}

void cast_elements(DType from, const std::byte* elements, DType to, std::byte* out, std::size_t count) {
  const std::size_t size = size_bytes(from), step = size_bytes(to);
  if (from == to) {
    if (count > 0) std::memcpy(out, elements, bytes_of(from, count));
    return;
  }
  if (is_packed(from) || is_packed(to)) {
    for (std::size_t i = 0; i < count; ++i) write_element(to, read_element(from, elements, i), out, i);
    return clear_unused_bits(to, out, count);
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

void copy_elements(DType type, const void* from, std::size_t from_first, void* to, std::size_t to_first,
                   std::size_t count) {
  if (count == 0) return;
  const int bits = element(type).bits;
  const std::size_t each = bits < 8 ? static_cast<std::size_t>(8 / bits) : 1;  // elements in a byte
  if (from_first % each == 0 && to_first % each == 0 && count % each == 0) {
    std::memcpy(static_cast<std::byte*>(to) + bytes_of(type, to_first),
                static_cast<const std::byte*>(from) + bytes_of(type, from_first), bytes_of(type, count));
    return;
  }
  std::uint8_t codes[256];
  for (std::size_t at = 0; at < count; at += std::size(codes)) {
    const auto n = static_cast<std::int64_t>(std::min(count - at, std::size(codes)));
    unpack_codes(bits, from, static_cast<std::int64_t>(from_first + at), 1, codes, n);
    pack_codes(bits, codes, 1, to, static_cast<std::int64_t>(to_first + at), 1, n);
  }
}

void clear_unused_bits(DType type, void* elements, std::size_t count) {
  const auto bits = static_cast<std::size_t>(element(type).bits);
  if (const std::size_t used = count * bits % 8; bits < 8 && used != 0)
    static_cast<std::byte*>(elements)[count * bits / 8] &= static_cast<std::byte>((1u << used) - 1);
}

namespace {

template <int bits>
void unpack(const std::uint8_t* packed, std::int64_t first, std::int64_t stride, std::uint8_t* codes,
            std::int64_t count) {
  constexpr std::int64_t kEach = 8 / bits;
  constexpr std::uint8_t kMask = (1u << bits) - 1;
  const auto one = [&](std::int64_t i) {
    const std::int64_t at = first + i * stride;
    codes[i] = packed[at / kEach] >> (at % kEach * bits) & kMask;
  };
  std::int64_t i = 0;
  if (stride == 1) {
    for (; i < count && (first + i) % kEach != 0; ++i) one(i);
    const std::uint8_t* from = packed + (first + i) / kEach;
    for (; i + kEach <= count; i += kEach, ++from)
      for (std::int64_t k = 0; k < kEach; ++k) codes[i + k] = *from >> (k * bits) & kMask;
  }
  for (; i < count; ++i) one(i);
}

template <int bits>
void pack(const std::uint8_t* codes, std::int64_t codes_stride, std::uint8_t* packed, std::int64_t first,
          std::int64_t stride, std::int64_t count) {
  constexpr std::int64_t kEach = 8 / bits;
  constexpr std::uint8_t kMask = (1u << bits) - 1;
  const auto one = [&](std::int64_t i) {
    const std::int64_t at = first + i * stride;
    const auto shift = static_cast<int>(at % kEach * bits);
    const std::atomic_ref<std::uint8_t> byte(packed[at / kEach]);
    byte.fetch_and(static_cast<std::uint8_t>(~(kMask << shift)), std::memory_order_relaxed);
    byte.fetch_or(static_cast<std::uint8_t>(codes[i * codes_stride] << shift), std::memory_order_relaxed);
  };
  std::int64_t i = 0;
  if (stride == 1) {
    for (; i < count && (first + i) % kEach != 0; ++i) one(i);
    std::uint8_t* to = packed + (first + i) / kEach;
    for (; i + kEach <= count; i += kEach, ++to) {
      unsigned byte = 0;
      for (std::int64_t k = 0; k < kEach; ++k)
        byte |= static_cast<unsigned>(codes[(i + k) * codes_stride]) << (k * bits);
      *to = static_cast<std::uint8_t>(byte);
    }
  }
  for (; i < count; ++i) one(i);
}

}  // namespace

void unpack_codes(int bits, const void* packed, std::int64_t first, std::int64_t stride, std::uint8_t* codes,
                  std::int64_t count) {
  const auto* from = static_cast<const std::uint8_t*>(packed);
  switch (bits) {
    case 1: return unpack<1>(from, first, stride, codes, count);
    case 2: return unpack<2>(from, first, stride, codes, count);
    default: return unpack<4>(from, first, stride, codes, count);
  }
}

void pack_codes(int bits, const std::uint8_t* codes, std::int64_t codes_stride, void* packed, std::int64_t first,
                std::int64_t stride, std::int64_t count) {
  auto* to = static_cast<std::uint8_t*>(packed);
  switch (bits) {
    case 1: return pack<1>(codes, codes_stride, to, first, stride, count);
    case 2: return pack<2>(codes, codes_stride, to, first, stride, count);
    default: return pack<4>(codes, codes_stride, to, first, stride, count);
  }
}

bool holds_all(DType to, DType from) {
  if (to == from || from == DType::boolean) return true;
  if (is_storage(to)) return false;
  if (is_block(from)) return to == DType::f32 || to == DType::f64;
  if (is_storage(from)) {
    const bool is_whole = from > DType::fp4_e2m1;
    return is_float(to) || (is_whole && is_integer(to) && (element(to).is_signed || !element(from).is_signed));
  }
  const Element &wide = element(to), &narrow = element(from);
  if (is_integer(from) && is_integer(to)) return wide.bits > narrow.bits && (wide.is_signed || !narrow.is_signed);
  if (!is_float(to)) return false;
  // An f32 has the range of every type here but f64, and f16 with its range of 65504 that of 8 bits.
  return wide.digits >= narrow.digits && wide.highest >= narrow.highest &&
         (is_integer(from) || to == DType::f32 || to == DType::f64);
}

}  // namespace weft
