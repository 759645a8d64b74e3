// Resampling: images in other sizes, and images read between their elements.
#pragma once

#include "weft/ops/per_axis.hpp"
#include "weft/tensor.hpp"

namespace weft {

enum class Interpolation {
  nearest,  ///< element floor(i extent / size)
  linear,   ///< between two neighbours along each axis: linear, bilinear, trilinear
  cubic,    ///< cubic convolution of four neighbours along each axis, a = -0.75
};

/// x resampled to `size` elements along its axes of space. Element i is read at (i + 0.5) extent / size - 0.5, or with
/// `align_corners` at i (extent - 1) / (size - 1), so that the outermost elements are kept.
/// Shapes    x [N, C, 1 to 3 axes of space] -> [N, C, size...]
/// Dtypes    floats
/// Errors    ShapeError: x without an axis of space, or with an empty one; sizes below 1
/// Gradient  to the elements that were read, by their weights
/// Source    of cubic: Keys 1981, "Cubic convolution interpolation for digital image processing"
[[nodiscard]] Tensor interpolate(const Tensor& x, const PerAxis& size, Interpolation mode = Interpolation::nearest,
                                 bool align_corners = false, Where where = Where::current());

enum class GridPadding {
  zeros,       ///< 0 outside of the image
  border,      ///< the nearest element of the edge
  reflection,  ///< mirrored at the edges
};

/// x at the places in `grid`: coordinates from -1 to 1 along each axis, the last axis of space first. -1 and 1 are the centres
/// of the outermost elements with `align_corners`, else their outer edges.
/// Shapes    x [N, C, H, W], grid [N, P, Q, 2] -> [N, C, P, Q]; x [N, C, D, H, W], grid [N, O, P, Q, 3] -> [N, C, O, P, Q]
/// Dtypes    floats, both the same
/// Errors    ShapeError: a grid that does not fit
/// Gradient  to x and, except for nearest, to the grid
[[nodiscard]] Tensor grid_sample(const Tensor& x, const Tensor& grid, Interpolation mode = Interpolation::linear,
                                 GridPadding padding = GridPadding::zeros, bool align_corners = false,
                                 Where where = Where::current());

/// A grid for `grid_sample`: the places theta [x, y, 1] of the elements of an image of `size` [N, C, H, W], with coordinates as there.
/// Shapes    theta [N, 2, 3] -> [N, H, W, 2]; theta [N, 3, 4] with size [N, C, D, H, W] -> [N, D, H, W, 3]
/// Dtypes    floats
/// Errors    ShapeError: a size of another number of axes, or images than theta has
/// Gradient  to theta
[[nodiscard]] Tensor affine_grid(const Tensor& theta, const Shape& size, bool align_corners = false,
                                 Where where = Where::current());

}  // namespace weft
