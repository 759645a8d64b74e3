// Windows over the axes of space of [N, C, space...], for convolutions and pools.
#pragma once

#include <string_view>

#include "graph/op.hpp"

namespace weft::graph {

using Extents = std::vector<Extent>;
inline std::size_t at(int axis) { return static_cast<std::size_t>(axis); }
/// "2d" for two axes of space.
inline std::string space_name(int axes) { return std::to_string(axes) + "d"; }

/// `given` for each of `axes` axes: one number is for all axes, none means `fallback`. Errors: ShapeError for another count of
/// numbers, or a number below `least`.
Extents per_axis(const Call& call, std::string_view name, const Extents& given, int axes, Extent fallback,
                 Extent least);

/// The windows along the axes of space.
struct WindowGrid {
  Extents size, stride, dilation;
  Extents before, after;  // padding; negative numbers remove elements
  int axes() const { return static_cast<int>(size.size()); }
  Extent span(int axis) const;
  /// Number of windows along an axis of this extent.
  Extent count(int axis, Extent extent) const;
};

/// x with zeros added around its axes of space, or elements removed.
Tensor padded(const Tensor& x, const Extents& before, const Extents& after);
/// [N, C, space...] -> [N, C, windows..., size...], without a copy.
Tensor windows_of(const Tensor& x, const WindowGrid& grid);
/// The sum of windows [N, C, windows..., size...] at their places in [N, C, extents...].
Tensor windows_added(const Tensor& windows, const WindowGrid& grid, const Extents& extents);

}  // namespace weft::graph
