// Integrals and derivatives of functions that are given by samples.
//
// Samples are along an axis, at equal distances or at coordinates. Integers are taken as f32; narrow floats are computed in f32.
// Errors  ShapeError for an axis out of range, or too few samples
#pragma once

#include <vector>

#include "weft/ops.hpp"

namespace weft {

/// Where samples are: at a distance from one to the next, or at coordinates.
struct Spacing {
  Spacing(double distance = 1) : distance(distance) {}
  Spacing(Tensor coordinates) : coordinates(std::move(coordinates)) {}
  double distance = 1;
  Tensor coordinates;  ///< undefined: at the distance
};

/// The area below lines through the samples: sum (x_{i+1} - x_i) (y_i + y_{i+1}) / 2 along `axis`.
/// Shapes    y [..., n, ...] -> [..., ...]; coordinates [n], or of a shape that broadcasts with that of y
/// Dtypes    numbers
/// Gradient  to y and to the coordinates
[[nodiscard]] Tensor trapezoid(const Tensor& y, const Spacing& spacing = {}, int axis = -1,
                               Where where = Where::current());
/// The areas up to each sample but the first.
/// Shapes    y [..., n, ...] -> [..., n - 1, ...]
/// Dtypes, gradient: those of trapezoid
[[nodiscard]] Tensor cumulative_trapezoid(const Tensor& y, const Spacing& spacing = {}, int axis = -1,
                                          Where where = Where::current());
/// The derivative along each axis: inside by the parabola through three neighbours, (y_{i+1} - y_{i-1}) / 2h at equal distances;
/// at both ends by the line through two samples, or with `edge_order` 2 by the parabola through three.
/// `spacings` has one for each axis, or one for all; a coordinate of rank 0 is a distance.
/// Shapes    y -> one result of y's shape for each of `axes` (none: all); coordinates [n]
/// Dtypes    numbers
/// Gradient  to y and to the coordinates
/// Errors    ShapeError for fewer than edge_order + 1 samples, or coordinates of another length; UsageError for another edge_order
///           than 1 and 2, or another number of spacings than axes
[[nodiscard]] std::vector<Tensor> gradient(const Tensor& y, const std::vector<Spacing>& spacings = {},
                                           const Axes& axes = {}, int edge_order = 1, Where where = Where::current());

}  // namespace weft
