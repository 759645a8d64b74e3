// Convolutions as products with windows, and the product that goes back from a result to an image.
// Image [N, C, space...], kernel [O, C / groups, size...], result [N, O, windows...].
#pragma once

#include "graph/windows.hpp"

namespace weft::graph {

struct ConvolutionGeometry {
  WindowGrid grid;  // over the larger image, which a convolution reads and a transposed one makes
  Extent groups = 1;
};

Tensor convolve(const Tensor& image, const Tensor& kernel, const ConvolutionGeometry& geometry, Where where);
/// The adjoint of `convolve` over images with these extents of space.
Tensor convolve_back(const Tensor& result, const Tensor& kernel, const ConvolutionGeometry& geometry,
                     const Extents& extents, Where where);
/// The gradient to the kernel: each element sums the products of its inputs and gradients.
Tensor kernel_gradient(const Tensor& image, const Tensor& result, const Shape& kernel,
                       const ConvolutionGeometry& geometry, Where where);
/// Multiply-adds of each element of the result.
double terms_of(const Tensor& kernel);
/// The gradients of `convolve_back(result, kernel)` to both, from that to its image.
Tensors gradients_of_back(const Tensor& result, const Tensor& kernel, ConvolutionGeometry geometry, const Tensor& image,
                          Where where);

}  // namespace weft::graph
