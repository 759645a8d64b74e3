// Buffers of the reference: vectors of doubles, one element each (an f32, i32, u32 or bool is exact in a double), so that a
// buffer holds one element type.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "compile/kernel.hpp"

namespace weft::reference {

using Values = std::vector<double>;

inline double to_type(double value, DType type) {
  switch (type) {
    case DType::f32: return static_cast<float>(value);
    case DType::f64: return value;
    case DType::i32: return static_cast<double>(static_cast<std::int32_t>(static_cast<std::int64_t>(value)));
    case DType::u32: return static_cast<double>(static_cast<std::uint32_t>(static_cast<std::int64_t>(value)));
    case DType::boolean: return value != 0;
  }
  return value;
}

/// scalar::Op::cast: float to integer truncates and saturates, NaN gives 0; integer to integer keeps the low 32 bits.
inline double cast(double value, DType from, DType to) {
  if (is_float(from) && is_integer(to)) {
    if (std::isnan(value)) return 0;
    if (to == DType::i32) return std::clamp(std::trunc(value), -2147483648.0, 2147483647.0);
    return std::clamp(std::trunc(value), 0.0, 4294967295.0) + 0.0;
  }
  return to_type(value, to);
}

/// Element offset of linear index `i` in a view, or -1 where a bound excludes it.
inline Extent locate(const kernel::View& view, Extent i) {
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

inline double read(const kernel::Operand& operand, Extent at, const std::vector<Values>& buffers) {
  if (at < 0 || at >= operand.count) throw std::logic_error("a view leads outside its operand");
  return buffers.at(static_cast<std::size_t>(operand.buffer)).at(static_cast<std::size_t>(operand.offset + at));
}
inline void write(const kernel::Operand& operand, Extent at, double value, std::vector<Values>& buffers) {
  if (at < 0 || at >= operand.count) throw std::logic_error("a view leads outside its operand");
  buffers.at(static_cast<std::size_t>(operand.buffer)).at(static_cast<std::size_t>(operand.offset + at)) = value;
}

}  // namespace weft::reference
