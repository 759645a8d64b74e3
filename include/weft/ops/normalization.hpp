// Norms over images of a batch, channels, or groups of channels.
#pragma once

#include "weft/tensor.hpp"

namespace weft {

/// (x - mean) / sqrt(variance + eps) * weight + bias for each channel. By default `mean` and `variance` are the channel's over
/// all images and places, with the population variance.
/// Shapes    x [N, C, ...], weight, bias, mean, variance [C] or undefined; the last two only together -> as x
/// Dtypes    floats; f16 and bf16 compute in f32
/// Errors    ShapeError: x with less than two axes, vectors of another length; UsageError: mean without variance
/// Source    Ioffe and Szegedy 2015, arXiv:1502.03167
[[nodiscard]] Tensor batch_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {},
                                const Tensor& mean = {}, const Tensor& variance = {}, double eps = 1e-5,
                                Where where = Where::current());
/// The same over `groups` groups of neighbouring channels, separately for each image; weight and bias are per channel.
/// Errors    ShapeError: groups that do not divide the channels
/// Source    Wu and He 2018, arXiv:1803.08494
[[nodiscard]] Tensor group_norm(const Tensor& x, Extent groups, const Tensor& weight = {}, const Tensor& bias = {},
                                double eps = 1e-5, Where where = Where::current());
/// The same, separately for each channel of each image.
/// Source    Ulyanov, Vedaldi and Lempitsky 2016, arXiv:1607.08022
[[nodiscard]] Tensor instance_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {},
                                   double eps = 1e-5, Where where = Where::current());
/// x / (k + alpha mean of x^2 over the `size` channels around)^beta, with zeros beyond the first and last channel.
/// Shapes    x [N, C, ...] -> as x
/// Errors    ShapeError: x with less than two axes, a size below 1
/// Source    Krizhevsky, Sutskever and Hinton 2012, "ImageNet classification with deep convolutional neural networks"
[[nodiscard]] Tensor local_response_norm(const Tensor& x, Extent size, double alpha = 1e-4, double beta = 0.75,
                                         double k = 1, Where where = Where::current());

}  // namespace weft
