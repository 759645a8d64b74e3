#include "speech/whisper.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "io/tensor_source.hpp"
#include "weft/error.hpp"
#include "weft/inference.hpp"
#include "weft/ops.hpp"
#include "weft/ops/convolution.hpp"

namespace weft::speech::detail {
namespace {

// Tokens of a pass, each size compiled when it is first needed. A prompt is padded to the next one.
constexpr std::size_t kPassSizes[] = {1, 8, 32, 128};

io::TensorSource open_folder(const std::filesystem::path& folder) {
  io::TensorSource source = io::TensorSource::open(folder);
  if (source.kind() != io::SourceKind::folder)
    throw FileError(
        fmt::format("{}: a speech model is a folder with config.json, tokenizer.json and safetensors; give the folder",
                    folder.string()));
  return source;
}

/// Attention of one sequence over all of another. q [T, width], k and v [S, width] -> [T, width].
Tensor attend_to_all(const Tensor& q, const Tensor& k, const Tensor& v, Extent heads) {
  const Extent width = q.dim(1) / heads;
  const auto split = [&](const Tensor& x) {
    return unsqueeze(permute(reshape(x, {x.dim(0), heads, width}), {1, 0, 2}), 0);
  };
  const Tensor y = attention(split(q), split(k), split(v), /*causal=*/false);
  return reshape(permute(squeeze(y, 0), {1, 0, 2}), q.shape());
}

/// Attention over rows of a cache, of which query t sees the first length[t].
Tensor attend_to_cache(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& length, Extent heads) {
  const Tensor first = zeros({q.dim(0)}, DType::i32, q.device());
  return reshape(cache_attention(reshape(q, {q.dim(0), heads, q.dim(1) / heads}), k, v, first, length, heads),
                 q.shape());
}

Tensor i32_on(const std::vector<std::int32_t>& values, Device device) {
  return tensor_from_bytes(values.data(), {static_cast<Extent>(values.size())}, DType::i32, device);
}

}  // namespace

WhisperEngine::WhisperEngine(const std::filesystem::path& folder, const LoadOptions& options)
    : config_(read_whisper_config(folder)),
      tokenizer_(llm::Tokenizer::load(folder)),
      tokens_(read_whisper_tokens(folder, config_, tokenizer_)),
      device_(options.device) {
  const io::TensorSource source = open_folder(folder);
  Weights weights(source, device_, options.progress);
  weights.choose_prefix({"model.", ""});
  const WhisperConfig& c = config_;
  for (int i = 0; i < 2; ++i) {
    const std::string name = fmt::format("encoder.conv{}", i + 1);
    stem_weight_[i] = weights.dense(name + ".weight", {c.width, i == 0 ? c.mels : c.width, 3});
    stem_bias_[i] = weights.dense(name + ".bias", {c.width});
  }
  encoder_positions_ = weights.dense("encoder.embed_positions.weight", {c.source_positions, c.width});
  for (Extent i = 0; i < c.encoder_layers; ++i)
    encoder_layers_.push_back(load_layer(weights, fmt::format("encoder.layers.{}.", i), c.encoder_inner, false));
  encoder_norm_ = load_norm(weights, "encoder.layer_norm");
  table_ = weights.matrix("decoder.embed_tokens.weight", c.vocabulary, c.width);
  decoder_positions_ = weights.dense("decoder.embed_positions.weight", {c.target_positions, c.width});
  for (Extent i = 0; i < c.decoder_layers; ++i)
    decoder_layers_.push_back(load_layer(weights, fmt::format("decoder.layers.{}.", i), c.decoder_inner, true));
  decoder_norm_ = load_norm(weights, "decoder.layer_norm");
  head_ = table_;
  if (!c.is_tied) {
    weights.choose_prefix({"proj_out."});
    head_ = weights.matrix("weight", c.vocabulary, c.width);
  }
  weights.finish([](std::string_view name) { return name == "proj_out.weight"; });
  weight_bytes_ = weights.bytes();
  for (const auto& [code, id] : tokens_.languages) languages_.push_back(code);
  if (languages_.empty()) languages_.emplace_back("en");
}

WhisperEngine::Norm WhisperEngine::load_norm(Weights& weights, const std::string& name) const {
  return {weights.dense(name + ".weight", {config_.width}), weights.dense(name + ".bias", {config_.width})};
}

WhisperEngine::Attention WhisperEngine::load_attention(Weights& weights, const std::string& name,
                                                       const std::string& norm) const {
  const Extent n = config_.width;
  const auto projection = [&](const char* part, bool bias) {
    const std::string full = fmt::format("{}.{}_proj.", name, part);
    return Projection{weights.matrix(full + "weight", n, n), bias ? weights.dense(full + "bias", {n}) : Tensor()};
  };
  // Keys have no bias: it would add the same number to all scores of a query.
  return {projection("q", true), projection("k", false), projection("v", true), projection("out", true),
          load_norm(weights, norm)};
}

WhisperEngine::Layer WhisperEngine::load_layer(Weights& weights, const std::string& name, Extent inner,
                                               bool is_decoder) const {
  const Extent n = config_.width;
  Layer layer;
  layer.self = load_attention(weights, name + "self_attn", name + "self_attn_layer_norm");
  if (is_decoder) layer.cross = load_attention(weights, name + "encoder_attn", name + "encoder_attn_layer_norm");
  layer.up = {weights.matrix(name + "fc1.weight", inner, n), weights.dense(name + "fc1.bias", {inner})};
  layer.down = {weights.matrix(name + "fc2.weight", n, inner), weights.dense(name + "fc2.bias", {n})};
  layer.norm = load_norm(weights, name + "final_layer_norm");
  if (is_decoder) {
    const auto cache = [&](const char* part, Extent rows) {
      return Variable(empty_cache(rows, n, CacheType::f32, device_).eval(), name + part, false);
    };
    layer.keys = cache("keys", config_.target_positions), layer.values = cache("values", config_.target_positions);
    layer.cross_keys = cache("cross_keys", config_.source_positions);
    layer.cross_values = cache("cross_values", config_.source_positions);
  }
  return layer;
}

Tensor WhisperEngine::feed_forward(const Layer& layer, const Tensor& x) const {
  const std::string_view name = config_.activation == "gelu_new" ? std::string_view("gelu_tanh") : config_.activation;
  const Tensor h = layer_norm(x, layer.norm.weight, layer.norm.bias);
  return x +
         product(elementwise(name, {product(h, layer.up.weight, layer.up.bias)}), layer.down.weight, layer.down.bias);
}

Tensor WhisperEngine::encoder(const Tensor& features) {
  Tensor x = unsqueeze(features, 0);
  x = elementwise("gelu", {conv1d(x, stem_weight_[0], stem_bias_[0], {.padding = 1})});
  x = elementwise("gelu", {conv1d(x, stem_weight_[1], stem_bias_[1], {.stride = 2, .padding = 1})});
  x = transpose(squeeze(x, 0)) + encoder_positions_;
  for (const Layer& layer : encoder_layers_) {
    const Attention& a = layer.self;
    const Tensor h = layer_norm(x, a.norm.weight, a.norm.bias);
    const Tensor y = attend_to_all(product(h, a.q.weight, a.q.bias), product(h, a.k.weight),
                                   product(h, a.v.weight, a.v.bias), config_.encoder_heads);
    x = feed_forward(layer, x + product(y, a.out.weight, a.out.bias));
  }
  x = layer_norm(x, encoder_norm_.weight, encoder_norm_.bias);
  for (Layer& layer : decoder_layers_) {
    layer.cross_keys.assign(product(x, layer.cross->k.weight));
    layer.cross_values.assign(product(x, layer.cross->v.weight, layer.cross->v.bias));
  }
  return x;
}

Tensor WhisperEngine::encode(const Tensor& features) {
  if (features.shape() != Shape{config_.mels, config_.frames()})
    throw ShapeError(fmt::format("encode: features {}; the model reads [{}, {}]", features.shape().to_string(),
                                 config_.mels, config_.frames()));
  if (!encode_) encode_.emplace([this](std::span<const Tensor> in) { return std::vector<Tensor>{encoder(in[0])}; });
  const Tensor arguments[] = {features};
  Tensor states = (*encode_)(arguments)[0];
  has_window_ = true;
  return states;
}

// Arguments: tokens, positions and lengths [T], all i32; rows [R] unless the logits of every token are wanted. Padding has a position
// of -1, which no cache has, and length 0.
Tensor WhisperEngine::decoder(std::span<const Tensor> arguments) {
  const Tensor &tokens = arguments[0], &positions = arguments[1], &length = arguments[2];
  Tensor x = embedding(table_, tokens);
  if (config_.scales_embedding) x = x * std::sqrt(static_cast<double>(config_.width));
  x = x + embedding(decoder_positions_, positions);
  const Tensor whole =
      elementwise("minimum", {length, scalar_like(1, length)}) * static_cast<double>(config_.source_positions);
  for (Layer& layer : decoder_layers_) {
    const Attention &self = layer.self, &cross = *layer.cross;
    const Tensor h = layer_norm(x, self.norm.weight, self.norm.bias);
    layer.keys.assign(write_rows(layer.keys, product(h, self.k.weight), positions));
    layer.values.assign(write_rows(layer.values, product(h, self.v.weight, self.v.bias), positions));
    const Tensor y = attend_to_cache(product(h, self.q.weight, self.q.bias), layer.keys, layer.values, length,
                                     config_.decoder_heads);
    x = x + product(y, self.out.weight, self.out.bias);
    const Tensor g = layer_norm(x, cross.norm.weight, cross.norm.bias);
    const Tensor z = attend_to_cache(product(g, cross.q.weight, cross.q.bias), layer.cross_keys, layer.cross_values,
                                     whole, config_.decoder_heads);
    x = feed_forward(layer, x + product(z, cross.out.weight, cross.out.bias));
  }
  if (arguments.size() > 3) x = embedding(x, arguments[3]);
  return product(layer_norm(x, decoder_norm_.weight, decoder_norm_.bias), head_);
}

Tensor WhisperEngine::run(std::span<const std::int32_t> tokens, Extent position, std::span<const Extent> rows,
                          LogitsOf wanted) {
  if (!has_window_) throw UsageError("speech: no sound has been read; call encode first");
  if (tokens.empty()) throw UsageError("speech: no tokens; give at least one");
  if (position + static_cast<Extent>(tokens.size()) > config_.target_positions)
    throw UsageError(fmt::format("speech: {} tokens; the model has {} positions",
                                 position + static_cast<Extent>(tokens.size()), config_.target_positions));
  for (const std::int32_t token : tokens)
    if (token < 0 || token >= config_.vocabulary)
      throw UsageError(fmt::format("speech: token {} is outside of the vocabulary of {}", token, config_.vocabulary));
  const auto most = static_cast<std::size_t>(config_.target_positions);
  const auto* fitting = std::lower_bound(std::begin(kPassSizes), std::end(kPassSizes), tokens.size());
  const std::size_t size = fitting == std::end(kPassSizes) ? most : std::min(*fitting, most);
  std::vector<std::int32_t> ids(size, 0), positions(size, -1), lengths(size, 0), picked(rows.begin(), rows.end());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    ids[i] = tokens[i];
    positions[i] = static_cast<std::int32_t>(position) + static_cast<std::int32_t>(i);
    lengths[i] = positions[i] + 1;
  }
  std::vector<Tensor> arguments = {i32_on(ids, device_), i32_on(positions, device_), i32_on(lengths, device_)};
  if (wanted == LogitsOf::rows) arguments.push_back(i32_on(picked, device_));
  const auto compiled = passes_.try_emplace(
      {size, picked.size()}, [this](std::span<const Tensor> in) { return std::vector<Tensor>{decoder(in)}; });
  return compiled.first->second(arguments)[0];
}

std::vector<float> WhisperEngine::pass(std::span<const std::int32_t> tokens, Extent position,
                                       std::span<const Extent> rows) {
  return run(tokens, position, rows, LogitsOf::rows).to_vector<float>();
}

std::vector<float> WhisperEngine::all_logits(std::span<const std::int32_t> tokens) {
  std::vector<float> logits = run(tokens, 0, {}, LogitsOf::every).to_vector<float>();
  logits.resize(tokens.size() * static_cast<std::size_t>(config_.vocabulary));
  return logits;
}

}  // namespace weft::speech::detail
