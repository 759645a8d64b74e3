// The text encoder: attention that knows how far apart near tokens are.
#include <cmath>

#include "speech/vits.hpp"
#include "weft/error.hpp"
#include "weft/ops.hpp"
#include "weft/ops/convolution.hpp"
#include "weft/ops/layout.hpp"

namespace weft::speech::detail {
namespace {

/// Where token i finds distance r - window: column i + r - window, and 1 if there is such a token; [S, 2 window + 1] each.
struct Places {
  Tensor column, exists;
};
Places places_near(Extent tokens, Extent window, Device device) {
  const Extent width = 2 * window + 1;
  std::vector<std::int32_t> columns;
  std::vector<float> exists;
  for (Extent i = 0; i < tokens; ++i)
    for (Extent r = 0; r < width; ++r) {
      const Extent j = i + r - window;
      const bool is_inside = j >= 0 && j < tokens;
      columns.push_back(is_inside ? static_cast<std::int32_t>(j) : 0);
      exists.push_back(is_inside ? 1 : 0);
    }
  return {tensor_from_bytes(columns.data(), {tokens, width}, DType::i32, device),
          tensor_from_bytes(exists.data(), {tokens, width}, DType::f32, device)};
}

}  // namespace

// softmax(q k^T + near) v + P near_values, where token i adds q_i . near_keys[j - i + window] to the score of each token j that is at
// most `window` away, and P has the shares of those tokens.
Tensor VitsEngine::attend(const EncoderLayer& layer, const Tensor& x) const {
  const Extent tokens = x.dim(0), heads = config_.heads, depth = config_.width / heads, window = config_.window;
  const auto split = [&](const Tensor& y) { return permute(reshape(y, {tokens, heads, depth}), {1, 0, 2}); };
  const Tensor q = split(product(x, layer.q.weight, layer.q.bias)) * (1 / std::sqrt(static_cast<double>(depth)));
  const Tensor k = split(product(x, layer.k.weight, layer.k.bias)), v = split(product(x, layer.v.weight, layer.v.bias));
  Tensor scores = matmul(q, transpose(k));  // [H, S, S]
  Places near;
  if (window > 0) {
    near = places_near(tokens, window, device_);
    // A row of scores by distance becomes a row by token: the distance of column j is j - i + window.
    const Tensor by_distance =
        pad(matmul(q, transpose(layer.near_keys)), {{0, 0}, {0, 0}, {0, 1}});  // [H, S, 2w + 2], zeros last
    std::vector<std::int32_t> distances;
    for (Extent i = 0; i < tokens; ++i)
      for (Extent j = 0; j < tokens; ++j)
        distances.push_back(static_cast<std::int32_t>(std::abs(j - i) <= window ? j - i + window : 2 * window + 1));
    const Tensor index = tensor_from_bytes(distances.data(), {1, tokens, tokens}, DType::i32, device_);
    scores = scores + take_along_axis(by_distance, expand(index, {heads, tokens, tokens}), 2);
  }
  const Tensor shares = softmax(scores);
  Tensor y = matmul(shares, v);
  if (window > 0) {
    const Shape shape{heads, tokens, 2 * window + 1};
    const Tensor near_shares = take_along_axis(shares, expand(unsqueeze(near.column, 0), shape), 2) * near.exists;
    y = y + matmul(near_shares, layer.near_values);
  }
  return product(reshape(permute(y, {1, 0, 2}), {tokens, config_.width}), layer.out.weight, layer.out.bias);
}

VitsText VitsEngine::read(std::span<const std::int32_t> tokens) const {
  const auto count = static_cast<Extent>(tokens.size());
  const Tensor ids = tensor_from_bytes(tokens.data(), {count}, DType::i32, device_);
  Tensor x = embedding(table_, ids) * std::sqrt(static_cast<double>(config_.width));
  const Extent left = (config_.inner_kernel - 1) / 2, right = config_.inner_kernel / 2;
  const auto conv = [&](const Tensor& y, const Conv& c) {
    return conv1d(pad(y, {{0, 0}, {0, 0}, {left, right}}), c.weight, c.bias);
  };
  for (const EncoderLayer& layer : layers_) {
    x = layer_norm(x + attend(layer, x), layer.attention_norm.weight, layer.attention_norm.bias, config_.eps);
    const Tensor h = conv(elementwise(config_.activation, {conv(unsqueeze(transpose(x), 0), layer.up)}), layer.down);
    x = layer_norm(x + transpose(squeeze(h, 0)), layer.norm.weight, layer.norm.bias, config_.eps);
  }
  const Tensor prior = transpose(squeeze(conv1d(unsqueeze(transpose(x), 0), prior_.weight, prior_.bias), 0));
  return {x, narrow(prior, 1, 0, config_.flow), narrow(prior, 1, config_.flow, config_.flow)};
}

}  // namespace weft::speech::detail
