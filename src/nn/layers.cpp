#include "weft/nn/layers.hpp"

#include <fmt/format.h>

#include <cmath>

#include "weft/ops.hpp"
#include "weft/ops/networks.hpp"
#include "weft/ops/random.hpp"

namespace weft::nn {
namespace {

void require_width(const char* layer, const Tensor& x, Extent width, Where where) {
  if (x.rank() == 0 || x.dim(-1) != width)
    throw ShapeError(fmt::format("{}: made for a last axis of {}, given x {} {}{}\n  called at {}:{} ({})", layer,
                                 width, name_of(x.dtype()), x.shape().to_string(),
                                 x.label().empty() ? "" : fmt::format("  \"{}\"", x.label()), where.file_name(),
                                 where.line(), where.function_name()));
}

void require_extent(const char* layer, const char* what, Extent extent) {
  if (extent < 1) throw ShapeError(fmt::format("{}: {} is {}; it must be at least 1", layer, what, extent));
}

double checked_eps(const char* layer, double eps) {
  if (!(eps >= 0) || std::isinf(eps))
    throw UsageError(fmt::format("{}: eps {} must be a number of at least 0", layer, eps));
  return eps;
}

Extent checked(const char* layer, const char* what, Extent extent) {
  require_extent(layer, what, extent);
  return extent;
}

}  // namespace

Linear::Linear(Extent in, Extent out, LinearOptions options)
    : in_(checked("linear", "the number of inputs", in)),
      out_(checked("linear", "the number of outputs", out)),
      weight_(parameter("weight", {out, in}, options.weight_init.value_or(Init::kaiming_uniform(in)))) {
  if (options.bias) bias_ = parameter("bias", {out}, options.bias_init.value_or(Init::kaiming_uniform(in)));
}

Tensor Linear::operator()(const Tensor& given, Where where) const {
  return with_hooks(given, [&](const Tensor& x) {
    require_width("linear", x, in_, where);
    return linear(x, weight_, bias_ ? bias_->value() : Tensor(), where);
  });
}

std::string Linear::describe() const { return fmt::format("Linear {} -> {}{}", in_, out_, bias_ ? "" : ", no bias"); }

Bilinear::Bilinear(Extent in_1, Extent in_2, Extent out, bool bias)
    : in_1_(checked("bilinear", "the number of elements of x", in_1)),
      in_2_(checked("bilinear", "the number of elements of y", in_2)),
      out_(checked("bilinear", "the number of outputs", out)),
      weight_(parameter("weight", {out, in_1, in_2}, Init::kaiming_uniform(in_1))) {
  if (bias) bias_ = parameter("bias", {out}, Init::kaiming_uniform(in_1));
}

Tensor Bilinear::operator()(const Tensor& given, const Tensor& y, Where where) const {
  return with_hooks(given, [&](const Tensor& x) {
    require_width("bilinear", x, in_1_, where);
    require_width("bilinear", y, in_2_, where);
    return bilinear(x, y, weight_, bias_ ? bias_->value() : Tensor(), where);
  });
}

std::string Bilinear::describe() const {
  return fmt::format("Bilinear {} x {} -> {}{}", in_1_, in_2_, out_, bias_ ? "" : ", no bias");
}

Embedding::Embedding(Extent rows, Extent width, Init init)
    : rows_(checked("embedding", "the number of rows", rows)),
      width_(checked("embedding", "the width", width)),
      weight_(parameter("weight", {rows, width}, init)) {}

Tensor Embedding::operator()(const Tensor& given, Where where) const {
  return with_hooks(given, [&](const Tensor& indices) { return embedding(weight_, indices, where); });
}

std::string Embedding::describe() const { return fmt::format("Embedding {} x {}", rows_, width_); }

LayerNorm::LayerNorm(Extent width, bool bias, double eps)
    : width_(checked("layer norm", "the width", width)),
      eps_(checked_eps("layer norm", eps)),
      weight_(parameter("weight", {width}, Init::ones())) {
  if (bias) bias_ = parameter("bias", {width}, Init::zeros());
}

Tensor LayerNorm::operator()(const Tensor& given, Where where) const {
  return with_hooks(given, [&](const Tensor& x) {
    require_width("layer norm", x, width_, where);
    return layer_norm(x, weight_, bias_ ? bias_->value() : Tensor(), eps_, where);
  });
}

std::string LayerNorm::describe() const { return fmt::format("LayerNorm {}", width_); }

RMSNorm::RMSNorm(Extent width, double eps)
    : width_(checked("RMS norm", "the width", width)),
      eps_(checked_eps("RMS norm", eps)),
      weight_(parameter("weight", {width}, Init::ones())) {}

Tensor RMSNorm::operator()(const Tensor& given, Where where) const {
  return with_hooks(given, [&](const Tensor& x) {
    require_width("RMS norm", x, width_, where);
    return rms_norm(x, weight_, eps_, where);
  });
}

std::string RMSNorm::describe() const { return fmt::format("RMSNorm {}", width_); }

Dropout::Dropout(double p) : p_(p) {
  if (!(p >= 0 && p < 1)) throw UsageError(fmt::format("dropout: probability {} must be in [0, 1)", p));
}

Tensor Dropout::operator()(const Tensor& given, Where where) const {
  return with_hooks(given, [&](const Tensor& x) { return is_training() && p_ > 0 ? dropout(x, p_, where) : x; });
}

std::string Dropout::describe() const { return fmt::format("Dropout {}", p_); }

AlphaDropout::AlphaDropout(double p) : p_(p) {
  if (!(p >= 0 && p < 1)) throw UsageError(fmt::format("alpha dropout: probability {} must be in [0, 1)", p));
}
Tensor AlphaDropout::operator()(const Tensor& given, Where where) const {
  return with_hooks(given, [&](const Tensor& x) { return is_training() ? alpha_dropout(x, p_, where) : x; });
}
std::string AlphaDropout::describe() const { return fmt::format("Alpha dropout {}", p_); }

FeatureAlphaDropout::FeatureAlphaDropout(double p) : p_(p) {
  if (!(p >= 0 && p < 1)) throw UsageError(fmt::format("alpha dropout: probability {} must be in [0, 1)", p));
}
Tensor FeatureAlphaDropout::operator()(const Tensor& given, Where where) const {
  return with_hooks(given, [&](const Tensor& x) { return is_training() ? feature_alpha_dropout(x, p_, where) : x; });
}
std::string FeatureAlphaDropout::describe() const { return fmt::format("Alpha dropout of channels {}", p_); }

}  // namespace weft::nn
