#include "weft/nn/images.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "weft/grad.hpp"
#include "weft/ops.hpp"
#include "weft/ops/networks.hpp"
#include "weft/ops/normalization.hpp"
#include "weft/ops/random.hpp"

namespace weft::nn {
namespace {

Shape kernel_shape(const char* layer, int axes, Extent first, Extent second, Extent groups, const PerAxis& kernel) {
  if (first < 1 || second < 1)
    throw ShapeError(fmt::format("{}: {} input and {} output channels; give at least 1 of each", layer, first, second));
  if (groups < 1 || first % groups != 0 || second % groups != 0)
    throw ShapeError(fmt::format("{}: {} groups do not divide {} and {} channels", layer, groups, first, second));
  if (kernel.size() != 1 && kernel.size() != static_cast<std::size_t>(axes))
    throw ShapeError(fmt::format("{}: the kernel has {} extents for {} spatial axes", layer, kernel.size(), axes));
  Shape shape{first, second / groups};
  for (int i = 0; i < axes; ++i) {
    shape.push_back(kernel.size() == 1 ? kernel[0] : kernel[static_cast<std::size_t>(i)]);
    if (shape.back() < 1) throw ShapeError(fmt::format("{}: the kernel has an extent of {}", layer, shape.back()));
  }
  return shape;
}

// Number of input elements for an element of the result, as in PyTorch.
Extent fan_in(const Shape& kernel) { return kernel.numel() / kernel[0]; }

int space_of(const char* layer, const Tensor& x) {
  const int axes = x.rank() - 2;
  if (axes < 1 || axes > 3)
    throw ShapeError(fmt::format("{}: x {} is not [images, channels] followed by one to three spatial axes", layer,
                                 x.shape().to_string()));
  return axes;
}

void require_channels(const char* layer, const Tensor& x, Extent channels) {
  if (x.rank() < 2 || x.dim(1) != channels)
    throw ShapeError(fmt::format("{}: made for {} channels, given x {}", layer, channels, x.shape().to_string()));
}

void check_norm(const char* layer, Extent channels, double eps) {
  if (channels < 1) throw ShapeError(fmt::format("{}: {} channels; give at least 1", layer, channels));
  if (!(eps >= 0) || std::isinf(eps))
    throw UsageError(fmt::format("{}: eps {} must be a number of at least 0", layer, eps));
}

Tensor value_of(const std::optional<Parameter>& parameter) { return parameter ? parameter->value() : Tensor(); }

}  // namespace

Conv::Conv(int axes, Extent in, Extent out, const PerAxis& kernel, ConvOptions options)
    : axes_(axes), in_(in), out_(out), options_(std::move(options)), weight_([&] {
        const Shape shape = kernel_shape("convolution", axes, out, in, options_.groups, kernel);
        return parameter("weight", shape, Init::kaiming_uniform(fan_in(shape)));
      }()) {
  if (options_.bias) bias_ = parameter("bias", {out}, Init::kaiming_uniform(fan_in(weight_.shape())));
}

Tensor Conv::operator()(const Tensor& given, Where where) const {
  return with_hooks(given, [&](const Tensor& x) {
    const auto convolve = axes_ == 1 ? conv1d : axes_ == 2 ? conv2d : conv3d;
    return convolve(x, weight_, value_of(bias_), options_, where);
  });
}

std::string Conv::describe() const {
  return fmt::format("Conv{}d {} -> {}, {}{}", axes_, in_, out_,
                     fmt::join(weight_.shape().begin() + 2, weight_.shape().end(), "x"), bias_ ? "" : ", no bias");
}

ConvTranspose::ConvTranspose(int axes, Extent in, Extent out, const PerAxis& kernel, ConvTransposeOptions options)
    : axes_(axes), in_(in), out_(out), options_(std::move(options)), weight_([&] {
        const Shape shape = kernel_shape("transposed convolution", axes, in, out, options_.groups, kernel);
        return parameter("weight", shape, Init::kaiming_uniform(fan_in(shape)));
      }()) {
  if (options_.bias) bias_ = parameter("bias", {out}, Init::kaiming_uniform(fan_in(weight_.shape())));
}

Tensor ConvTranspose::operator()(const Tensor& given, Where where) const {
  return with_hooks(given, [&](const Tensor& x) {
    const auto convolve = axes_ == 1 ? conv_transpose1d : axes_ == 2 ? conv_transpose2d : conv_transpose3d;
    return convolve(x, weight_, value_of(bias_), options_, where);
  });
}

std::string ConvTranspose::describe() const {
  return fmt::format("ConvTranspose{}d {} -> {}, {}{}", axes_, in_, out_,
                     fmt::join(weight_.shape().begin() + 2, weight_.shape().end(), "x"), bias_ ? "" : ", no bias");
}

Tensor MaxPool::operator()(const Tensor& given, Where where) const {
  return with_hooks(given, [&](const Tensor& x) {
    const int axes = space_of("max pool", x);
    return (axes == 1 ? max_pool1d : axes == 2 ? max_pool2d : max_pool3d)(x, kernel_, options_, where);
  });
}
std::string MaxPool::describe() const { return fmt::format("MaxPool {}", fmt::join(kernel_, "x")); }

Tensor AvgPool::operator()(const Tensor& given, Where where) const {
  return with_hooks(given, [&](const Tensor& x) {
    const int axes = space_of("average pool", x);
    return (axes == 1 ? avg_pool1d : axes == 2 ? avg_pool2d : avg_pool3d)(x, kernel_, options_, where);
  });
}
std::string AvgPool::describe() const { return fmt::format("AvgPool {}", fmt::join(kernel_, "x")); }

Tensor AdaptiveAvgPool::operator()(const Tensor& given, Where where) const {
  return with_hooks(given, [&](const Tensor& x) {
    const int axes = space_of("adaptive average pool", x);
    return (axes == 1 ? adaptive_avg_pool1d : axes == 2 ? adaptive_avg_pool2d : adaptive_avg_pool3d)(x, size_, where);
  });
}
std::string AdaptiveAvgPool::describe() const { return fmt::format("AdaptiveAvgPool {}", fmt::join(size_, "x")); }

Tensor AdaptiveMaxPool::operator()(const Tensor& given, Where where) const {
  return with_hooks(given, [&](const Tensor& x) {
    const int axes = space_of("adaptive max pool", x);
    return (axes == 1 ? adaptive_max_pool1d : axes == 2 ? adaptive_max_pool2d : adaptive_max_pool3d)(x, size_, where);
  });
}
std::string AdaptiveMaxPool::describe() const { return fmt::format("AdaptiveMaxPool {}", fmt::join(size_, "x")); }

BatchNorm::BatchNorm(Extent channels, BatchNormOptions options)
    : channels_((check_norm("batch norm", channels, options.eps), channels)),
      options_(options),
      mean_(buffer("running_mean", zeros({channels}))),
      variance_(buffer("running_var", ones({channels}))) {
  if (!(options.momentum >= 0 && options.momentum <= 1))
    throw UsageError(fmt::format("batch norm: momentum {} must be in [0, 1]", options.momentum));
  if (!options.affine) return;
  weight_ = parameter("weight", {channels}, Init::ones());
  bias_ = parameter("bias", {channels}, Init::zeros());
}

Tensor BatchNorm::operator()(const Tensor& given, Where where) const {
  return with_hooks(given, [&](const Tensor& x) {
    require_channels("batch norm", x, channels_);
    if (!is_training()) return batch_norm(x, value_of(weight_), value_of(bias_), mean_, variance_, options_.eps, where);
    const Extent count = x.numel() / channels_;
    if (count < 2)
      throw UsageError(
          fmt::format("batch norm: {} values a channel have no variance; train with more, or call eval()", count));
    Axes axes{0};
    for (int i = 2; i < x.rank(); ++i) axes.push_back(i);
    const auto moved = [&](Variable& running, const Tensor& now) {
      const Tensor next = cast(detach(now), running.dtype());
      running.assign(running.value() + (next - running.value()) * options_.momentum);
    };
    moved(mean_, mean(x, axes));
    moved(variance_, var(x, axes));
    return batch_norm(x, value_of(weight_), value_of(bias_), {}, {}, options_.eps, where);
  });
}
std::string BatchNorm::describe() const { return fmt::format("BatchNorm {}", channels_); }

GroupNorm::GroupNorm(Extent groups, Extent channels, bool affine, double eps)
    : groups_(groups), channels_(channels), eps_(eps) {
  check_norm("group norm", channels, eps);
  if (groups < 1 || channels % groups != 0)
    throw ShapeError(fmt::format("group norm: {} groups do not divide {} channels", groups, channels));
  if (!affine) return;
  weight_ = parameter("weight", {channels}, Init::ones());
  bias_ = parameter("bias", {channels}, Init::zeros());
}
Tensor GroupNorm::operator()(const Tensor& given, Where where) const {
  return with_hooks(given, [&](const Tensor& x) {
    require_channels("group norm", x, channels_);
    return group_norm(x, groups_, value_of(weight_), value_of(bias_), eps_, where);
  });
}
std::string GroupNorm::describe() const { return fmt::format("GroupNorm {} in {} groups", channels_, groups_); }

InstanceNorm::InstanceNorm(Extent channels, bool affine, double eps) : channels_(channels), eps_(eps) {
  check_norm("instance norm", channels, eps);
  if (!affine) return;
  weight_ = parameter("weight", {channels}, Init::ones());
  bias_ = parameter("bias", {channels}, Init::zeros());
}
Tensor InstanceNorm::operator()(const Tensor& given, Where where) const {
  return with_hooks(given, [&](const Tensor& x) {
    require_channels("instance norm", x, channels_);
    return instance_norm(x, value_of(weight_), value_of(bias_), eps_, where);
  });
}
std::string InstanceNorm::describe() const { return fmt::format("InstanceNorm {}", channels_); }

Upsample::Upsample(Extent scale, Interpolation mode, bool align_corners)
    : scale_(scale), mode_(mode), align_corners_(align_corners) {
  if (scale < 1) throw UsageError(fmt::format("upsample: the scale is {}; it must be at least 1", scale));
}
Tensor Upsample::operator()(const Tensor& given, Where where) const {
  return with_hooks(given, [&](const Tensor& x) {
    space_of("upsample", x);
    std::vector<Extent> size(x.shape().begin() + 2, x.shape().end());
    for (Extent& extent : size) extent *= scale_;
    return interpolate(x, PerAxis(std::move(size)), mode_, align_corners_, where);
  });
}
std::string Upsample::describe() const { return fmt::format("Upsample {}", scale_); }

Tensor Flatten::operator()(const Tensor& given, Where where) const {
  return with_hooks(given, [&](const Tensor& x) { return flatten(x, first_, last_, where); });
}

ChannelDropout::ChannelDropout(double p) : p_(p) {
  if (!(p >= 0 && p < 1)) throw UsageError(fmt::format("dropout: probability {} must be in [0, 1)", p));
}
Tensor ChannelDropout::operator()(const Tensor& given, Where where) const {
  return with_hooks(given, [&](const Tensor& x) {
    if (!is_training() || p_ == 0) return x;
    return channel_dropout(x, p_, where);
  });
}
std::string ChannelDropout::describe() const { return fmt::format("Dropout of channels {}", p_); }

PReLU::PReLU(Extent channels, double initial) : weight_(parameter("weight", {channels}, Init::constant(initial))) {}
Tensor PReLU::operator()(const Tensor& given, Where where) const {
  return with_hooks(given, [&](const Tensor& x) { return prelu(x, weight_, where); });
}

}  // namespace weft::nn
