// Lines along an axis, for scatters.
#pragma once

#include <string>

#include "compile/kernel.hpp"

namespace weft::webgpu {

/// A result [outer, extent, inner], and the indices that choose places in it, [outer, taken, inner].
struct AxisLines {
  Extent outer = 1, extent = 0, inner = 1, taken = 0;
};

inline AxisLines axis_lines(const Shape& shape, Extent axis_or_negative, const Shape& indices) {
  const int axis = static_cast<int>(axis_or_negative < 0 ? axis_or_negative + shape.rank() : axis_or_negative);
  AxisLines lines{.extent = shape[axis], .taken = indices[axis]};
  for (int d = 0; d < shape.rank(); ++d)
    if (d != axis) (d < axis ? lines.outer : lines.inner) *= shape[d];
  return lines;
}

/// An index as u32, where a negative one is large, so it is outside of all places.
inline std::string as_place(const kernel::Operand& indices, const std::string& index) {
  return indices.type == DType::u32 ? index : "bitcast<u32>(" + index + ")";
}

}  // namespace weft::webgpu
