// Lines along an axis, for scatters.
#pragma once

#include <string>

#include "backend/axis_lines.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu {

using backend::axis_lines;
using backend::AxisLines;

/// An index as u32, where a negative one is large, so it is outside of all places.
inline std::string as_place(const kernel::Operand& indices, const std::string& index) {
  return indices.type == DType::u32 ? index : "bitcast<u32>(" + index + ")";
}

/// The bits of an operand's elements, of 32 bits each.
inline kernel::Operand words_of(const kernel::Operand& operand) {
  return {operand.buffer, DType::u32, operand.offset, operand.count};
}

}  // namespace weft::webgpu
