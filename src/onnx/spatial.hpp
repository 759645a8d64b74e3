// Windows over axes of space, which convolutions and pools share.
#pragma once

#include <vector>

#include "onnx/apply.hpp"

namespace weft::onnx {

/// The window of a convolution or pool, with a number for each axis of space.
struct Spatial {
  int axes = 0;
  std::vector<Extent> kernel, stride, dilation, span, before, after;
};
/// From the node's attributes, for x [N, C, ...]. `kernel` is that of a weight, or empty for the attribute.
/// Errors: ShapeError, UsageError for attributes that do not fit. A `transposed` one leaves "SAME" to its caller.
Spatial spatial_of(const Application& a, const Shape& x, std::vector<Extent> kernel, bool transposed);
/// The extents of the windows that a weight is multiplied with. Errors: ShapeError.
std::vector<Extent> window_of(const Application& a, const Tensor& x, const Tensor& w);
/// x with `value` around its axes of space.
Tensor padded_space(const Tensor& x, const std::vector<Extent>& before, const std::vector<Extent>& after, double value);
/// x [N, C, ...] in windows: [N, C, windows..., kernel...].
Tensor windows_of(const Tensor& x, const Spatial& s);
/// The convolution that the node describes.
Tensor convolved(const Application& a, const Tensor& x, const Tensor& weight, const Tensor& bias);
/// The average pool that the node describes.
Tensor averaged(const Application& a, const Tensor& x);
/// [N, ..., C] -> [N, C, ...], and back.
Tensor channels_first(const Tensor& x);
Tensor channels_last(const Tensor& x);

}  // namespace weft::onnx
