// Numbers that may differ by axis: strides, kernels, paddings.
#pragma once

#include <concepts>
#include <initializer_list>
#include <utility>
#include <vector>

#include "weft/shape.hpp"

namespace weft {

/// One number for all axes of space, or one for each: 2, {1, 2}. Empty: the default of the op.
struct PerAxis : std::vector<Extent> {
  using std::vector<Extent>::vector;
  PerAxis() = default;
  template <std::integral T>
  PerAxis(T all) : std::vector<Extent>{static_cast<Extent>(all)} {}
  PerAxis(std::initializer_list<Extent> each) : std::vector<Extent>(each) {}
  PerAxis(std::vector<Extent> each) : std::vector<Extent>(std::move(each)) {}
};

}  // namespace weft
