#include "encoder/network.hpp"

#include <fmt/format.h>

#include <cmath>

#include "encoder/distances.hpp"
#include "weft/checkpoint.hpp"
#include "weft/ops.hpp"
#include "weft/ops/attention.hpp"

namespace weft::encoder {
namespace {

using layers::Linear;
using layers::ModelWeights;
using layers::Norm;

Tensor normed(const Norm& norm, const Tensor& x) { return norm.weight.defined() ? norm(x) : x; }

/// i32 [length, length]: the place of query - key, or of key - query, among the distances from -(length - 1) on.
Tensor places_of_distances(Extent length, bool is_query_minus_key, Device device) {
  const Tensor at = arange(length, DType::i32, device), rows = reshape(at, {length, 1}),
               columns = reshape(at, {1, length});
  return (is_query_minus_key ? rows - columns : columns - rows) + static_cast<double>(length - 1);
}

}  // namespace

Network::Network(const EncoderConfig& c, const EncoderNames& names, ModelWeights& weights)
    : config_(c), device_(weights.device()) {
  const auto norm = [&](std::string_view name, Extent width, layers::NormKind kind) {
    return load_norm(names(name), width, kind, weights);
  };
  words_ = weights.dense(names(names.words) + ".weight", {c.vocabulary, c.embedding});
  if (c.position_rows > 0 && c.has_position_table && !names.positions.empty() && c.positions != Positions::rotary)
    positions_ = weights.dense(names(names.positions) + ".weight", {c.position_rows, c.embedding});
  if (c.types > 0 && !names.types.empty() && weights.has(names(names.types) + ".weight"))
    types_ = weights.dense(names(names.types) + ".weight", {c.types, c.embedding});
  if (c.norms_embeddings) embedding_norm_ = norm(names.embedding_norm, c.embedding, c.norm);
  // ALBERT has the product even where the widths are equal.
  if (c.embedding != c.hidden || c.groups > 0)
    embedding_product_ =
        linear_of(weights, names(names.embedding_product), c.hidden, c.embedding, c.family != "deberta-v2");
  if (c.has_last_norm) last_norm_ = norm(names.last_norm, c.hidden, c.norm);
  if (c.positions == Positions::buckets)
    distances_ = weights.dense(names(names.distances) + ".weight", {c.buckets, c.heads});
  if (c.positions == Positions::disentangled) {
    distances_ =
        weights.dense(names(names.distances) + ".weight", {2 * (c.buckets > 0 ? c.buckets : c.distance), c.hidden});
    if (c.norms_distances) distance_norm_ = norm(names.distance_norm, c.hidden, layers::NormKind::layer);
  }
  if (c.groups == 0) {
    for (Extent i = 0; i < c.layers; ++i)
      layers_.push_back(load_layer(names, fmt::format(fmt::runtime(names.layer), i), i, weights));
  } else {
    for (Extent group = 0; group < c.groups; ++group)
      for (Extent i = 0; i < c.layers_in_group; ++i)
        layers_.push_back(load_layer(names, fmt::format(fmt::runtime(names.layer), group, i), i, weights));
  }
}

Norm Network::load_norm(const std::string& name, Extent width, layers::NormKind kind, ModelWeights& weights) const {
  Norm norm = norm_of(weights, name, width, config_.norm_eps, kind);
  if (config_.norms_add_one && norm.weight.defined()) {
    norm.weight = norm.weight + 1.0;
    if (!weights.are_trained()) norm.weight = norm.weight.eval();
  }
  return norm;
}

Network::Layer Network::load_layer(const EncoderNames& names, const std::string& prefix, Extent index,
                                   ModelWeights& weights) const {
  const EncoderConfig& c = config_;
  const Extent queries = c.heads * c.head_width, keys = c.key_heads * c.head_width;
  const auto name = [&](std::string_view part) { return names(prefix + std::string(part)); };
  const auto product = [&](std::string_view part, Extent rows, Extent columns, bool bias) {
    return part.empty() ? Linear{} : linear_of(weights, name(part), rows, columns, bias);
  };
  const auto norm = [&](std::string_view part, Extent width) {
    return part.empty() ? Norm{} : load_norm(name(part), width, c.norm, weights);
  };
  Layer layer;
  layer.qkv = product(names.qkv, queries + 2 * keys, c.hidden, c.has_qkv_bias);
  layer.q = product(names.q, queries, c.hidden, c.has_qkv_bias);
  layer.k = product(names.k, keys, c.hidden, c.has_qkv_bias);
  layer.v = product(names.v, keys, c.hidden, c.has_qkv_bias);
  layer.o = product(names.o, c.hidden, queries, c.has_output_bias);
  layer.gate_up = product(names.gate_up, 2 * c.intermediate, c.hidden, c.has_up_bias);
  layer.gate = product(names.gate, c.intermediate, c.hidden, c.has_up_bias);
  layer.up = product(names.up, c.intermediate, c.hidden, c.has_up_bias);
  layer.down = product(names.down, c.hidden, c.intermediate, c.has_down_bias);
  if (index > 0 || !c.lacks_first_norm) layer.norm1 = norm(names.norm1, c.hidden);
  layer.norm2 = norm(names.norm2, c.hidden);
  layer.norm1_after = norm(names.norm1_after, c.hidden);
  layer.norm2_after = norm(names.norm2_after, c.hidden);
  layer.q_norm = norm(names.q_norm, c.head_width);
  layer.k_norm = norm(names.k_norm, c.head_width);
  if (c.positions == Positions::disentangled && !c.shares_position_weights) {
    if (c.has_position_keys) layer.position_key = product(names.position_key, queries, c.hidden, true);
    if (c.has_position_queries) layer.position_query = product(names.position_query, queries, c.hidden, true);
  }
  layer.is_local = !c.is_local.empty() && c.is_local[static_cast<std::size_t>(index)];
  return layer;
}

Tensor Network::embedded(const Padded& texts, const Dropouts& dropouts) const {
  const Extent n = texts.texts(), length = texts.length(), width = config_.embedding;
  Tensor x = embedding(words_, texts.tokens);
  if (config_.embedding_scale != 1) x = x * config_.embedding_scale;
  if (types_.defined()) x = x + (texts.types.defined() ? embedding(types_, texts.types) : narrow(types_, 0, 0, 1));
  if (positions_.defined()) x = x + narrow(positions_, 0, config_.first_position, length);
  x = dropout(normed(embedding_norm_, reshape(x, {n * length, width})), dropouts.embeddings);
  return embedding_product_.weight.defined() ? embedding_product_(x) : x;
}

Network::Heads Network::heads_of(const Layer& layer, const Tensor& x, const Padded& texts) const {
  const Extent queries = config_.heads * config_.head_width, keys = config_.key_heads * config_.head_width;
  Tensor q, k, v;
  if (layer.qkv.weight.defined()) {
    const Tensor all = layer.qkv(x);
    q = narrow(all, 1, 0, queries);
    k = narrow(all, 1, queries, keys);
    v = narrow(all, 1, queries + keys, keys);
  } else {
    q = layer.q(x);
    k = layer.k(x);
    v = layer.v(x);
  }
  const auto split = [&](const Tensor& y, Extent heads) {
    return permute(reshape(y, {texts.texts(), texts.length(), heads, config_.head_width}), {0, 2, 1, 3});
  };
  Heads made{normed(layer.q_norm, split(q, config_.heads)), normed(layer.k_norm, split(k, config_.key_heads)),
             split(v, config_.key_heads)};
  if (config_.positions == Positions::rotary) {
    const double theta = layer.is_local ? config_.local_theta : config_.theta;
    made.q = rope(made.q, theta);
    made.k = rope(made.k, theta);
  }
  return made;
}

Tensor Network::distance_rows(Extent length) const {
  if (!distances_.defined()) return {};
  const std::vector<std::int32_t> rows = config_.positions == Positions::buckets
                                             ? t5_buckets(length, config_.buckets, config_.distance)
                                             : deberta_rows(length, config_.buckets, config_.distance);
  return embedding(normed(distance_norm_, distances_),
                   tensor_from_bytes(rows.data(), {static_cast<Extent>(rows.size())}, DType::i32, device_));
}

// [2 length - 1, heads] -> [1, heads, length, length].
Tensor Network::bucket_scores(const Tensor& rows, Extent length) const {
  return unsqueeze(permute(embedding(rows, places_of_distances(length, false, device_)), {2, 0, 1}), 0);
}

// Content to position and position to content, each a product with the embeddings of all distances of which every query takes
// those of its keys.
Tensor Network::disentangled_scores(const Layer& layer, const Heads& heads, const Tensor& rows) const {
  const Extent n = heads.q.dim(0), length = heads.q.dim(2), distances = rows.dim(0);
  const auto by_head = [&](const Linear& own, const Linear& shared) {
    const Tensor made = (config_.shares_position_weights ? shared : own)(rows);
    return permute(reshape(made, {distances, config_.heads, config_.head_width}),
                   {1, 2, 0});  // [heads, width, distances]
  };
  const Tensor places = places_of_distances(length, true, device_);
  const auto taken = [&](const Tensor& products, const Tensor& at) {
    return take_along_axis(products, expand(at, {n, config_.heads, length, length}), 3);
  };
  Tensor scores;
  if (config_.has_position_keys) scores = taken(matmul(heads.q, by_head(layer.position_key, layer.k)), places);
  if (config_.has_position_queries) {
    const Tensor more = transpose(taken(matmul(heads.k, by_head(layer.position_query, layer.q)), transpose(places)));
    scores = scores.defined() ? scores + more : more;
  }
  return scores;
}

Tensor Network::attended(const Layer& layer, const Tensor& x, const Padded& texts, const Tensor& distances,
                         const Dropouts& dropouts) const {
  const Heads heads = heads_of(layer, x, texts);
  AttentionOptions options{
      .causal = false, .scale = config_.score_scale, .lengths = texts.lengths, .dropout = dropouts.shares};
  if (layer.is_local) options.window = config_.window;
  if (config_.positions == Positions::buckets) options.mask = distances;
  if (config_.positions == Positions::disentangled) {
    const int parts = 1 + int{config_.has_position_keys} + int{config_.has_position_queries};
    options.scale = 1 / std::sqrt(static_cast<double>(config_.head_width * parts));
    if (const Tensor scores = disentangled_scores(layer, heads, distances); scores.defined())
      options.mask = cast(scores, DType::f32) * options.scale;
  }
  const Tensor y = attention(heads.q, heads.k, heads.v, options);
  return dropout(layer.o(reshape(permute(y, {0, 2, 1, 3}), {x.dim(0), config_.heads * config_.head_width})),
                 dropouts.attention);
}

Tensor Network::mlp(const Layer& layer, const Tensor& x, const Dropouts& dropouts) const {
  const auto activated = [&](const Tensor& y) { return elementwise(config_.activation, {y}); };
  const auto down = [&](const Tensor& y) { return dropout(layer.down(dropout(y, dropouts.inside)), dropouts.mlp); };
  if (!config_.is_gated) return down(activated(layer.up(x)));
  if (!layer.gate_up.weight.defined()) return down(activated(layer.gate(x)) * layer.up(x));
  const Tensor both = layer.gate_up(x);
  const Tensor first = narrow(both, 1, 0, config_.intermediate),
               second = narrow(both, 1, config_.intermediate, config_.intermediate);
  return down(config_.gate_is_first ? activated(first) * second : first * activated(second));
}

Tensor Network::layered(const Layer& layer, const Tensor& x, const Padded& texts, const Tensor& distances,
                        const Dropouts& dropouts) const {
  if (!config_.norms_first) {
    const Tensor y = layer.norm1(x + attended(layer, x, texts, distances, dropouts));
    return layer.norm2(y + mlp(layer, y, dropouts));
  }
  const Tensor y = x + normed(layer.norm1_after, attended(layer, normed(layer.norm1, x), texts, distances, dropouts));
  return y + normed(layer.norm2_after, mlp(layer, layer.norm2(y), dropouts));
}

Tensor Network::states(const Padded& texts, PassMode mode) const {
  const Dropouts dropouts = mode.drops_out ? config_.dropouts : Dropouts();
  Tensor x = embedded(texts, dropouts), distances = distance_rows(texts.length());
  if (config_.positions == Positions::buckets) distances = bucket_scores(distances, texts.length());
  const auto run = [&](const Layer& layer) {
    if (!mode.recomputes) {
      x = layered(layer, x, texts, distances, dropouts);
      return;
    }
    std::vector<Tensor> inputs{x};
    if (distances.defined()) inputs.push_back(distances);
    x = checkpoint(
        [&](std::span<const Tensor> in) {
          return layered(layer, in[0], texts, in.size() > 1 ? in[1] : Tensor(), dropouts);
        },
        inputs);
  };
  if (config_.groups == 0) {
    for (const Layer& layer : layers_) run(layer);
  } else {
    for (Extent i = 0; i < config_.layers; ++i) {
      const Extent group = i * config_.groups / config_.layers;
      for (Extent inner = 0; inner < config_.layers_in_group; ++inner)
        run(layers_[static_cast<std::size_t>(group * config_.layers_in_group + inner)]);
    }
  }
  return dropout(normed(last_norm_, x), dropouts.states);
}

}  // namespace weft::encoder
