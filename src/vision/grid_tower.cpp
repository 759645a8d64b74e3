#include "vision/grid_tower.hpp"

#include <algorithm>
#include <cmath>

#include "weft/inference.hpp"
#include "weft/ops.hpp"

namespace weft::vision {
namespace {

using io::ConfigKeys;

/// The names of a layer's parts in files.
struct GridNames {
  const char *layers, *patches, *norm1, *norm2, *qkv, *o, *gate, *up, *down;
};
constexpr GridNames kQwen2 = {"blocks.", "patch_embed.proj", "norm1",  "norm2", "attn.qkv", "attn.proj",
                              nullptr,   "mlp.fc1",          "mlp.fc2"},
                    kQwen25 = {"blocks.",   "patch_embed.proj", "norm1",       "norm2",        "attn.qkv",
                               "attn.proj", "mlp.gate_proj",    "mlp.up_proj", "mlp.down_proj"},
                    kQwen3 = {"blocks.", "patch_embed.proj", "norm1",         "norm2", "attn.qkv", "attn.proj",
                              nullptr,   "mlp.linear_fc1",   "mlp.linear_fc2"},
                    kPixtral = {"transformer.layers.",
                                "patch_conv",
                                "attention_norm",
                                "ffn_norm",
                                nullptr,
                                "attention.o_proj",
                                "feed_forward.gate_proj",
                                "feed_forward.up_proj",
                                "feed_forward.down_proj"};

const GridNames& names_of(GridKind kind) {
  switch (kind) {
    case GridKind::qwen2: return kQwen2;
    case GridKind::qwen2_5: return kQwen25;
    case GridKind::qwen3: return kQwen3;
    case GridKind::pixtral: break;
  }
  return kPixtral;
}
bool has_rms_norms(GridKind kind) { return kind == GridKind::qwen2_5 || kind == GridKind::pixtral; }

/// Numbers of layers, each below `count`.
std::vector<Extent> layers_in(const ConfigKeys& keys, const char* key, std::vector<Extent> fallback, Extent count) {
  if (keys.find({key})) {
    fallback.clear();
    for (const double each : keys.numbers(key)) fallback.push_back(static_cast<Extent>(each));
  }
  for (const Extent each : fallback)
    if (each < 0 || each >= count) keys.fail(key, fmt::format("has {}; the tower has {} layers", each, count));
  return fallback;
}

/// y = x cos + (-second half, first half) sin, on each head of x [N T, heads D]; cos and sin [T, D / 2].
Tensor turned(const Tensor& x, const Tensor& cos, const Tensor& sin, Extent heads) {
  const Extent tokens = cos.dim(0), half = cos.dim(1), n = x.dim(0) / tokens;
  const Tensor parts = reshape(x, {n, tokens, heads, 2, half});
  const Tensor a = select(parts, 3, 0), b = select(parts, 3, 1), c = unsqueeze(cos, 1), s = unsqueeze(sin, 1);
  const Tensor both[] = {unsqueeze(a * c - b * s, 3), unsqueeze(b * c + a * s, 3)};
  return reshape(concat(both, 3), x.shape());
}

enum Input : std::size_t { kPatches, kCos, kSin, kRest };

}  // namespace

GridTowerConfig grid_tower_config(GridKind kind, const Json& json, const std::string& source, const std::string& path,
                                  Extent merge) {
  const ConfigKeys keys(json, source, path);
  const bool is_pixtral = kind == GridKind::pixtral, is_first = kind == GridKind::qwen2;
  GridTowerConfig c;
  c.kind = kind;
  StackConfig& s = c.stack;
  if (is_first) {
    s.hidden = keys.size({"embed_dim"}, 1280);
    s.intermediate = static_cast<Extent>(static_cast<double>(s.hidden) * keys.number({"mlp_ratio"}, 4.0));
    c.out = keys.size({"hidden_size"}, 3584);
  } else {
    s.hidden = keys.size({"hidden_size"}, is_pixtral ? 1024 : kind == GridKind::qwen3 ? 1152 : 3584);
    s.intermediate = keys.size({"intermediate_size"}, is_pixtral ? 4096 : kind == GridKind::qwen3 ? 4304 : 3420);
    if (!is_pixtral) c.out = keys.size({"out_hidden_size"}, 3584);
  }
  s.layers = keys.size({"depth", "num_hidden_layers"}, is_pixtral ? 24 : kind == GridKind::qwen3 ? 27 : 32);
  s.heads = keys.size({"num_heads", "num_attention_heads"}, 16);
  s.norm_eps = is_pixtral ? 1e-5 : 1e-6;
  s.activation = activation_of(keys, is_first                  ? "quick_gelu"
                                     : kind == GridKind::qwen3 ? "gelu_pytorch_tanh"
                                     : is_pixtral              ? "gelu"
                                                               : "silu");
  require_size(keys, is_first ? "embed_dim" : "hidden_size", s.hidden, 1 << 16);
  require_size(keys, is_first ? "mlp_ratio" : "intermediate_size", s.intermediate, 1 << 18);
  require_size(keys, is_pixtral ? "num_hidden_layers" : "depth", s.layers, 1 << 10);
  require_size(keys, is_pixtral ? "num_attention_heads" : "num_heads", s.heads, 1 << 10);
  // A quarter of a head's channels are turned by each axis, in pairs.
  if (s.hidden % s.heads != 0 || s.hidden / s.heads % 4 != 0)
    keys.fail(is_pixtral ? "num_attention_heads" : "num_heads",
              fmt::format("is {}, which does not cut {} channels into parts of a multiple of 4", s.heads, s.hidden));
  c.patch_size = keys.size({"patch_size"}, is_pixtral || kind == GridKind::qwen3 ? 16 : 14);
  require_size(keys, "patch_size", c.patch_size, 1 << 8);
  c.frames = is_pixtral ? 1 : keys.size({"temporal_patch_size"}, 2);
  require_size(keys, "temporal_patch_size", c.frames, 16);
  c.merge = is_pixtral ? merge : keys.size({"spatial_merge_size"}, 2);
  require_size(keys, "spatial_merge_size", c.merge, 16);
  if (const Extent channels = keys.size({"in_channels", "in_chans", "num_channels"}, 3); channels != 3)
    keys.fail("in_channels", fmt::format("is {}; Weft reads images of 3 channels", channels));
  if (const Json* rope = keys.find({"rope_parameters"}))
    c.rope_base = ConfigKeys(*rope, source, path + ".rope_parameters").number({"rope_theta"}, 10000.0);
  else
    c.rope_base = keys.number({"rope_theta"}, 10000.0);
  if (!(c.rope_base > 0)) keys.fail("rope_theta", fmt::format("is {}, not above 0", c.rope_base));
  if (kind == GridKind::qwen2_5) {
    const Extent pixels = keys.size({"window_size"}, 112);
    c.window = pixels / c.merge / c.patch_size * c.merge;
    require_size(keys, "window_size", c.window, 1 << 12);
    c.sees_all.assign(static_cast<std::size_t>(s.layers), false);
    std::vector<Extent> usual;
    for (Extent i = 7; i < s.layers; i += 8) usual.push_back(i);
    for (const Extent layer : layers_in(keys, "fullatt_block_indexes", usual, s.layers))
      c.sees_all[static_cast<std::size_t>(layer)] = true;
  }
  if (kind == GridKind::qwen3) {
    const Extent places = keys.size({"num_position_embeddings"}, 2304);
    c.known = static_cast<Extent>(std::sqrt(static_cast<double>(places)));
    require_size(keys, "num_position_embeddings", c.known, 1 << 10);
    if (c.known * c.known != places)
      keys.fail("num_position_embeddings", fmt::format("is {}, which is not the square of a whole number", places));
    c.taken = layers_in(keys, "deepstack_visual_indexes", {8, 16, 24}, s.layers);
    if (!std::is_sorted(c.taken.begin(), c.taken.end()) || c.taken.size() > 16)
      keys.fail("deepstack_visual_indexes", "is not a growing list of at most 16 layers");
  }
  return c;
}

PatchGrid patch_grid(const GridTowerConfig& c, Extent height, Extent width) {
  PatchGrid grid{height, width, {}, {}, {}, {}, {}};
  const Extent merge = c.merge, rows = height / merge, columns = width / merge;
  const Extent side =
      c.window > 0 ? c.window / merge : std::max(rows, columns);  // of a window, in rows of the language model
  for (Extent top = 0; top < rows; top += side)
    for (Extent left = 0; left < columns; left += side) {
      const auto first = static_cast<std::int32_t>(grid.y.size());
      const Extent bottom = std::min(top + side, rows), right = std::min(left + side, columns);
      for (Extent y = top; y < bottom; ++y)
        for (Extent x = left; x < right; ++x) {
          grid.row.push_back(static_cast<std::int32_t>(y * columns + x));
          for (Extent dy = 0; dy < merge; ++dy)
            for (Extent dx = 0; dx < merge; ++dx) {
              grid.y.push_back(static_cast<std::int32_t>(y * merge + dy));
              grid.x.push_back(static_cast<std::int32_t>(x * merge + dx));
            }
        }
      if (c.window == 0) continue;
      const auto count = static_cast<std::int32_t>(grid.y.size()) - first;
      grid.first.insert(grid.first.end(), static_cast<std::size_t>(count), first);
      grid.length.insert(grid.length.end(), static_cast<std::size_t>(count), count);
    }
  return grid;
}

std::vector<float> patch_values(const GridTowerConfig& c, const PatchGrid& grid, std::span<const float> planes) {
  const Extent p = c.patch_size, row = grid.width * p, plane = grid.height * p * row;
  std::vector<float> values;
  values.reserve(grid.y.size() * static_cast<std::size_t>(3 * c.frames * p * p));
  for (std::size_t i = 0; i < grid.y.size(); ++i)
    for (Extent channel = 0; channel < 3; ++channel)
      for (Extent frame = 0; frame < c.frames; ++frame)  // an image is a film that stands still
        for (Extent line = 0; line < p; ++line) {
          const auto from = planes.begin() + (channel * plane + (grid.y[i] * p + line) * row + grid.x[i] * p);
          values.insert(values.end(), from, from + p);
        }
  return values;
}

GridTower::GridTower(const GridTowerConfig& c, ModelWeights& weights, const std::string& prefix) : config_(c) {
  const GridNames& names = names_of(c.kind);
  const StackConfig& s = c.stack;
  if (static_cast<std::size_t>(s.layers) > weights.source().tensors().size())
    throw FileError(
        fmt::format("{}: a tower of {} layers is asked for, but the files have {} tensors; is the model whole?",
                    weights.source().path().string(), s.layers, weights.source().tensors().size()));
  const bool has_biases = c.kind != GridKind::pixtral;
  const auto norm = [&](const std::string& name) {
    return AnyNorm{weights.dense(name + ".weight", {s.hidden}),
                   has_rms_norms(c.kind) ? Tensor() : weights.dense(name + ".bias", {s.hidden}), s.norm_eps};
  };
  const std::string patches = prefix + names.patches;
  const Extent p = c.patch_size;
  patches_.weight = weights.matrix(
      patches + ".weight", c.kind == GridKind::pixtral ? Shape{s.hidden, 3, p, p} : Shape{s.hidden, 3, c.frames, p, p});
  if (c.kind == GridKind::qwen3) {
    patches_.bias = weights.dense(patches + ".bias", {s.hidden});
    positions_ = weights.dense(prefix + "pos_embed.weight", {c.known * c.known, s.hidden});
  }
  if (c.kind == GridKind::pixtral) first_norm_ = weights.dense(prefix + "ln_pre.weight", {s.hidden});
  for (Extent i = 0; i < s.layers; ++i) {
    const std::string layer = prefix + names.layers + std::to_string(i) + ".";
    const auto matrix = [&](const char* name, Extent rows, Extent columns) {
      return linear_of(weights, layer + name, rows, columns, has_biases);
    };
    Layer l{norm(layer + names.norm1),
            norm(layer + names.norm2),
            {},
            {},
            {},
            {},
            matrix(names.o, s.hidden, s.hidden),
            {},
            matrix(names.up, s.intermediate, s.hidden),
            matrix(names.down, s.hidden, s.intermediate)};
    if (names.qkv) {
      l.qkv = matrix(names.qkv, 3 * s.hidden, s.hidden);
    } else {
      l.q = matrix("attention.q_proj", s.hidden, s.hidden);
      l.k = matrix("attention.k_proj", s.hidden, s.hidden);
      l.v = matrix("attention.v_proj", s.hidden, s.hidden);
    }
    if (names.gate) l.gate = matrix(names.gate, s.intermediate, s.hidden);
    layers_.push_back(std::move(l));
  }
}

std::vector<Tensor> GridTower::inputs(const PatchGrid& grid, std::span<const std::vector<float>> planes,
                                      Device device) const {
  const auto count = static_cast<Extent>(grid.y.size()), half = config_.head_dim() / 2, quarter = half / 2,
             n = static_cast<Extent>(planes.size());
  // Pixtral gives every other frequency of the whole head to each axis, Qwen all frequencies of half a head to both.
  const bool shares = config_.kind == GridKind::pixtral;
  std::vector<float> cos, sin;
  for (std::size_t i = 0; i < grid.y.size(); ++i)
    for (Extent pair = 0; pair < half; ++pair) {
      const bool is_x = pair >= quarter;
      const Extent place = pair % quarter;
      const double exponent = shares ? static_cast<double>(2 * place + (is_x ? 1 : 0)) / static_cast<double>(half)
                                     : static_cast<double>(place) / static_cast<double>(quarter);
      const double angle = static_cast<double>(is_x ? grid.x[i] : grid.y[i]) * std::pow(config_.rope_base, -exponent);
      cos.push_back(static_cast<float>(std::cos(angle)));
      sin.push_back(static_cast<float>(std::sin(angle)));
    }
  std::vector<float> values;
  for (const std::vector<float>& picture : planes) {
    const std::vector<float> own = patch_values(config_, grid, picture);
    values.insert(values.end(), own.begin(), own.end());
  }
  const auto floats = [&](const std::vector<float>& list, Extent width) {
    return tensor_from_bytes(list.data(), {count, width}, DType::f32, device);
  };
  const Extent width = static_cast<Extent>(values.size()) / (n * count);
  std::vector<Tensor> inputs = {tensor_from_bytes(values.data(), {n * count, width}, DType::f32, device),
                                floats(cos, half), floats(sin, half)};
  if (config_.window > 0) {
    // The rows of one picture behind those of another.
    std::vector<std::int32_t> first, length;
    for (Extent i = 0; i < n; ++i) {
      for (const std::int32_t row : grid.first) first.push_back(row + static_cast<std::int32_t>(i * count));
      length.insert(length.end(), grid.length.begin(), grid.length.end());
    }
    for (const auto* list : {&first, &length})
      inputs.push_back(tensor_from_bytes(list->data(), {n * count}, DType::i32, device));
  }
  if (config_.known > 0) {
    // Learnt positions are stretched over the image: each patch is between four of them.
    std::vector<std::int32_t> places;
    std::vector<float> shares_of;
    const auto side = config_.known;
    const auto stretched = [&](std::int32_t at, Extent extent) {
      return static_cast<float>(at) * static_cast<float>(side - 1) /
             static_cast<float>(std::max<Extent>(extent - 1, 1));
    };
    for (std::size_t i = 0; i < grid.y.size(); ++i) {
      const float y = stretched(grid.y[i], grid.height), x = stretched(grid.x[i], grid.width);
      const auto top = static_cast<Extent>(std::floor(y)), left = static_cast<Extent>(std::floor(x));
      const float down = y - static_cast<float>(top), right = x - static_cast<float>(left);
      for (Extent dy = 0; dy < 2; ++dy)
        for (Extent dx = 0; dx < 2; ++dx) {
          places.push_back(
              static_cast<std::int32_t>(std::min(top + dy, side - 1) * side + std::min(left + dx, side - 1)));
          shares_of.push_back((dy == 1 ? down : 1 - down) * (dx == 1 ? right : 1 - right));
        }
    }
    inputs.push_back(tensor_from_bytes(places.data(), {4 * count}, DType::i32, device));
    inputs.push_back(floats(shares_of, 4));
  }
  return inputs;
}

Tensor GridTower::AnyNorm::operator()(const Tensor& x) const {
  return bias.defined() ? layer_norm(x, weight, bias, eps) : rms_norm(x, weight, eps);
}

Tensor GridTower::attended_layer(const Layer& layer, const Tensor& h, bool sees_all,
                                 std::span<const Tensor> inputs) const {
  const Extent heads = config_.stack.heads, hidden = config_.stack.hidden;
  Tensor q, k, v;
  if (layer.qkv.weight.defined()) {
    const Tensor all = layer.qkv(h);
    q = narrow(all, 1, 0, hidden);
    k = narrow(all, 1, hidden, hidden);
    v = narrow(all, 1, 2 * hidden, hidden);
  } else {
    q = layer.q(h);
    k = layer.k(h);
    v = layer.v(h);
  }
  q = turned(q, inputs[kCos], inputs[kSin], heads);
  k = turned(k, inputs[kCos], inputs[kSin], heads);
  const Extent n = q.dim(0) / inputs[kCos].dim(0);
  if (sees_all) return layer.o(attended(q, k, v, heads, false, n));
  // The patches of a window are rows side by side, as those of a sequence in a cache are.
  const Tensor y =
      cache_attention(reshape(q, {q.dim(0), heads, hidden / heads}), k, v, inputs[kRest], inputs[kRest + 1], heads);
  return layer.o(reshape(y, q.shape()));
}

std::vector<Tensor> GridTower::states(std::span<const Tensor> inputs) const {
  Tensor x = patches_(inputs[kPatches]);
  if (config_.known > 0) {
    const Extent count = inputs[kCos].dim(0), n = x.dim(0) / count, hidden = x.dim(1);
    const Tensor four = reshape(embedding(positions_, inputs[kRest]), {count, 4, hidden});
    const Tensor positions = sum(four * unsqueeze(inputs[kRest + 1], 2), {1});
    x = reshape(reshape(x, {n, count, hidden}) + positions, x.shape());
  }
  if (first_norm_.defined()) x = rms_norm(x, first_norm_, config_.stack.norm_eps);
  std::vector<Tensor> states;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    x = x + attended_layer(layer, layer.norm1(x), config_.window == 0 || config_.sees_all[i], inputs);
    const Tensor h = layer.norm2(x);
    const Activation activation = config_.stack.activation;
    x = x + layer.down(layer.gate.weight.defined() ? activated(layer.gate(h), activation) * layer.up(h)
                                                   : activated(layer.up(h), activation));
    if (std::find(config_.taken.begin(), config_.taken.end(), static_cast<Extent>(i)) != config_.taken.end())
      states.push_back(x);
  }
  states.push_back(x);
  return states;
}

}  // namespace weft::vision
