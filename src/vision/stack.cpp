#include "vision/stack.hpp"

#include "weft/ops.hpp"

namespace weft::vision {

const LayerNames kClipLayer = {"layer_norm1",        "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                               "self_attn.out_proj", "layer_norm2",      "mlp.fc1",          "mlp.fc2"};
const LayerNames kVitLayer = {
    "layernorm_before",       "attention.attention.query", "attention.attention.key", "attention.attention.value",
    "attention.output.dense", "layernorm_after",           "intermediate.dense",      "output.dense"};
const LayerNames kInternVitLayer = {
    "layernorm_before",           "attention.q_proj", "attention.k_proj", "attention.v_proj",
    "attention.projection_layer", "layernorm_after",  "mlp.fc1",          "mlp.fc2"};

Tensor activated(const Tensor& x, Activation activation) {
  switch (activation) {
    case Activation::gelu: return elementwise("gelu", {x});
    case Activation::gelu_tanh: return elementwise("gelu_tanh", {x});
    case Activation::quick_gelu: return x * elementwise("sigmoid", {x * 1.702});
    case Activation::silu: return elementwise("silu", {x});
  }
  return x;
}

Tensor attended(const Tensor& q, const Tensor& k, const Tensor& v, Extent heads, bool causal, Extent batch) {
  const auto split = [&](const Tensor& x) {
    return permute(reshape(x, {batch, x.dim(0) / batch, heads, x.dim(1) / heads}), {0, 2, 1, 3});
  };
  const Tensor y = attention(split(q), split(k), split(v), causal);  // [batch, heads, T, D]
  return reshape(permute(y, {0, 2, 1, 3}), q.shape());
}

Stack::Stack(const StackConfig& c, ModelWeights& weights, const std::string& prefix, const LayerNames& names)
    : heads_(c.heads) {
  for (Extent i = 0; i < c.layers; ++i) {
    const std::string layer = prefix + std::to_string(i) + ".";
    const auto square = [&](const char* name, bool bias) {
      return linear_of(weights, layer + name, c.hidden, c.hidden, bias);
    };
    const auto norm = [&](const char* name) {
      return norm_of(weights, layer + name, c.hidden, c.norm_eps, c.norms_are_rms ? NormKind::rms : NormKind::layer);
    };
    layers_.push_back({norm(names.norm1),
                       norm(names.norm2),
                       square(names.q, c.has_attention_bias),
                       square(names.k, c.has_attention_bias),
                       square(names.v, c.has_attention_bias),
                       square(names.o, true),
                       Mlp{linear_of(weights, layer + names.fc1, c.intermediate, c.hidden),
                           linear_of(weights, layer + names.fc2, c.hidden, c.intermediate), c.activation},
                       {},
                       {},
                       {},
                       {}});
    Layer& made = layers_.back();
    if (c.norms_queries) {
      constexpr double kEps = 1e-6;  // whatever layer_norm_eps is
      made.q_norm = norm_of(weights, layer + "attention.q_norm", c.hidden, kEps, NormKind::rms);
      made.k_norm = norm_of(weights, layer + "attention.k_norm", c.hidden, kEps, NormKind::rms);
    }
    if (c.scales_layers) {
      made.scale1 = weights.dense(layer + "lambda_1", {c.hidden});
      made.scale2 = weights.dense(layer + "lambda_2", {c.hidden});
    }
  }
}

Tensor Stack::run(Tensor x, Extent first, Extent last, bool causal, Extent batch) const {
  for (Extent i = first; i < last; ++i) {
    const Layer& layer = layers_[static_cast<std::size_t>(i)];
    const auto normed = [](const Norm& norm, const Tensor& y) { return norm.weight.defined() ? norm(y) : y; };
    const auto scaled = [](const Tensor& scale, const Tensor& y) { return scale.defined() ? scale * y : y; };
    const Tensor h = layer.norm1(x), q = normed(layer.q_norm, layer.q(h)), k = normed(layer.k_norm, layer.k(h));
    x = x + scaled(layer.scale1, layer.o(attended(q, k, layer.v(h), heads_, causal, batch)));
    x = x + scaled(layer.scale2, layer.mlp(layer.norm2(x)));
  }
  return x;
}

}  // namespace weft::vision
