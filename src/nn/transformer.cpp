#include "weft/nn/transformer.hpp"

#include <fmt/format.h>

#include "weft/ops.hpp"
#include "weft/ops/networks.hpp"

namespace weft::nn {
namespace {

Extent divided(Extent width, Extent heads) {
  if (width < 1 || heads < 1 || width % heads != 0)
    throw ShapeError(fmt::format("MultiheadAttention: {} heads do not divide a width of {}", heads, width));
  return width;
}

Tensor activated(const Tensor& x, TransformerActivation activation) {
  return activation == TransformerActivation::relu ? relu(x) : gelu(x);
}

// A part of a layer with its residual and norm.
template <class Part>
Tensor added(const Tensor& x, const LayerNorm& norm, bool norm_first, const Part& part) {
  return norm_first ? x + part(norm(x)) : norm(x + part(x));
}

}  // namespace

MultiheadAttention::MultiheadAttention(Extent width, Extent heads, MultiheadAttentionOptions options)
    : width_(divided(width, heads)),
      heads_(heads),
      dropout_(options.dropout),
      in_weight_(parameter("in_proj_weight", {3 * width, width}, Init::xavier_uniform(width, 3 * width))),
      out_(this, "out_proj", width, width, LinearOptions{.bias = options.bias, .bias_init = Init::zeros()}) {
  if (!(dropout_ >= 0 && dropout_ < 1))
    throw UsageError(fmt::format("MultiheadAttention: dropout {} must be in [0, 1)", dropout_));
  if (options.bias) in_bias_ = parameter("in_proj_bias", {3 * width}, Init::zeros());
}

Tensor MultiheadAttention::operator()(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask,
                                      Where where) const {
  const Tensor inputs[] = {query, key, value};
  Tensor parts[3];
  const Tensor weight = in_weight_, bias = in_bias_ ? Tensor(*in_bias_) : Tensor();
  for (int i = 0; i < 3; ++i) {
    const Tensor& x = inputs[i];
    if (x.rank() != 3 || x.dim(2) != width_)
      throw ShapeError(fmt::format("MultiheadAttention: made for query, key and value [N, length, {}], given {}",
                                   width_, x.shape().to_string()));
    const Tensor own = narrow(weight, 0, i * width_, width_);
    const Tensor y = linear(x, own, bias.defined() ? narrow(bias, 0, i * width_, width_) : Tensor(), where);
    parts[i] = transpose(reshape(y, {x.dim(0), x.dim(1), heads_, width_ / heads_}), 1, 2);
  }
  const Tensor y = scaled_dot_product_attention(parts[0], parts[1], parts[2], mask,
                                                {.dropout = is_training() ? dropout_ : 0}, where);
  return out_(reshape(transpose(y, 1, 2), {query.dim(0), query.dim(1), width_}), where);
}

std::string MultiheadAttention::describe() const {
  return fmt::format("MultiheadAttention {}, {} heads", width_, heads_);
}

TransformerEncoderLayer::TransformerEncoderLayer(Extent width, Extent heads, TransformerLayerOptions options)
    : options_(options),
      attention_(this, "self_attn", width, heads, MultiheadAttentionOptions{options.dropout, options.bias}),
      linear1_(this, "linear1", width, options.feed_forward, LinearOptions{.bias = options.bias}),
      linear2_(this, "linear2", options.feed_forward, width, LinearOptions{.bias = options.bias}),
      norm1_(this, "norm1", width, options.bias, options.eps),
      norm2_(this, "norm2", width, options.bias, options.eps),
      drop_(this, "drop", options.dropout) {}

Tensor TransformerEncoderLayer::operator()(const Tensor& given, const Tensor& mask, Where where) const {
  const bool first = options_.norm_first;
  const Tensor x = added(given, norm1_, first, [&](const Tensor& y) { return drop_(attention_(y, mask, where)); });
  return added(x, norm2_, first, [&](const Tensor& y) {
    return drop_(linear2_(drop_(activated(linear1_(y, where), options_.activation)), where));
  });
}

std::string TransformerEncoderLayer::describe() const {
  return fmt::format("TransformerEncoderLayer, {} between", options_.feed_forward);
}

TransformerDecoderLayer::TransformerDecoderLayer(Extent width, Extent heads, TransformerLayerOptions options)
    : options_(options),
      attention_(this, "self_attn", width, heads, MultiheadAttentionOptions{options.dropout, options.bias}),
      memory_attention_(this, "multihead_attn", width, heads, MultiheadAttentionOptions{options.dropout, options.bias}),
      linear1_(this, "linear1", width, options.feed_forward, LinearOptions{.bias = options.bias}),
      linear2_(this, "linear2", options.feed_forward, width, LinearOptions{.bias = options.bias}),
      norm1_(this, "norm1", width, options.bias, options.eps),
      norm2_(this, "norm2", width, options.bias, options.eps),
      norm3_(this, "norm3", width, options.bias, options.eps),
      drop_(this, "drop", options.dropout) {}

Tensor TransformerDecoderLayer::operator()(const Tensor& given, const Tensor& memory, const Tensor& mask,
                                           const Tensor& memory_mask, Where where) const {
  const bool first = options_.norm_first;
  Tensor x = added(given, norm1_, first, [&](const Tensor& y) { return drop_(attention_(y, mask, where)); });
  x = added(x, norm2_, first,
            [&](const Tensor& y) { return drop_(memory_attention_(y, memory, memory, memory_mask, where)); });
  return added(x, norm3_, first, [&](const Tensor& y) {
    return drop_(linear2_(drop_(activated(linear1_(y, where), options_.activation)), where));
  });
}

std::string TransformerDecoderLayer::describe() const {
  return fmt::format("TransformerDecoderLayer, {} between", options_.feed_forward);
}

}  // namespace weft::nn
