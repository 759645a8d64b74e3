#include "weft/grid/number_types.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/quote.hpp"
#include "tensor/element.hpp"
#include "weft/ops.hpp"
#include "weft/ops/float_parts.hpp"
#include "weft/transforms.hpp"

namespace weft::grid {
namespace {

/// How values become numbers of a type.
enum class Method : std::uint8_t {
  as_they_are,  // f64, f32
  nearest,      // f16, bf16
  small_float,  // fp8, fp4: a scale
  small_whole,  // integers up to 8 bits: a scale
  wide_whole,   // integers from 16 bits: a power of two
  ternary,
  binary
};

Method method_of(DType type) {
  switch (type) {
    case DType::f64:
    case DType::f32: return Method::as_they_are;
    case DType::f16:
    case DType::bf16: return Method::nearest;
    case DType::fp8_e4m3:
    case DType::fp8_e5m2:
    case DType::fp4_e2m1: return Method::small_float;
    case DType::ternary: return Method::ternary;
    case DType::binary: return Method::binary;
    default: return element(type).bits <= 8 ? Method::small_whole : Method::wide_whole;
  }
}

/// The largest number that a scale maps to: of integers 2^(bits - 1) - 1, also of unsigned ones, whose zero is in the middle.
double largest_code(DType type) {
  return method_of(type) == Method::small_float ? element(type).highest : std::ldexp(1.0, element(type).bits - 1) - 1;
}

// Scales below the smallest normal f32 would lose digits, or divide by 0.
constexpr float kScaleMin = 0x1p-126f;

Tensor as_bf16(const Tensor& x) { return cast(cast(x, DType::bf16), DType::f32); }
Tensor at_least(const Tensor& x, double least) { return elementwise("maximum", {x, scalar_like(least, x)}); }
Tensor select_where(const Tensor& condition, const Tensor& x, const Tensor& y) {
  return elementwise("where", {condition, x, y});
}
Tensor bounded(const Tensor& x, double most) { return elementwise("clamp", {x}, {-most, most}); }
/// -0 as 0: most types have one zero.
Tensor without_sign_of_zero(const Tensor& x) {
  const Tensor zero = scalar_like(0, x);
  return select_where(elementwise("eq", {x, zero}), zero, x);
}

Tensor rounded(const Tensor& w, DType type) {
  const Tensor magnitude = elementwise("abs", {w});
  switch (method_of(type)) {
    case Method::as_they_are: return w;
    case Method::nearest: return cast(cast(bounded(w, element(type).highest), type), DType::f32);
    case Method::small_float: {
      const double most = largest_code(type);
      const Tensor s = at_least(as_bf16(amax(magnitude) * (1 / most)), kScaleMin);
      return without_sign_of_zero(cast(cast(bounded(w / s, most), type), DType::f32) * s);
    }
    case Method::small_whole: {
      const double most = largest_code(type);
      const Tensor s = at_least(as_bf16(amax(magnitude) * (1 / most)), kScaleMin);
      return without_sign_of_zero(bounded(elementwise("round", {w / s}), most) * s);
    }
    case Method::wide_whole: {
      // The quotient is a power of two, which the cast makes exact where a device divides less than exactly.
      const Tensor top = amax(magnitude);
      const Tensor power = as_bf16(top / at_least(weft::frexp(top).mantissa, 0.5));
      const Tensor s = at_least(power * std::ldexp(1.0, 1 - element(type).bits), kScaleMin);
      return without_sign_of_zero(bounded(elementwise("round", {w / s}), largest_code(type)) * s);
    }
    case Method::ternary: {
      const Tensor stays = magnitude > mean(magnitude) * 0.7;
      const Tensor count = sum(cast(stays, DType::f32));
      const Tensor s = as_bf16(sum(select_where(stays, magnitude, scalar_like(0, w))) / at_least(count, 1));
      const Tensor signed_scale = select_where(w > 0.0, expand(s, w.shape()), expand(-s, w.shape()));
      return without_sign_of_zero(select_where(stays, signed_scale, scalar_like(0, w)));
    }
    case Method::binary: {
      const Tensor s = as_bf16(mean(magnitude));
      return without_sign_of_zero(select_where(w > 0.0, expand(s, w.shape()), expand(-s, w.shape())));
    }
  }
  return w;
}

float host_bf16(float x) { return f32_from_bf16(bf16_from_f32(x)); }

/// The scale of values that are `quantised` already.
float scale_of(std::span<const float> values, DType type) {
  float top = 0;
  for (const float v : values) top = std::max(top, std::fabs(v));
  switch (method_of(type)) {
    case Method::small_float:
    case Method::small_whole:
      return std::max(host_bf16(static_cast<float>(static_cast<double>(top) / largest_code(type))), kScaleMin);
    case Method::wide_whole: {
      int exponent = 0;
      std::frexp(top, &exponent);
      const float power = top > 0 ? std::ldexp(1.0f, exponent - element(type).bits + 1) : 0;
      return std::max(power, kScaleMin);
    }
    case Method::ternary:
    case Method::binary: return top;
    default: return 1;
  }
}

/// The code of an integer type as a whole number, from -2^(bits - 1).
std::int64_t whole_code(float value, float scale) {
  return static_cast<std::int64_t>(std::nearbyint(static_cast<double>(value) / static_cast<double>(scale)));
}

void write_code(DType type, float value, float scale, std::byte* bytes, std::size_t i) {
  switch (method_of(type)) {
    case Method::as_they_are:
    case Method::nearest: return write_element(type, static_cast<double>(value), bytes, i);
    case Method::small_float: return write_element(type, static_cast<double>(value / scale), bytes, i);
    case Method::ternary:
    case Method::binary: return write_element(type, value > 0 ? 1 : value < 0 ? -1 : 0, bytes, i);
    default: break;
  }
  const std::int64_t code = whole_code(value, scale);
  const int bits = element(type).bits;
  if (bits < 8) {
    const double middle = element(type).is_signed ? 0 : std::ldexp(1.0, bits - 1);
    return write_element(type, static_cast<double>(code) + middle, bytes, i);
  }
  // The low bytes of two's complement, with the zero point of unsigned types added.
  auto pattern = static_cast<std::uint64_t>(code);
  if (!element(type).is_signed) pattern += std::uint64_t{1} << (bits - 1);
  std::memcpy(bytes + i * size_bytes(type), &pattern, size_bytes(type));
}

float read_code(DType type, float scale, const std::byte* bytes, std::size_t i) {
  switch (method_of(type)) {
    case Method::as_they_are:
    case Method::nearest: return static_cast<float>(read_element(type, bytes, i));
    case Method::small_float:
    case Method::ternary:
    case Method::binary: return static_cast<float>(read_element(type, bytes, i)) * scale + 0.0f;
    default: break;
  }
  const int bits = element(type).bits;
  if (bits < 8)
    return static_cast<float>(read_element(type, bytes, i) -
                              (element(type).is_signed ? 0 : std::ldexp(1.0, bits - 1))) *
           scale;
  std::uint64_t pattern = 0;
  std::memcpy(&pattern, bytes + i * size_bytes(type), size_bytes(type));
  if (!element(type).is_signed) pattern -= std::uint64_t{1} << (bits - 1);
  const int unused = 64 - bits;
  const auto code = static_cast<std::int64_t>(pattern << unused) >> unused;
  return static_cast<float>(code) * scale;
}

}  // namespace

bool is_number_type(DType type) {
  return std::find(kNumberTypes.begin(), kNumberTypes.end(), type) != kNumberTypes.end();
}

DType number_type(std::string_view name) {
  static constexpr std::pair<std::string_view, DType> kOtherNames[] = {
      {"float64", DType::f64},      {"float32", DType::f32},      {"float16", DType::f16}, {"bfloat16", DType::bf16},
      {"fp8e4m3", DType::fp8_e4m3}, {"fp8e5m2", DType::fp8_e5m2}, {"int64", DType::i64},   {"int32", DType::i32},
      {"int16", DType::i16},        {"int8", DType::i8},          {"uint64", DType::u64},  {"uint32", DType::u32},
      {"uint16", DType::u16},       {"uint8", DType::u8},         {"fp4", DType::fp4_e2m1}};
  if (const auto type = dtype_from_name(name); type && is_number_type(*type)) return *type;
  for (const auto& [other, type] : kOtherNames)
    if (other == name) return type;
  std::string names;
  for (const DType type : kNumberTypes) names += fmt::format("{}{}", names.empty() ? "" : ", ", weft::name_of(type));
  throw UsageError(fmt::format("the type of parameters {} is unknown; choose one of {}", quote(name), names));
}

Tensor quantised(const Tensor& w, DType type) {
  if (!w.defined()) throw UsageError("quantised: w has no value");
  if (w.dtype() != DType::f32) throw DTypeError(fmt::format("quantised: w is {}, not f32", weft::name_of(w.dtype())));
  if (!is_number_type(type))
    throw DTypeError(fmt::format("quantised: {} is not a type of parameters", weft::name_of(type)));
  if (method_of(type) == Method::as_they_are || w.numel() == 0) return w;
  const Tensor inputs[] = {w};
  return custom_gradient([type](std::span<const Tensor> in) { return std::vector<Tensor>{rounded(in[0], type)}; },
                         [](const CustomGradient& g) { return std::vector<Tensor>{g.gradients[0]}; })(inputs)[0];
}

PackedValues pack(std::span<const float> values, DType type) {
  if (!is_number_type(type)) throw UsageError(fmt::format("pack: {} is not a type of parameters", weft::name_of(type)));
  for (const float v : values)
    if (!std::isfinite(v))
      throw UsageError(fmt::format("pack: a value is {}, which {} cannot hold at a scale", v, weft::name_of(type)));
  PackedValues packed{type, scale_of(values, type), values.size(),
                      std::vector<std::byte>(bytes_of(type, values.size()))};
  for (std::size_t i = 0; i < values.size(); ++i) {
    write_code(type, values[i], packed.scale, packed.bytes.data(), i);
    const float back = read_code(type, packed.scale, packed.bytes.data(), i);
    if (std::bit_cast<std::uint32_t>(back) != std::bit_cast<std::uint32_t>(values[i]))
      throw UsageError(fmt::format("pack: {} is not a number of {} at scale {}; pack what `quantised` gives", values[i],
                                   weft::name_of(type), packed.scale));
  }
  return packed;
}

std::vector<float> unpack(const PackedValues& packed) {
  if (!is_number_type(packed.type))
    throw UsageError(fmt::format("unpack: {} is not a type of parameters", weft::name_of(packed.type)));
  if (packed.bytes.size() != bytes_of(packed.type, packed.count))
    throw UsageError(fmt::format("unpack: {} bytes for {} values of {}, which take {}", packed.bytes.size(),
                                 packed.count, weft::name_of(packed.type), bytes_of(packed.type, packed.count)));
  if (!std::isfinite(packed.scale) || packed.scale < 0)
    throw UsageError(fmt::format("unpack: the scale is {}; it is finite and not negative", packed.scale));
  std::vector<float> values(packed.count);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = read_code(packed.type, packed.scale, packed.bytes.data(), i);
  return values;
}

std::size_t packed_bytes(DType type, std::size_t count) {
  const Method method = method_of(type);
  const bool scaled = method != Method::as_they_are && method != Method::nearest;
  return bytes_of(type, count) + (scaled ? sizeof(float) : 0);
}

}  // namespace weft::grid
