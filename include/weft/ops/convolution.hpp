// Convolutions over one to three axes of space, and their adjoints.
#pragma once

#include "weft/ops/per_axis.hpp"
#include "weft/tensor.hpp"

namespace weft {

struct ConvolutionOptions {
  PerAxis stride = 1;
  PerAxis padding = 0;  ///< zeros at both ends of each axis
  PerAxis dilation = 1;
  Extent groups = 1;  ///< groups of neighbouring channels that are convolved separately
  /// Pads so that the result has the extents of x, with an odd zero at the end; `padding` is then ignored.
  bool same = false;
};

/// y[n, o, p] = bias[o] + sum over c, k of weight[o, c, k] x[n, c, stride p + dilation k - padding], with zeros around x. The
/// windows of x are read in place (`unfold`); no matrix of them is made.
/// Shapes    x [N, C, L], weight [O, C / groups, K], bias [O] or undefined -> [N, O, floor((L + 2 padding - span) / stride) + 1]
///           with span = dilation (K - 1) + 1; conv2d and conv3d the same with 2 and 3 axes of space
/// Dtypes    floats; f16 and bf16 add in f32
/// Errors    ShapeError: channels, groups or lengths that do not fit; a window longer than the padded axis
/// Gradient  of x the transposed convolution of g, of the weight a product of g and the windows of x
[[nodiscard]] Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                            const ConvolutionOptions& options = {}, Where where = Where::current());
[[nodiscard]] Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                            const ConvolutionOptions& options = {}, Where where = Where::current());
[[nodiscard]] Tensor conv3d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                            const ConvolutionOptions& options = {}, Where where = Where::current());

struct TransposedConvolutionOptions {
  PerAxis stride = 1;
  PerAxis padding = 0;         ///< elements cut off at both ends of each axis of the result
  PerAxis output_padding = 0;  ///< elements added at its end, to choose among possible extents
  PerAxis dilation = 1;
  Extent groups = 1;
};

/// The adjoint of a convolution with the same options: each element of x adds its multiple of the kernel to the result.
/// Shapes    x [N, C, L], weight [C, O / groups, K], bias [O] or undefined
///           -> [N, O, stride (L - 1) + dilation (K - 1) + 1 - 2 padding + output_padding]
/// Errors    ShapeError: as conv1d; output padding that is not smaller than the stride or the dilation
/// Gradient  of x the convolution of g, of the weight a product of x and the windows of g
[[nodiscard]] Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                                      const TransposedConvolutionOptions& options = {}, Where where = Where::current());
[[nodiscard]] Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                                      const TransposedConvolutionOptions& options = {}, Where where = Where::current());
[[nodiscard]] Tensor conv_transpose3d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                                      const TransposedConvolutionOptions& options = {}, Where where = Where::current());

}  // namespace weft
