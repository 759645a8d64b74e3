// Layers. Letters: B batch, T positions, C width, H heads, D = C / H.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "weft/nn/module.hpp"

namespace weft::nn {

struct LinearOptions {
  bool bias = true;
  /// Unset: uniform in +-1/sqrt(in) for both.
  std::optional<Init> weight_init = {};
  std::optional<Init> bias_init = {};
};
/// x W^T + b. Shapes: x [..., in] -> [..., out]; weight [out, in], bias [out].
class Linear : public Module {
 public:
  Linear(Extent in, Extent out, LinearOptions options = {});
  Tensor operator()(const Tensor& x, Where where = Where::current()) const;
  const Parameter& weight() const { return weight_; }
  std::string describe() const override;
  double own_flops() const override { return 2.0 * static_cast<double>(in_ * out_); }

 private:
  Extent in_, out_;
  Parameter weight_;
  std::optional<Parameter> bias_;
};

/// sum_ij x_i weight_oij y_j + bias_o. Shapes: x [..., in_1], y [..., in_2] -> [..., out]; weight [out, in_1, in_2], bias [out],
/// both uniform in +-1/sqrt(in_1).
class Bilinear : public Module {
 public:
  Bilinear(Extent in_1, Extent in_2, Extent out, bool bias = true);
  Tensor operator()(const Tensor& x, const Tensor& y, Where where = Where::current()) const;
  const Parameter& weight() const { return weight_; }
  std::string describe() const override;
  double own_flops() const override { return 2.0 * static_cast<double>(in_1_ * in_2_ * out_); }

 private:
  Extent in_1_, in_2_, out_;
  Parameter weight_;
  std::optional<Parameter> bias_;
};

/// Rows of a table by i32 index. Shapes: indices [...] -> [..., C]; weight [rows, C], normal with deviation 1 by default.
class Embedding : public Module {
 public:
  Embedding(Extent rows, Extent width, Init init = Init::normal(1));
  Tensor operator()(const Tensor& indices, Where where = Where::current()) const;
  const Parameter& weight() const { return weight_; }
  std::string describe() const override;

 private:
  Extent rows_, width_;
  Parameter weight_;
};

/// (x - mean) / sqrt(variance + eps) * weight + bias over the last axis, whose extent is `width`.
class LayerNorm : public Module {
 public:
  explicit LayerNorm(Extent width, bool bias = true, double eps = 1e-5);
  Tensor operator()(const Tensor& x, Where where = Where::current()) const;
  std::string describe() const override;

 private:
  Extent width_;
  double eps_;
  Parameter weight_;
  std::optional<Parameter> bias_;
};

/// x / sqrt(mean(x^2) + eps) * weight over the last axis, whose extent is `width`.
class RMSNorm : public Module {
 public:
  explicit RMSNorm(Extent width, double eps = 1e-6);
  Tensor operator()(const Tensor& x, Where where = Where::current()) const;
  std::string describe() const override;

 private:
  Extent width_;
  double eps_;
  Parameter weight_;
};

/// In training, each element is kept with probability 1-p and divided by 1-p, or else becomes 0. In evaluation, gives x.
class Dropout : public Module {
 public:
  /// Errors: UsageError unless 0 <= p < 1.
  explicit Dropout(double p);
  Tensor operator()(const Tensor& x, Where where = Where::current()) const;
  std::string describe() const override;

 private:
  double p_;
};

/// Dropout for networks of `selu`: in training, alpha_dropout of weft/ops/random.hpp. In evaluation, gives x.
class AlphaDropout : public Module {
 public:
  /// Errors: UsageError unless 0 <= p < 1.
  explicit AlphaDropout(double p = 0.5);
  Tensor operator()(const Tensor& x, Where where = Where::current()) const;
  std::string describe() const override;

 private:
  double p_;
};
/// AlphaDropout of whole channels of x [N, C, ...].
class FeatureAlphaDropout : public Module {
 public:
  /// Errors: UsageError unless 0 <= p < 1.
  explicit FeatureAlphaDropout(double p = 0.5);
  Tensor operator()(const Tensor& x, Where where = Where::current()) const;
  std::string describe() const override;

 private:
  double p_;
};

/// Functions and modules one after another: Sequential net; net.emplace<Linear>(2, 32); net.then([](Tensor x) { return tanh(x);
/// }); net.emplace<Linear>(32, 1). Modules are named by their positions: "0", "2".
class Sequential : public Module {
 public:
  template <class M, class... Arguments>
  Sequential& emplace(Arguments&&... arguments) {
    auto module = std::make_unique<M>(std::forward<Arguments>(arguments)...);
    check_members(*module);
    add(std::to_string(steps_.size()), *module);
    steps_.push_back([m = module.get()](const Tensor& x) { return (*m)(x); });
    owned_.push_back(std::move(module));
    return *this;
  }
  Sequential& then(std::function<Tensor(const Tensor&)> function) {
    steps_.push_back(std::move(function));
    return *this;
  }
  Tensor operator()(const Tensor& x) const {
    return with_hooks(x, [&](Tensor y) {
      for (const auto& step : steps_) y = step(y);
      return y;
    });
  }
  std::size_t size() const { return steps_.size(); }
  std::string describe() const override { return "Sequential of " + std::to_string(steps_.size()); }

 private:
  std::vector<std::function<Tensor(const Tensor&)>> steps_;
  std::vector<std::unique_ptr<Module>> owned_;
};

}  // namespace weft::nn
