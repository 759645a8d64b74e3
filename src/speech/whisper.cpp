#include "speech/whisper.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "io/tensor_source.hpp"
#include "weft/error.hpp"
#include "weft/inference.hpp"
#include "weft/ops.hpp"
#include "weft/ops/convolution.hpp"
#include "weft/ops/indexing.hpp"

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

/// Attention over rows of a cache, of which query t sees length[t] from first[t] on.
Tensor attend_to_cache(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& first, const Tensor& length,
                       Extent heads) {
  return reshape(cache_attention(reshape(q, {q.dim(0), heads, q.dim(1) / heads}), k, v, first, length, heads),
                 q.shape());
}

Tensor i32_on(const std::vector<std::int32_t>& values, Device device) {
  return tensor_from_bytes(values.data(), {static_cast<Extent>(values.size())}, DType::i32, device);
}

Variable cache_of(Extent rows, Extent width, Device device) {
  return Variable(empty_cache(rows, width, CacheType::f32, device).eval(), "cache", false);
}

}  // namespace

WhisperEngine::WhisperEngine(const std::filesystem::path& folder, const LoadOptions& options)
    : config_(read_whisper_config(folder)),
      tokenizer_(llm::Tokenizer::load(folder)),
      tokens_(read_whisper_tokens(folder, config_, tokenizer_)),
      alignment_heads_(read_alignment_heads(folder, config_)),
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
    make_caches(layer, sequences_);
    layer.cross_keys = cache_of(config_.source_positions, n, device_);
    layer.cross_values = cache_of(config_.source_positions, n, device_);
  }
  return layer;
}

void WhisperEngine::make_caches(Layer& layer, Extent sequences) const {
  const Extent rows = sequences * config_.target_positions;
  layer.keys = cache_of(rows, config_.width, device_), layer.values = cache_of(rows, config_.width, device_);
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

// Scores of the heads of alignment of a layer, [heads, T, source positions].
Tensor WhisperEngine::cross_scores(std::size_t layer, const Tensor& q) const {
  const Extent heads = config_.decoder_heads, width = config_.width / heads;
  std::vector<std::int32_t> chosen;
  for (const AlignmentHead& head : alignment_heads_)
    if (head.layer == static_cast<Extent>(layer)) chosen.push_back(static_cast<std::int32_t>(head.head));
  if (chosen.empty()) return {};
  const auto of_heads = [&](const Tensor& x) {  // [rows, width of all] -> [chosen, rows, width]
    const Tensor by_head = permute(reshape(x, {x.dim(0), heads, width}), {1, 0, 2});
    return index_select(by_head, 0, i32_on(chosen, device_));
  };
  return matmul(of_heads(q), transpose(of_heads(decoder_layers_[layer].cross_keys))) *
         (1 / std::sqrt(static_cast<double>(width)));
}

// Arguments, all i32 of a Batch: tokens, positions, rows, first and length [T]; then the rows [R] of the pass whose logits are wanted,
// unless those of every token are. A row of -1 is in no cache.
Tensor WhisperEngine::decoder(std::span<const Tensor> arguments, std::vector<Tensor>* scores) {
  const Tensor &tokens = arguments[0], &positions = arguments[1], &rows = arguments[2], &first = arguments[3],
               &length = arguments[4];
  Tensor x = embedding(table_, tokens);
  if (config_.scales_embedding) x = x * std::sqrt(static_cast<double>(config_.width));
  x = x + embedding(decoder_positions_, positions);
  const Tensor none = zeros({tokens.dim(0)}, DType::i32, device_);
  const Tensor whole =
      elementwise("minimum", {length, scalar_like(1, length)}) * static_cast<double>(config_.source_positions);
  for (std::size_t i = 0; i < decoder_layers_.size(); ++i) {
    Layer& layer = decoder_layers_[i];
    const Attention &self = layer.self, &cross = *layer.cross;
    const Tensor h = layer_norm(x, self.norm.weight, self.norm.bias);
    layer.keys.assign(write_rows(layer.keys, product(h, self.k.weight), rows));
    layer.values.assign(write_rows(layer.values, product(h, self.v.weight, self.v.bias), rows));
    const Tensor y = attend_to_cache(product(h, self.q.weight, self.q.bias), layer.keys, layer.values, first, length,
                                     config_.decoder_heads);
    x = x + product(y, self.out.weight, self.out.bias);
    const Tensor g = layer_norm(x, cross.norm.weight, cross.norm.bias);
    const Tensor q = product(g, cross.q.weight, cross.q.bias);
    if (scores)
      if (const Tensor seen = cross_scores(i, q); seen.defined()) scores->push_back(seen);
    const Tensor z = attend_to_cache(q, layer.cross_keys, layer.cross_values, none, whole, config_.decoder_heads);
    x = feed_forward(layer, x + product(z, cross.out.weight, cross.out.bias));
  }
  if (arguments.size() > 5) x = embedding(x, arguments[5]);
  return product(layer_norm(x, decoder_norm_.weight, decoder_norm_.bias), head_);
}

std::size_t WhisperEngine::padded(std::size_t tokens) const {
  const auto most = static_cast<std::size_t>(config_.target_positions);
  const auto* fitting = std::lower_bound(std::begin(kPassSizes), std::end(kPassSizes), tokens);
  return fitting == std::end(kPassSizes) ? most : std::min(*fitting, most);
}

WhisperEngine::Batch WhisperEngine::one_sequence(std::span<const std::int32_t> tokens, Extent position) const {
  if (!has_window_) throw UsageError("speech: no sound has been read; call encode first");
  if (tokens.empty()) throw UsageError("speech: no tokens; give at least one");
  if (position + static_cast<Extent>(tokens.size()) > config_.target_positions)
    throw UsageError(fmt::format("speech: {} tokens; the model has {} positions",
                                 position + static_cast<Extent>(tokens.size()), config_.target_positions));
  for (const std::int32_t token : tokens)
    if (token < 0 || token >= config_.vocabulary)
      throw UsageError(fmt::format("speech: token {} is outside of the vocabulary of {}", token, config_.vocabulary));
  Batch batch(padded(tokens.size()));
  for (std::size_t i = 0; i < tokens.size(); ++i)
    batch.put(i, tokens[i], static_cast<std::int32_t>(position) + static_cast<std::int32_t>(i), 0);
  return batch;
}

std::vector<Tensor> WhisperEngine::arguments_of(const Batch& batch) const {
  return {i32_on(batch.tokens, device_), i32_on(batch.positions, device_), i32_on(batch.rows, device_),
          i32_on(batch.first, device_), i32_on(batch.length, device_)};
}

Tensor WhisperEngine::run(const Batch& batch, std::span<const Extent> rows, LogitsOf wanted) {
  std::vector<Tensor> arguments = arguments_of(batch);
  const std::vector<std::int32_t> picked(rows.begin(), rows.end());
  if (wanted == LogitsOf::rows) arguments.push_back(i32_on(picked, device_));
  const auto compiled = passes_.try_emplace({batch.tokens.size(), picked.size()}, [this](std::span<const Tensor> in) {
    return std::vector<Tensor>{decoder(in)};
  });
  return compiled.first->second(arguments)[0];
}

std::vector<float> WhisperEngine::pass(std::span<const std::int32_t> tokens, Extent position,
                                       std::span<const Extent> rows) {
  return run(one_sequence(tokens, position), rows, LogitsOf::rows).to_vector<float>();
}

std::vector<float> WhisperEngine::all_logits(std::span<const std::int32_t> tokens) {
  std::vector<float> logits = run(one_sequence(tokens, 0), {}, LogitsOf::every).to_vector<float>();
  logits.resize(tokens.size() * static_cast<std::size_t>(config_.vocabulary));
  return logits;
}

void WhisperEngine::reserve_sequences(Extent count) {
  if (count <= sequences_) return;
  passes_.clear(), align_.reset(), copy_.reset();  // they hold the caches that there were
  for (Layer& layer : decoder_layers_) make_caches(layer, count);
  sequences_ = count;
}

std::vector<float> WhisperEngine::step(std::span<const std::int32_t> token_of_sequence, Extent position) {
  Batch batch(token_of_sequence.size());
  for (std::size_t i = 0; i < token_of_sequence.size(); ++i)
    if (token_of_sequence[i] >= 0)
      batch.put(i, token_of_sequence[i], static_cast<std::int32_t>(position),
                static_cast<std::int32_t>(static_cast<Extent>(i) * config_.target_positions));
  return run(batch, {}, LogitsOf::every).to_vector<float>();
}

void WhisperEngine::copy_sequences(std::span<const SequenceCopy> copies, Extent length) {
  if (copies.empty() || length == 0) return;
  std::vector<std::int32_t> from, to;
  for (const SequenceCopy& copy : copies)
    for (Extent i = 0; i < length; ++i) {
      from.push_back(static_cast<std::int32_t>(copy.from * config_.target_positions + i));
      to.push_back(static_cast<std::int32_t>(copy.to * config_.target_positions + i));
    }
  // Few sizes, so that few plans are made: powers of two. Places of -1 are dropped.
  const std::size_t size = std::bit_ceil(std::max<std::size_t>(from.size(), 64));
  from.resize(size, 0), to.resize(size, -1);
  if (!copy_)
    copy_.emplace([this](std::span<const Tensor> in) {
      for (Layer& layer : decoder_layers_)
        for (Variable* cache : {&layer.keys, &layer.values})
          cache->assign(write_rows(*cache, embedding(*cache, in[0]), in[1]));
      return std::vector<Tensor>{};
    });
  const Tensor arguments[] = {i32_on(from, device_), i32_on(to, device_)};
  (*copy_)(arguments);
}

HeadScores WhisperEngine::head_scores(std::span<const std::int32_t> tokens) {
  const Batch batch = one_sequence(tokens, 0);
  std::vector<Tensor> arguments = arguments_of(batch);
  std::vector<std::int32_t> next(batch.tokens.begin() + 1, batch.tokens.end());
  next.push_back(0);
  for (std::int32_t& token : next) token = std::min(token, tokens_.end - 1);  // behind the text; not read
  arguments.push_back(i32_on(next, device_));
  if (!align_)
    align_.emplace([this](std::span<const Tensor> in) {
      std::vector<Tensor> scores;
      const Tensor logits = narrow(decoder(in.first(5), &scores), 1, 0, tokens_.end);
      const Tensor of_next = squeeze(take_along_axis(logits, unsqueeze(in[5], 1), 1), 1);
      return std::vector<Tensor>{concat(scores, 0), elementwise("exp", {of_next - logsumexp(logits, {1})})};
    });
  const std::vector<Tensor> made = (*align_)(arguments);
  HeadScores seen{made[0].dim(0), static_cast<Extent>(tokens.size()), config_.source_positions,
                  narrow(made[0], 1, 0, static_cast<Extent>(tokens.size())).to_vector<float>(),
                  made[1].to_vector<float>()};
  seen.probability_of_next.resize(tokens.size() - 1);
  return seen;
}

}  // namespace weft::speech::detail
