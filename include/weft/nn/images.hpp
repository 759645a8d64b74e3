// Layers over images and signals [N, C, space...]: convolutions, pools, norms, resampling. One to three axes of space.
#pragma once

#include <optional>
#include <string>

#include "weft/nn/module.hpp"
#include "weft/ops/convolution.hpp"
#include "weft/ops/interpolation.hpp"
#include "weft/ops/pooling.hpp"

namespace weft::nn {

struct ConvOptions : ConvolutionOptions {
  bool bias = true;
};
/// conv1d, conv2d or conv3d. Parameters: weight [out, in / groups, kernel...] and bias [out], both uniform in
/// +-1 / sqrt(in / groups * elements of the kernel). Errors: ShapeError for channels that groups do not divide.
class Conv : public Module {
 public:
  Tensor operator()(const Tensor& x, Where where = Where::current()) const;
  const Parameter& weight() const { return weight_; }
  std::string describe() const override;

 protected:
  Conv(int axes, Extent in, Extent out, const PerAxis& kernel, ConvOptions options);

 private:
  int axes_;
  Extent in_, out_;
  ConvOptions options_;
  Parameter weight_;
  std::optional<Parameter> bias_;
};
struct Conv1d : Conv {
  Conv1d(Extent in, Extent out, const PerAxis& kernel, ConvOptions options = {})
      : Conv(1, in, out, kernel, std::move(options)) {}
};
struct Conv2d : Conv {
  Conv2d(Extent in, Extent out, const PerAxis& kernel, ConvOptions options = {})
      : Conv(2, in, out, kernel, std::move(options)) {}
};
struct Conv3d : Conv {
  Conv3d(Extent in, Extent out, const PerAxis& kernel, ConvOptions options = {})
      : Conv(3, in, out, kernel, std::move(options)) {}
};

struct ConvTransposeOptions : TransposedConvolutionOptions {
  bool bias = true;
};
/// conv_transpose1d, 2d or 3d. Parameters: weight [in, out / groups, kernel...], bias [out].
class ConvTranspose : public Module {
 public:
  Tensor operator()(const Tensor& x, Where where = Where::current()) const;
  const Parameter& weight() const { return weight_; }
  std::string describe() const override;

 protected:
  ConvTranspose(int axes, Extent in, Extent out, const PerAxis& kernel, ConvTransposeOptions options);

 private:
  int axes_;
  Extent in_, out_;
  ConvTransposeOptions options_;
  Parameter weight_;
  std::optional<Parameter> bias_;
};
struct ConvTranspose1d : ConvTranspose {
  ConvTranspose1d(Extent in, Extent out, const PerAxis& kernel, ConvTransposeOptions options = {})
      : ConvTranspose(1, in, out, kernel, std::move(options)) {}
};
struct ConvTranspose2d : ConvTranspose {
  ConvTranspose2d(Extent in, Extent out, const PerAxis& kernel, ConvTransposeOptions options = {})
      : ConvTranspose(2, in, out, kernel, std::move(options)) {}
};
struct ConvTranspose3d : ConvTranspose {
  ConvTranspose3d(Extent in, Extent out, const PerAxis& kernel, ConvTransposeOptions options = {})
      : ConvTranspose(3, in, out, kernel, std::move(options)) {}
};

/// The greatest element of each window; the axes of space are those of x.
class MaxPool : public Module {
 public:
  explicit MaxPool(PerAxis kernel, PoolOptions options = {})
      : kernel_(std::move(kernel)), options_(std::move(options)) {}
  Tensor operator()(const Tensor& x, Where where = Where::current()) const;
  std::string describe() const override;

 private:
  PerAxis kernel_;
  PoolOptions options_;
};
/// The mean of each window.
class AvgPool : public Module {
 public:
  explicit AvgPool(PerAxis kernel, AveragePoolOptions options = {})
      : kernel_(std::move(kernel)), options_(std::move(options)) {}
  Tensor operator()(const Tensor& x, Where where = Where::current()) const;
  std::string describe() const override;

 private:
  PerAxis kernel_;
  AveragePoolOptions options_;
};
/// The mean of `size` windows that cover x, whatever its extents.
class AdaptiveAvgPool : public Module {
 public:
  explicit AdaptiveAvgPool(PerAxis size) : size_(std::move(size)) {}
  Tensor operator()(const Tensor& x, Where where = Where::current()) const;
  std::string describe() const override;

 private:
  PerAxis size_;
};
/// The greatest element of `size` windows that cover x.
class AdaptiveMaxPool : public Module {
 public:
  explicit AdaptiveMaxPool(PerAxis size) : size_(std::move(size)) {}
  Tensor operator()(const Tensor& x, Where where = Where::current()) const;
  std::string describe() const override;

 private:
  PerAxis size_;
};

struct BatchNormOptions {
  double eps = 1e-5;
  double momentum = 0.1;  ///< share of the new batch in the running statistics
  bool affine = true;     ///< whether there are a weight and a bias
};
/// Norm of each channel over images and places. While training it uses the statistics of the batch, and moves its buffers
/// running_mean and running_var (of a sample) towards them; else it uses these. A compiled step updates them as it runs.
class BatchNorm : public Module {
 public:
  explicit BatchNorm(Extent channels, BatchNormOptions options = {});
  Tensor operator()(const Tensor& x, Where where = Where::current()) const;
  std::string describe() const override;

 private:
  Extent channels_;
  BatchNormOptions options_;
  std::optional<Parameter> weight_, bias_;
  mutable Variable mean_, variance_;
};
/// Norm of groups of channels of each image.
class GroupNorm : public Module {
 public:
  GroupNorm(Extent groups, Extent channels, bool affine = true, double eps = 1e-5);
  Tensor operator()(const Tensor& x, Where where = Where::current()) const;
  std::string describe() const override;

 private:
  Extent groups_, channels_;
  double eps_;
  std::optional<Parameter> weight_, bias_;
};
/// Norm of each channel of each image. As in PyTorch, it has no weight and bias by default.
class InstanceNorm : public Module {
 public:
  explicit InstanceNorm(Extent channels, bool affine = false, double eps = 1e-5);
  Tensor operator()(const Tensor& x, Where where = Where::current()) const;
  std::string describe() const override;

 private:
  Extent channels_;
  double eps_;
  std::optional<Parameter> weight_, bias_;
};

/// Resamples x: multiplies the extents of its axes of space by `scale`.
class Upsample : public Module {
 public:
  explicit Upsample(Extent scale, Interpolation mode = Interpolation::nearest, bool align_corners = false);
  Tensor operator()(const Tensor& x, Where where = Where::current()) const;
  std::string describe() const override;

 private:
  Extent scale_;
  Interpolation mode_;
  bool align_corners_;
};
/// Joins axes [first, last] of x to one.
class Flatten : public Module {
 public:
  explicit Flatten(int first = 1, int last = -1) : first_(first), last_(last) {}
  Tensor operator()(const Tensor& x, Where where = Where::current()) const;
  std::string describe() const override { return "Flatten"; }

 private:
  int first_, last_;
};
/// In training, each channel of each image is kept with probability 1-p and divided by 1-p, or else becomes 0.
class ChannelDropout : public Module {
 public:
  /// Errors: UsageError unless 0 <= p < 1.
  explicit ChannelDropout(double p);
  Tensor operator()(const Tensor& x, Where where = Where::current()) const;
  std::string describe() const override;

 private:
  double p_;
};
using Dropout1d = ChannelDropout;
using Dropout2d = ChannelDropout;
using Dropout3d = ChannelDropout;

/// max(x, 0) + weight min(x, 0) with a weight for all channels, or for each; initially 0.25.
class PReLU : public Module {
 public:
  explicit PReLU(Extent channels = 1, double initial = 0.25);
  Tensor operator()(const Tensor& x, Where where = Where::current()) const;
  std::string describe() const override { return "PReLU"; }

 private:
  Parameter weight_;
};

}  // namespace weft::nn
