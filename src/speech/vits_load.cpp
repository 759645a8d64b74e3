// The weights of a voice by the names of the transformers library.
#include <fmt/format.h>

#include "io/tensor_source.hpp"
#include "speech/vits.hpp"
#include "weft/error.hpp"
#include "weft/ops.hpp"

namespace weft::speech::detail {

VitsEngine::VitsEngine(const std::filesystem::path& folder, const LoadOptions& options)
    : config_(read_vits_config(folder)),
      characters_(Characters::load(folder, config_.vocabulary)),
      device_(options.device) {
  const io::TensorSource source = io::TensorSource::open(folder);
  Weights weights(source, device_, options.progress);
  load_encoder(weights);
  load_durations(weights);
  load_flow(weights);
  load_generator(weights);
  // Parts that only training uses. The first flow of durations would change what is thrown away.
  weights.finish([](std::string_view name) {
    return name.starts_with("posterior_encoder.") || name.starts_with("duration_predictor.post_") ||
           name.starts_with("duration_predictor.flows.1.");
  });
  weight_bytes_ = weights.bytes();
}

VitsEngine::Norm VitsEngine::load_norm(Weights& weights, const std::string& name, Extent width) const {
  return {weights.dense(name + ".weight", {width}), weights.dense(name + ".bias", {width})};
}

VitsEngine::Conv VitsEngine::load_conv(Weights& weights, const std::string& name, Extent out, Extent in,
                                       Extent kernel) const {
  return {weights.kernel(name, {out, in, kernel}), weights.dense(name + ".bias", {out})};
}

void VitsEngine::load_encoder(Weights& weights) {
  const VitsConfig& c = config_;
  table_ = weights.dense("text_encoder.embed_tokens.weight", {c.vocabulary, c.width});
  for (Extent i = 0; i < c.layers; ++i) {
    const std::string name = fmt::format("text_encoder.encoder.layers.{}.", i);
    const auto projection = [&](const char* part) {
      const std::string full = fmt::format("{}attention.{}_proj.", name, part);
      return Conv{weights.matrix(full + "weight", c.width, c.width),
                  c.has_bias ? weights.dense(full + "bias", {c.width}) : Tensor()};
    };
    EncoderLayer layer{projection("q"), projection("k"), projection("v"), projection("out"), {}, {}, {}, {}, {}, {}};
    if (c.window > 0) {
      const Shape near{1, 2 * c.window + 1, c.width / c.heads};
      layer.near_keys = squeeze(weights.dense(name + "attention.emb_rel_k", near), 0);
      layer.near_values = squeeze(weights.dense(name + "attention.emb_rel_v", near), 0);
    }
    layer.attention_norm = load_norm(weights, name + "layer_norm", c.width);
    layer.norm = load_norm(weights, name + "final_layer_norm", c.width);
    layer.up = load_conv(weights, name + "feed_forward.conv_1", c.inner, c.width, c.inner_kernel);
    layer.down = load_conv(weights, name + "feed_forward.conv_2", c.width, c.inner, c.inner_kernel);
    layers_.push_back(std::move(layer));
  }
  prior_ = load_conv(weights, "text_encoder.project", 2 * c.flow, c.width, 1);
  if (c.speakers > 1) speakers_ = weights.dense("embed_speaker.weight", {c.speakers, c.speaker_width});
}

VitsEngine::Separable VitsEngine::load_separable(Weights& weights, const std::string& name) const {
  Separable layers;
  for (Extent i = 0; i < config_.separable_layers; ++i)
    layers.push_back(
        {load_conv(weights, fmt::format("{}.convs_dilated.{}", name, i), config_.width, 1, config_.duration_kernel),
         load_conv(weights, fmt::format("{}.convs_pointwise.{}", name, i), config_.width, config_.width, 1),
         load_norm(weights, fmt::format("{}.norms_1.{}", name, i), config_.width),
         load_norm(weights, fmt::format("{}.norms_2.{}", name, i), config_.width)});
  return layers;
}

void VitsEngine::load_durations(Weights& weights) {
  const VitsConfig& c = config_;
  const std::string name = "duration_predictor.";
  if (c.draws_durations) {
    DrawnDurations d;
    d.pre = load_conv(weights, name + "conv_pre", c.width, c.width, 1);
    d.project = load_conv(weights, name + "conv_proj", c.width, c.width, 1);
    d.body = load_separable(weights, name + "conv_dds");
    d.shift = weights.dense(name + "flows.0.translate", {2, 1});
    d.log_scale = weights.dense(name + "flows.0.log_scale", {2, 1});
    for (Extent i = c.duration_flows; i > 1; --i) {
      const std::string flow = fmt::format("{}flows.{}.", name, i);
      d.flows.push_back({load_conv(weights, flow + "conv_pre", c.width, 1, 1),
                         load_conv(weights, flow + "conv_proj", 3 * c.bins - 1, c.width, 1),
                         load_separable(weights, flow + "conv_dds")});
    }
    drawn_ = std::move(d);
  } else {
    const Extent n = c.duration_channels, k = c.duration_kernel;
    plain_ = PlainDurations{load_conv(weights, name + "conv_1", n, c.width, k),
                            load_conv(weights, name + "conv_2", n, n, k), load_conv(weights, name + "proj", 1, n, 1),
                            load_norm(weights, name + "norm_1", n), load_norm(weights, name + "norm_2", n)};
  }
  if (c.speaker_width > 0) duration_speaker_ = load_conv(weights, name + "cond", c.width, c.speaker_width, 1);
}

VitsEngine::WaveNet VitsEngine::load_wave_net(Weights& weights, const std::string& name) const {
  const VitsConfig& c = config_;
  WaveNet net;
  for (Extent i = 0; i < c.flow_layers; ++i) {
    net.in.push_back(load_conv(weights, fmt::format("{}.in_layers.{}", name, i), 2 * c.width, c.width, c.wave_kernel));
    const Extent out = i + 1 < c.flow_layers ? 2 * c.width : c.width;  // the last one has no residual
    net.out.push_back(load_conv(weights, fmt::format("{}.res_skip_layers.{}", name, i), out, c.width, 1));
  }
  if (c.speaker_width > 0)
    net.speaker = load_conv(weights, name + ".cond_layer", 2 * c.width * c.flow_layers, c.speaker_width, 1);
  return net;
}

void VitsEngine::load_flow(Weights& weights) {
  const VitsConfig& c = config_;
  for (Extent i = 0; i < c.flows; ++i) {
    const std::string name = fmt::format("flow.flows.{}.", i);
    flow_.push_back({load_conv(weights, name + "conv_pre", c.width, c.flow / 2, 1),
                     load_conv(weights, name + "conv_post", c.flow / 2, c.width, 1),
                     load_wave_net(weights, name + "wavenet")});
  }
}

void VitsEngine::load_generator(Weights& weights) {
  const VitsConfig& c = config_;
  Generator& g = generator_;
  g.pre = load_conv(weights, "decoder.conv_pre", c.first_channels, c.flow, 7);
  if (c.speaker_width > 0) g.speaker = load_conv(weights, "decoder.cond", c.first_channels, c.speaker_width, 1);
  Extent channels = c.first_channels;
  for (std::size_t i = 0; i < c.rates.size(); ++i) {
    const std::string rise = fmt::format("decoder.upsampler.{}", i);
    g.rise.push_back(
        {weights.kernel(rise, {channels, channels / 2, c.kernels[i]}), weights.dense(rise + ".bias", {channels / 2})});
    channels /= 2;
    for (std::size_t k = 0; k < c.block_kernels.size(); ++k) {
      Block block{c.block_kernels[k], c.block_dilations[k], {}, {}};
      const std::string name = fmt::format("decoder.resblocks.{}.", i * c.block_kernels.size() + k);
      for (std::size_t d = 0; d < block.dilations.size(); ++d) {
        block.first.push_back(
            load_conv(weights, fmt::format("{}convs1.{}", name, d), channels, channels, block.kernel));
        block.second.push_back(
            load_conv(weights, fmt::format("{}convs2.{}", name, d), channels, channels, block.kernel));
      }
      g.blocks.push_back(std::move(block));
    }
  }
  g.last = weights.kernel("decoder.conv_post", {1, channels, 7});
}

}  // namespace weft::speech::detail
