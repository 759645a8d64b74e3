#include "vision/tower.hpp"

#include <algorithm>

#include "weft/error.hpp"
#include "weft/ops.hpp"

namespace weft::vision {
namespace {

/// Whether it has the names of ViT.
bool is_vit(const TowerConfig& c) { return c.kind == TowerKind::vit || c.kind == TowerKind::internvl; }

const LayerNames& names_of(TowerKind kind) {
  return kind == TowerKind::vit ? kVitLayer : kind == TowerKind::internvl ? kInternVitLayer : kClipLayer;
}

}  // namespace

Tower::Tower(const TowerConfig& c, ModelWeights& weights, const std::string& prefix, bool has_head, bool has_last_norm)
    : config_(c),
      stack_(c.stack, weights, prefix + (is_vit(c) ? "encoder.layer." : "encoder.layers."), names_of(c.kind)) {
  const Extent hidden = c.stack.hidden, p = c.patch_size, places = c.grid() * c.grid() + (c.has_class_token() ? 1 : 0);
  const std::string in = prefix + "embeddings.";
  const std::string patch = in + (is_vit(c) ? "patch_embeddings.projection" : "patch_embedding");
  patches_.weight = weights.matrix(patch + ".weight", {hidden, 3, p, p});
  if (c.kind != TowerKind::clip) patches_.bias = weights.dense(patch + ".bias", {hidden});
  if (is_vit(c)) {
    class_token_ = weights.dense(in + "cls_token", {1, 1, hidden});
    positions_ = weights.dense(in + "position_embeddings", {1, places, hidden});
  } else {
    if (c.kind == TowerKind::clip) class_token_ = weights.dense(in + "class_embedding", {hidden});
    positions_ = weights.dense(in + "position_embedding.weight", {places, hidden});
  }
  if (c.kind == TowerKind::clip) first_norm_ = norm_of(weights, prefix + "pre_layrnorm", hidden, c.stack.norm_eps);
  if (has_last_norm && c.has_last_norm && (c.kind != TowerKind::clip || has_head))
    last_norm_ = norm_of(weights, prefix + (is_vit(c) ? "layernorm" : "post_layernorm"), hidden, c.stack.norm_eps);
  if (c.kind == TowerKind::siglip && has_head) head_ = query_head(weights, prefix + "head.");
}

Tower::QueryHead Tower::query_head(ModelWeights& weights, const std::string& prefix) const {
  const Extent hidden = config_.stack.hidden;
  // The projections of queries, keys and values are one matrix in the file.
  const Tensor matrix = weights.dense(prefix + "attention.in_proj_weight", {3 * hidden, hidden}),
               bias = weights.dense(prefix + "attention.in_proj_bias", {3 * hidden});
  const auto part = [&](Extent i) {
    if (!matrix.defined() || !bias.defined()) return Linear{};
    return Linear{narrow(matrix, 0, i * hidden, hidden), narrow(bias, 0, i * hidden, hidden)};
  };
  return {weights.dense(prefix + "probe", {1, 1, hidden}),
          part(0),
          part(1),
          part(2),
          linear_of(weights, prefix + "attention.out_proj", hidden, hidden),
          norm_of(weights, prefix + "layernorm", hidden, config_.stack.norm_eps),
          Mlp{linear_of(weights, prefix + "mlp.fc1", config_.stack.intermediate, hidden),
              linear_of(weights, prefix + "mlp.fc2", hidden, config_.stack.intermediate), config_.stack.activation}};
}

Extent Tower::tokens() const { return config_.grid() * config_.grid() + (config_.has_class_token() ? 1 : 0); }

Tensor Tower::embedded(const Tensor& pixels) const {
  const Extent n = pixels.dim(0), p = config_.patch_size, grid = pixels.dim(2) / p, hidden = config_.stack.hidden;
  // A convolution whose windows do not overlap is a product with the patches. What is left at the edges is not read.
  const Tensor whole = narrow(narrow(pixels, 2, 0, grid * p), 3, 0, grid * p);
  const Tensor cut = permute(reshape(whole, {n, 3, grid, p, grid, p}), {0, 2, 4, 1, 3, 5});
  Tensor x = reshape(patches_(reshape(cut, {n * grid * grid, 3 * p * p})), {n, grid * grid, hidden});
  if (config_.has_class_token()) {
    const Tensor parts[] = {expand(reshape(class_token_, {1, 1, hidden}), {n, 1, hidden}), x};
    x = concat(parts, 1);
  }
  Tensor positions = reshape(positions_, {positions_.numel() / hidden, hidden});
  if (config_.kind == TowerKind::idefics3) {
    const std::vector<std::int32_t> line = spread_positions(grid, config_.grid());
    std::vector<std::int32_t> places;
    for (const std::int32_t y : line)
      for (const std::int32_t x_place : line) places.push_back(y * static_cast<std::int32_t>(config_.grid()) + x_place);
    positions = embedding(positions, tensor_from_bytes(places.data(), {grid * grid}, DType::i32, x.device()));
  } else if (positions.dim(0) != x.dim(1)) {
    throw UsageError(fmt::format("vision: an image of {} x {} pixels; the model reads {} x {}", pixels.dim(2),
                                 pixels.dim(3), config_.image_size, config_.image_size));
  }
  x = reshape(x + positions, {n * x.dim(1), hidden});
  return config_.kind == TowerKind::clip ? first_norm_(x) : x;
}

Tensor Tower::states(const Tensor& pixels, Extent layers) const {
  return stack_.run(embedded(pixels), 0, layers, false, pixels.dim(0));
}

Tensor Tower::pooled(const Tensor& pixels) const {
  const Extent n = pixels.dim(0), hidden = config_.stack.hidden;
  const auto first = [&](const Tensor& x) { return select(reshape(x, {n, x.dim(0) / n, hidden}), 1, 0); };
  if (config_.kind == TowerKind::clip)
    return last_norm_(first(states(pixels, stack_.layers())));  // of the class token alone
  const Tensor x = last_states(pixels);
  if (!head_) return first(x);
  const Tensor query = expand(head_->q(reshape(head_->probe, {1, hidden})), {n, hidden});
  const Tensor seen = head_->o(attended(query, head_->k(x), head_->v(x), config_.stack.heads, false, n));
  return seen + head_->mlp(head_->norm(seen));
}

std::vector<std::int32_t> spread_positions(Extent count, Extent known) {
  // In f32, as transformers does: where the parts do not fit exactly, rounding decides.
  std::vector<float> edges;
  const double step = 1.0 / static_cast<double>(known);
  for (Extent i = 1; i < known; ++i) edges.push_back(static_cast<float>(step + static_cast<double>(i - 1) * step));
  const float part = 1.0F / static_cast<float>(count);
  std::vector<std::int32_t> places;
  for (Extent i = 0; i < count; ++i) {
    const float at = std::min(static_cast<float>(i) * part, static_cast<float>(1.0 - 1e-6));
    places.push_back(static_cast<std::int32_t>(std::upper_bound(edges.begin(), edges.end(), at) - edges.begin()));
  }
  return places;
}

}  // namespace weft::vision
