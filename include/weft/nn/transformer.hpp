// Attention of several heads, and the layers of a transformer, with PyTorch's names of parameters.
#pragma once

#include <optional>

#include "weft/nn/layers.hpp"

namespace weft::nn {

struct MultiheadAttentionOptions {
  double dropout = 0;  // of the shares, in training
  bool bias = true;
};
/// softmax(q k^T / sqrt(E / heads) + mask) v of each head, where q, k and v are linear in query, key and value, and a linear layer
/// of the heads together.
///
/// Shapes    query [N, L, E]; key, value [N, S, E]; mask broadcasts against [N, heads, L, S] -> [N, L, E].
///           in_proj_weight [3 E, E], in_proj_bias [3 E], out_proj.weight [E, E], out_proj.bias [E]
/// Mask      of bools: whether the query sees the key (PyTorch's module has the opposite); of floats: added
/// Errors    ShapeError: heads that do not divide the width, shapes that do not fit
/// Gradient  to query, key, value, the parameters, and a mask of floats
/// Source    Vaswani et al. 2017, arXiv:1706.03762
class MultiheadAttention : public Module {
 public:
  MultiheadAttention(Extent width, Extent heads, MultiheadAttentionOptions options = {});
  Tensor operator()(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask = {},
                    Where where = Where::current()) const;
  /// Attention of a sequence to itself.
  Tensor operator()(const Tensor& x, const Tensor& mask = {}, Where where = Where::current()) const {
    return (*this)(x, x, x, mask, where);
  }
  std::string describe() const override;
  bool runs_hooks() const override { return false; }

 private:
  Extent width_, heads_;
  double dropout_;
  Parameter in_weight_;
  std::optional<Parameter> in_bias_;
  Child<Linear> out_;
};

enum class TransformerActivation { relu, gelu };
struct TransformerLayerOptions {
  Extent feed_forward = 2048;  // width between the two linear layers
  double dropout = 0.1;
  TransformerActivation activation = TransformerActivation::relu;
  bool norm_first = false;  // norms are before attention and linear layers, not behind the sums
  double eps = 1e-5;
  bool bias = true;
};

/// x = norm1(x + attention(x)); x = norm2(x + linear2(activation(linear1(x)))), with norm_first x = x + attention(norm1(x)) and so
/// on. Shapes: x [N, L, E] -> the same; masks as MultiheadAttention. Children: self_attn, linear1, linear2, norm1, norm2.
class TransformerEncoderLayer : public Module {
 public:
  TransformerEncoderLayer(Extent width, Extent heads, TransformerLayerOptions options = {});
  Tensor operator()(const Tensor& x, const Tensor& mask = {}, Where where = Where::current()) const;
  std::string describe() const override;
  bool runs_hooks() const override { return false; }

 private:
  TransformerLayerOptions options_;
  Child<MultiheadAttention> attention_;
  Child<Linear> linear1_, linear2_;
  Child<LayerNorm> norm1_, norm2_;
  Child<Dropout> drop_;
};

/// The same with attention to a memory [N, S, E] between the two. Children: self_attn, multihead_attn, linear1, linear2, norm1, norm2,
/// norm3.
class TransformerDecoderLayer : public Module {
 public:
  TransformerDecoderLayer(Extent width, Extent heads, TransformerLayerOptions options = {});
  Tensor operator()(const Tensor& x, const Tensor& memory, const Tensor& mask = {}, const Tensor& memory_mask = {},
                    Where where = Where::current()) const;
  std::string describe() const override;
  bool runs_hooks() const override { return false; }

 private:
  TransformerLayerOptions options_;
  Child<MultiheadAttention> attention_, memory_attention_;
  Child<Linear> linear1_, linear2_;
  Child<LayerNorm> norm1_, norm2_, norm3_;
  Child<Dropout> drop_;
};

}  // namespace weft::nn
