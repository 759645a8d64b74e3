#include "reference/values.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace weft::reference {

double round_half_even(double x) {
  const double down = std::floor(x), part = x - down;
  const double r = part < 0.5 ? down : part > 0.5 ? down + 1 : std::fmod(down, 2) == 0 ? down : down + 1;
  return std::copysign(r, x);
}

namespace {

/// The nearest number with `digits` bits of significand, ties to even; below 2^least the unit stays that of 2^least.
double with_digits(double value, int digits, int least, double highest) {
  if (value == 0 || !std::isfinite(value)) return value;
  const double unit = std::ldexp(1.0, std::max(std::ilogb(value), least) - digits + 1);
  const double rounded = unit * round_half_even(value / unit);
  return std::fabs(rounded) > highest ? std::copysign(std::numeric_limits<double>::infinity(), value) : rounded;
}

/// The low bits of a whole number, read as the type.
double low_bits(double value, DType type) {
  // Of 64 bits tests keep below 2^53, or have references of their own.
  if (element(type).bits == 64) return value < 0 && !element(type).is_signed ? value + 0x1p64 : value;
  const double range = std::ldexp(1.0, element(type).bits);
  const double rest = value - range * std::floor(value / range);
  return element(type).is_signed && rest >= range / 2 ? rest - range : rest;
}

/// To a type of storage: to the nearest, ties to even; what is too large becomes the largest number.
double to_storage(double value, DType type) {
  const Element& row = element(type);
  if (type == DType::binary) return value > 0 ? 1 : -1;
  const bool is_fp8 = type == DType::fp8_e4m3 || type == DType::fp8_e5m2;
  if (std::isnan(value)) return is_fp8 ? value : 0;
  if (std::isinf(value) && row.has_infinity) return value;
  const double inside = std::clamp(value, row.lowest, row.highest);
  if (!is_fp8 && type != DType::fp4_e2m1) return round_half_even(inside) + 0.0;  // no -0
  return with_digits(inside, row.digits, type == DType::fp8_e4m3 ? -6 : type == DType::fp8_e5m2 ? -14 : 0, row.highest);
}

}  // namespace

double to_type(double value, DType type) {
  if (is_storage(type)) return to_storage(value, type);
  switch (type) {
    case DType::f32: return static_cast<float>(value);
    case DType::f64: return value;
    case DType::f16: return with_digits(value, 11, -14, 65504);
    case DType::bf16: return with_digits(value, 8, -126, 0x1.fep127);
    case DType::boolean: return value != 0;
    default: return low_bits(value, type);
  }
}

double cast(double value, DType from, DType to) {
  if (is_float(from) && is_integer(to)) {
    if (std::isnan(value)) return 0;
    return std::clamp(std::trunc(value), element(to).lowest, element(to).highest) + 0.0;
  }
  return to_type(value, to);
}

Extent locate(const kernel::View& view, Extent i) {
  Extent at = view.offset;
  bool inside = true;
  for (std::size_t d = view.extents.size(); d-- > 0;) {
    const Extent c = i % view.extents[d];
    i /= view.extents[d];
    at += c * view.strides[d];
    if (!view.bounds.empty()) inside = inside && view.bounds[d].lo <= c && c < view.bounds[d].hi;
  }
  if (!inside) return -1;
  if (at < 0) throw std::logic_error("a view leads before its operand");
  return at;
}

double read(const kernel::Operand& operand, Extent at, const std::vector<Values>& buffers) {
  if (at < 0 || at >= operand.count) throw std::logic_error("a view leads outside its operand");
  return buffers.at(static_cast<std::size_t>(operand.buffer)).at(static_cast<std::size_t>(operand.offset + at));
}
void write(const kernel::Operand& operand, Extent at, double value, std::vector<Values>& buffers) {
  if (at < 0 || at >= operand.count) throw std::logic_error("a view leads outside its operand");
  buffers.at(static_cast<std::size_t>(operand.buffer)).at(static_cast<std::size_t>(operand.offset + at)) = value;
}

}  // namespace weft::reference
