#include "speech/ctc.hpp"

#include <fmt/format.h>

#include "base/quote.hpp"
#include "io/tensor_source.hpp"
#include "weft/error.hpp"
#include "weft/ops.hpp"
#include "weft/ops/convolution.hpp"
#include "weft/ops/normalization.hpp"

namespace weft::speech::detail {

CtcEngine::CtcEngine(const std::filesystem::path& folder, const LoadOptions& options)
    : config_(read_ctc_config(folder)), tokens_(read_ctc_tokens(folder, config_)), device_(options.device) {
  const io::TensorSource source = io::TensorSource::open(folder);
  if (!source.find("lm_head.weight"))
    throw FileError(fmt::format(
        "{}: has no lm_head.weight, so the model writes no text; give one that was trained with CTC", folder.string()));
  Weights weights(source, device_, options.progress);
  const CtcConfig& c = config_;
  const std::string body = c.type + ".";
  weights.choose_prefix({body});
  load_convolutions(weights);
  if (c.has_projection_norm) projection_norm_ = load_norm(weights, "feature_projection.layer_norm", c.channels.back());
  projection_ = load_linear(weights, "feature_projection.projection", c.width, c.channels.back());
  const std::string position = "encoder.pos_conv_embed.conv";
  position_ = {weights.kernel(position, {c.width, c.width / c.position_groups, c.position_kernel}, /*length_axis=*/2),
               weights.dense(position + ".bias", {c.width})};
  norm_ = load_norm(weights, "encoder.layer_norm", c.width);
  for (Extent i = 0; i < c.layers; ++i) layers_.push_back(load_layer(weights, fmt::format("encoder.layers.{}.", i)));
  weights.choose_prefix({"lm_head."});
  head_ = {weights.matrix("weight", c.vocabulary, c.width), weights.dense("bias", {c.vocabulary})};
  weights.finish([&](std::string_view name) { return name == body + "masked_spec_embed"; });  // of training
  weight_bytes_ = weights.bytes();
}

CtcEngine::Affine CtcEngine::load_norm(Weights& weights, const std::string& name, Extent width) const {
  return {weights.dense(name + ".weight", {width}), weights.dense(name + ".bias", {width})};
}

CtcEngine::Affine CtcEngine::load_linear(Weights& weights, const std::string& name, Extent out, Extent in) const {
  return {weights.matrix(name + ".weight", out, in), weights.dense(name + ".bias", {out})};
}

void CtcEngine::load_convolutions(Weights& weights) {
  const CtcConfig& c = config_;
  for (std::size_t i = 0; i < c.channels.size(); ++i) {
    const std::string name = fmt::format("feature_extractor.conv_layers.{}.", i);
    const Extent out = c.channels[i], in = i == 0 ? 1 : c.channels[i - 1];
    Conv conv{weights.dense(name + "conv.weight", {out, in, c.kernels[i]}), {}, {}};
    if (c.has_conv_bias) conv.bias = weights.dense(name + "conv.bias", {out});
    if (i == 0 || c.norms_every_conv) conv.norm = load_norm(weights, name + "layer_norm", out);
    convolutions_.push_back(std::move(conv));
  }
}

CtcEngine::Layer CtcEngine::load_layer(Weights& weights, const std::string& name) const {
  const Extent n = config_.width;
  const auto projection = [&](const char* part) {
    return load_linear(weights, fmt::format("{}attention.{}_proj", name, part), n, n);
  };
  return {projection("q"),
          projection("k"),
          projection("v"),
          projection("out"),
          load_norm(weights, name + "layer_norm", n),
          load_linear(weights, name + "feed_forward.intermediate_dense", config_.inner, n),
          load_linear(weights, name + "feed_forward.output_dense", n, config_.inner),
          load_norm(weights, name + "final_layer_norm", n)};
}

// Samples [n] -> [frames, channels].
Tensor CtcEngine::features(const Tensor& samples) const {
  Tensor x = reshape(samples, {1, 1, samples.dim(0)});
  for (std::size_t i = 0; i < convolutions_.size(); ++i) {
    const Conv& conv = convolutions_[i];
    x = conv1d(x, conv.weight, conv.bias, {.stride = config_.strides[i]});
    if (config_.norms_every_conv)
      x = permute(layer_norm(permute(x, {0, 2, 1}), conv.norm.weight, conv.norm.bias), {0, 2, 1});
    else if (conv.norm.weight.defined())
      x = group_norm(x, config_.channels[i], conv.norm.weight, conv.norm.bias);
    x = elementwise(config_.conv_activation, {x});
  }
  return transpose(squeeze(x, 0));
}

// What the place of each frame among its neighbours adds, [frames, width].
Tensor CtcEngine::positions(const Tensor& x) const {
  Tensor y = conv1d(unsqueeze(transpose(x), 0), position_.weight, position_.bias,
                    {.padding = config_.position_kernel / 2, .groups = config_.position_groups});
  y = narrow(y, 2, 0, x.dim(0));  // an even kernel makes one frame too many
  return transpose(squeeze(elementwise(config_.conv_activation, {y}), 0));
}

Tensor CtcEngine::attend(const Layer& layer, const Tensor& x) const {
  const Extent heads = config_.heads, depth = config_.width / heads;
  const auto split = [&](const Affine& part) {
    return unsqueeze(permute(reshape(product(x, part.weight, part.bias), {x.dim(0), heads, depth}), {1, 0, 2}), 0);
  };
  const Tensor y = attention(split(layer.q), split(layer.k), split(layer.v), /*causal=*/false);
  return product(reshape(permute(squeeze(y, 0), {1, 0, 2}), x.shape()), layer.out.weight, layer.out.bias);
}

Tensor CtcEngine::forward(const Tensor& samples) const {
  const auto norm = [&](const Tensor& x, const Affine& by) { return layer_norm(x, by.weight, by.bias, config_.eps); };
  const auto feed_forward = [&](const Layer& layer, const Tensor& x) {
    return product(elementwise(config_.activation, {product(x, layer.up.weight, layer.up.bias)}), layer.down.weight,
                   layer.down.bias);
  };
  Tensor x = features(samples);
  if (config_.has_projection_norm) x = norm(x, projection_norm_);
  x = product(x, projection_.weight, projection_.bias);
  x = x + positions(x);
  if (!config_.norms_first) x = norm(x, norm_);
  for (const Layer& layer : layers_)
    if (config_.norms_first) {
      x = x + attend(layer, norm(x, layer.attention_norm));
      x = x + feed_forward(layer, norm(x, layer.norm));
    } else {
      x = norm(x + attend(layer, x), layer.attention_norm);
      x = norm(x + feed_forward(layer, x), layer.norm);
    }
  if (config_.norms_first) x = norm(x, norm_);
  return product(x, head_.weight, head_.bias);
}

Tensor CtcEngine::logits(std::span<const float> samples) {
  return forward(tensor_from_bytes(samples.data(), {static_cast<Extent>(samples.size())}, DType::f32, device_)).eval();
}

CtcEngine::Best CtcEngine::best(std::span<const float> samples) {
  if (!best_)
    best_.emplace([this](std::span<const Tensor> in) {
      const Tensor scores = forward(in[0]);
      return std::vector<Tensor>{argmax(scores, -1), amax(scores, {-1}) - logsumexp(scores, {-1})};
    });
  const Tensor arguments[] = {
      tensor_from_bytes(samples.data(), {static_cast<Extent>(samples.size())}, DType::f32, device_)};
  const std::vector<Tensor> made = (*best_)(arguments);
  return {made[0].to_vector<std::int32_t>(), made[1].to_vector<float>()};
}

}  // namespace weft::speech::detail
