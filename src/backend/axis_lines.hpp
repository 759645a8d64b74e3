// Lines along an axis, for scatters.
#pragma once

#include "weft/shape.hpp"

namespace weft::backend {

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

}  // namespace weft::backend
