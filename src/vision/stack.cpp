#include "vision/stack.hpp"

#include "weft/ops.hpp"

namespace weft::vision {

const LayerNames kClipLayer = {"layer_norm1",        "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                               "self_attn.out_proj", "layer_norm2",      "mlp.fc1",          "mlp.fc2"};
const LayerNames kVitLayer = {
    "layernorm_before",       "attention.attention.query", "attention.attention.key", "attention.attention.value",
    "attention.output.dense", "layernorm_after",           "intermediate.dense",      "output.dense"};

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
    const auto square = [&](const char* name) { return linear_of(weights, layer + name, c.hidden, c.hidden); };
    layers_.push_back({norm_of(weights, layer + names.norm1, c.hidden, c.norm_eps),
                       norm_of(weights, layer + names.norm2, c.hidden, c.norm_eps), square(names.q), square(names.k),
                       square(names.v), square(names.o),
                       Mlp{linear_of(weights, layer + names.fc1, c.intermediate, c.hidden),
                           linear_of(weights, layer + names.fc2, c.hidden, c.intermediate), c.activation}});
  }
}

Tensor Stack::run(Tensor x, Extent first, Extent last, bool causal, Extent batch) const {
  for (Extent i = first; i < last; ++i) {
    const Layer& layer = layers_[static_cast<std::size_t>(i)];
    const Tensor h = layer.norm1(x);
    x = x + layer.o(attended(layer.q(h), layer.k(h), layer.v(h), heads_, causal, batch));
    x = x + layer.mlp(layer.norm2(x));
  }
  return x;
}

}  // namespace weft::vision
