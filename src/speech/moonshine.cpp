#include "speech/moonshine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "io/tensor_source.hpp"
#include "weft/error.hpp"
#include "weft/inference.hpp"
#include "weft/ops.hpp"
#include "weft/ops/convolution.hpp"
#include "weft/ops/normalization.hpp"

namespace weft::speech::detail {
namespace {

// Tokens of a pass, each size compiled when it is first needed. A prompt is padded to the next one.
constexpr std::size_t kTokensOfPass[] = {1, 8, 32, 128};
constexpr Extent kLeastStates = 1280;  // room for 30 s

struct StemShape {
  Extent kernel, stride;
};
constexpr StemShape kStem[] = {{127, 64}, {7, 3}, {3, 2}};

Tensor tokens_on(const std::vector<std::int32_t>& values, Device device) {
  return tensor_from_bytes(values.data(), {static_cast<Extent>(values.size())}, DType::i32, device);
}

Variable cache_of_states(Extent rows, Extent width, Device device) {
  return Variable(empty_cache(rows, width, CacheType::f32, device).eval(), "cache", false);
}

/// x [T, heads * D] with the first pairs of neighbouring channels of each head turned by angles [T, pairs].
Tensor turned(const Tensor& x, const Tensor& cosines, const Tensor& sines, Extent heads) {
  const Extent tokens = x.dim(0), width = x.dim(1) / heads, pairs = cosines.dim(1);
  const Tensor all = reshape(x, {tokens, heads, width});
  const Tensor parted = reshape(narrow(all, 2, 0, 2 * pairs), {tokens, heads, pairs, 2});
  const Tensor first = narrow(parted, 3, 0, 1), second = narrow(parted, 3, 1, 1);
  const Tensor c = reshape(cosines, {tokens, 1, pairs, 1}), s = reshape(sines, {tokens, 1, pairs, 1});
  Tensor y = reshape(concat({first * c - second * s, second * c + first * s}, 3), {tokens, heads, 2 * pairs});
  if (2 * pairs < width) y = concat({y, narrow(all, 2, 2 * pairs, width - 2 * pairs)}, 2);
  return reshape(y, x.shape());
}

}  // namespace

MoonshineEngine::MoonshineEngine(const std::filesystem::path& folder, const LoadOptions& options)
    : config_(read_moonshine_config(folder)), tokenizer_(llm::Tokenizer::load(folder)), device_(options.device) {
  const io::TensorSource source = io::TensorSource::open(folder);
  Weights weights(source, device_, options.progress);
  weights.choose_prefix({"model.", ""});
  const MoonshineConfig& c = config_;
  const Extent channels[] = {1, c.width, 2 * c.width, c.width};
  for (int i = 0; i < 3; ++i) {
    const std::string name = fmt::format("encoder.conv{}", i + 1);
    stem_[i].weight = weights.dense(name + ".weight", {channels[i + 1], channels[i], kStem[i].kernel});
    if (i > 0) stem_[i].bias = weights.dense(name + ".bias", {channels[i + 1]});
  }
  stem_norm_ = {weights.dense("encoder.groupnorm.weight", {c.width}),
                weights.dense("encoder.groupnorm.bias", {c.width})};
  for (Extent i = 0; i < c.encoder_layers; ++i)
    encoder_layers_.push_back(load_layer(weights, fmt::format("encoder.layers.{}.", i), false));
  encoder_norm_ = weights.dense("encoder.layer_norm.weight", {c.width});
  table_ = weights.matrix("decoder.embed_tokens.weight", c.vocabulary, c.width);
  for (Extent i = 0; i < c.decoder_layers; ++i)
    decoder_layers_.push_back(load_layer(weights, fmt::format("decoder.layers.{}.", i), true));
  decoder_norm_ = weights.dense("decoder.norm.weight", {c.width});
  head_ = table_;
  if (!c.is_tied) {
    weights.choose_prefix({"proj_out."});
    head_ = weights.matrix("weight", c.vocabulary, c.width);
  }
  weights.finish([](std::string_view name) { return name == "proj_out.weight"; });
  weight_bytes_ = weights.bytes();
  decoder_rotation_ = rotation(c.positions, c.decoder_heads);
  reserve_states(kLeastStates);
}

MoonshineEngine::Projection MoonshineEngine::load_projection(Weights& weights, const std::string& name, Extent out,
                                                             Extent in, bool bias) const {
  return {weights.matrix(name + ".weight", out, in), bias ? weights.dense(name + ".bias", {out}) : Tensor()};
}

MoonshineEngine::Attention MoonshineEngine::load_attention(Weights& weights, const std::string& name,
                                                           const std::string& norm) const {
  const Extent n = config_.width;
  const auto projection = [&](const char* part, bool bias) {
    return load_projection(weights, fmt::format("{}.{}_proj", name, part), n, n, bias);
  };
  const bool bias = config_.has_attention_bias;
  return {projection("q", bias), projection("k", bias), projection("v", bias), projection("o", false),
          weights.dense(norm + ".weight", {n})};
}

MoonshineEngine::Layer MoonshineEngine::load_layer(Weights& weights, const std::string& name, bool is_decoder) const {
  const Extent n = config_.width, inner = config_.inner;
  Layer layer;
  layer.self = load_attention(weights, name + "self_attn", name + "input_layernorm");
  if (is_decoder) layer.cross = load_attention(weights, name + "encoder_attn", name + "post_attention_layernorm");
  layer.up = load_projection(weights, name + "mlp.fc1", is_decoder ? 2 * inner : inner, n, true);
  layer.down = load_projection(weights, name + "mlp.fc2", n, inner, true);
  layer.norm = weights.dense(name + (is_decoder ? "final_layernorm.weight" : "post_attention_layernorm.weight"), {n});
  if (is_decoder) {
    layer.keys = cache_of_states(config_.positions, n, device_);
    layer.values = cache_of_states(config_.positions, n, device_);
  }
  return layer;
}

void MoonshineEngine::reserve_states(Extent frames) {
  if (frames <= state_rows_) return;
  state_rows_ = std::max(kLeastStates, static_cast<Extent>(std::bit_ceil(static_cast<std::uint64_t>(frames))));
  passes_.clear();  // they hold the caches that there were
  for (Layer& layer : decoder_layers_) {
    layer.cross_keys = cache_of_states(state_rows_, config_.width, device_);
    layer.cross_values = cache_of_states(state_rows_, config_.width, device_);
  }
}

MoonshineEngine::Rotation MoonshineEngine::rotation(Extent positions, Extent heads) const {
  const Extent pairs = config_.turning_pairs(heads);
  const auto turning = static_cast<double>(config_.turned(heads));
  std::vector<float> cosines, sines;
  for (Extent p = 0; p < positions; ++p)
    for (Extent i = 0; i < pairs; ++i) {
      const double angle = static_cast<double>(p) * std::pow(config_.rope_base, -2 * static_cast<double>(i) / turning);
      cosines.push_back(static_cast<float>(std::cos(angle))), sines.push_back(static_cast<float>(std::sin(angle)));
    }
  const auto on_device = [&](const std::vector<float>& values) {
    return tensor_from_bytes(values.data(), {positions, pairs}, DType::f32, device_);
  };
  return {on_device(cosines), on_device(sines)};
}

Tensor MoonshineEngine::encoder(const Tensor& samples) {
  const MoonshineConfig& c = config_;
  const auto stem = [&](const Tensor& x, int i) {
    return conv1d(x, stem_[i].weight, stem_[i].bias, {.stride = kStem[i].stride});
  };
  Tensor x = elementwise("tanh", {stem(reshape(samples, {1, 1, samples.dim(0)}), 0)});
  x = group_norm(x, 1, stem_norm_.weight, stem_norm_.bias);
  x = elementwise("gelu", {stem(x, 1)});
  x = transpose(squeeze(elementwise("gelu", {stem(x, 2)}), 0));
  const Extent frames = x.dim(0), heads = c.encoder_heads, depth = c.width / heads;
  const Rotation turns = rotation(frames, heads);
  const auto split = [&](const Tensor& y) {
    return unsqueeze(permute(reshape(y, {frames, heads, depth}), {1, 0, 2}), 0);
  };
  for (const Layer& layer : encoder_layers_) {
    const Attention& a = layer.self;
    const Tensor h = layer_norm(x, a.norm, {});
    const Tensor q = turned(product(h, a.q.weight, a.q.bias), turns.cosines, turns.sines, heads);
    const Tensor k = turned(product(h, a.k.weight, a.k.bias), turns.cosines, turns.sines, heads);
    const Tensor y = attention(split(q), split(k), split(product(h, a.v.weight, a.v.bias)), /*causal=*/false);
    x = x + product(reshape(permute(squeeze(y, 0), {1, 0, 2}), x.shape()), a.out.weight);
    const Tensor up = product(layer_norm(x, layer.norm, {}), layer.up.weight, layer.up.bias);
    x = x + product(elementwise(c.encoder_activation, {up}), layer.down.weight, layer.down.bias);
  }
  return layer_norm(x, encoder_norm_, {});
}

Tensor MoonshineEngine::encode(const Tensor& samples) {
  if (samples.rank() != 1 || samples.dtype() != DType::f32)
    throw ShapeError(fmt::format("encode: {} {}; the model reads samples at 16 kHz, f32 [n]", name_of(samples.dtype()),
                                 samples.shape().to_string()));
  const Extent frames = MoonshineConfig::frames(samples.dim(0));
  if (frames == 0)
    throw UsageError(fmt::format("encode: a sound of {} samples at 16 kHz; the model needs {} for a frame",
                                 samples.dim(0), MoonshineConfig::kReach));
  reserve_states(frames);
  // Not compiled: each length of sound would keep a plan of its own, for as long as the model lives.
  const Tensor states = encoder(samples).eval();
  std::vector<std::int32_t> rows(static_cast<std::size_t>(frames));
  std::iota(rows.begin(), rows.end(), 0);
  const Tensor at = tokens_on(rows, device_);
  for (Layer& layer : decoder_layers_) {
    const Attention& a = *layer.cross;
    layer.cross_keys.assign(write_rows(layer.cross_keys, product(states, a.k.weight, a.k.bias), at));
    layer.cross_values.assign(write_rows(layer.cross_values, product(states, a.v.weight, a.v.bias), at));
  }
  frames_ = frames;
  return states;
}

// Arguments, all i32: tokens, positions and lengths [T], of which padding has -1 and 0; the number of states [1]; then the row of the
// pass whose logits are wanted [1], unless those of every token are.
Tensor MoonshineEngine::decoder(std::span<const Tensor> arguments) {
  const Tensor &tokens = arguments[0], &positions = arguments[1], &length = arguments[2], &frames = arguments[3];
  const MoonshineConfig& c = config_;
  const Extent heads = c.decoder_heads, depth = c.width / heads, count = tokens.dim(0);
  const Tensor cosines = embedding(decoder_rotation_.cosines, positions),
               sines = embedding(decoder_rotation_.sines, positions);
  const Tensor none = zeros({count}, DType::i32, device_);
  const Tensor whole = elementwise("minimum", {length, scalar_like(1, length)}) * frames;
  const auto attend = [&](const Tensor& q, const Variable& keys, const Variable& values, const Tensor& seen) {
    return reshape(cache_attention(reshape(q, {count, heads, depth}), keys, values, none, seen, heads), q.shape());
  };
  Tensor x = embedding(table_, tokens);
  for (Layer& layer : decoder_layers_) {
    const Attention &self = layer.self, &cross = *layer.cross;
    const Tensor h = layer_norm(x, self.norm, {});
    const Tensor k = turned(product(h, self.k.weight, self.k.bias), cosines, sines, heads);
    layer.keys.assign(write_rows(layer.keys, k, positions));
    layer.values.assign(write_rows(layer.values, product(h, self.v.weight, self.v.bias), positions));
    const Tensor q = turned(product(h, self.q.weight, self.q.bias), cosines, sines, heads);
    x = x + product(attend(q, layer.keys, layer.values, length), self.out.weight);
    const Tensor g = product(layer_norm(x, cross.norm, {}), cross.q.weight, cross.q.bias);
    x = x + product(attend(g, layer.cross_keys, layer.cross_values, whole), cross.out.weight);
    const Tensor both = product(layer_norm(x, layer.norm, {}), layer.up.weight, layer.up.bias);
    const Tensor gated =
        narrow(both, 1, 0, c.inner) * elementwise(c.decoder_activation, {narrow(both, 1, c.inner, c.inner)});
    x = x + product(gated, layer.down.weight, layer.down.bias);
  }
  if (arguments.size() > 4) x = embedding(x, arguments[4]);
  return product(layer_norm(x, decoder_norm_, {}), head_);
}

std::vector<float> MoonshineEngine::pass(std::span<const std::int32_t> tokens, Extent position, bool every) {
  if (frames_ == 0) throw UsageError("speech: no sound has been read; call encode first");
  if (tokens.empty()) throw UsageError("speech: no tokens; give at least one");
  const auto count = static_cast<Extent>(tokens.size());
  if (position + count > config_.positions)
    throw UsageError(fmt::format("speech: {} tokens; the model has {} positions", position + count, config_.positions));
  for (const std::int32_t token : tokens)
    if (token < 0 || token >= config_.vocabulary)
      throw UsageError(fmt::format("speech: token {} is outside of the vocabulary of {}", token, config_.vocabulary));
  const auto most = static_cast<std::size_t>(config_.positions);
  const auto* fitting = std::lower_bound(std::begin(kTokensOfPass), std::end(kTokensOfPass), tokens.size());
  const std::size_t size = fitting == std::end(kTokensOfPass) ? most : std::min(*fitting, most);
  std::vector<std::int32_t> padded(size, 0), positions(size, -1), length(size, 0);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    padded[i] = tokens[i], positions[i] = static_cast<std::int32_t>(position) + static_cast<std::int32_t>(i);
    length[i] = positions[i] + 1;
  }
  std::vector<Tensor> arguments = {tokens_on(padded, device_), tokens_on(positions, device_),
                                   tokens_on(length, device_),
                                   tokens_on({static_cast<std::int32_t>(frames_)}, device_)};
  if (!every) arguments.push_back(tokens_on({static_cast<std::int32_t>(count) - 1}, device_));
  const auto compiled = passes_.try_emplace(
      {size, every}, [this](std::span<const Tensor> in) { return std::vector<Tensor>{decoder(in)}; });
  std::vector<float> logits = compiled.first->second(arguments)[0].to_vector<float>();
  if (every) logits.resize(tokens.size() * static_cast<std::size_t>(config_.vocabulary));
  return logits;
}

}  // namespace weft::speech::detail
