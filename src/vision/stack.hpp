// The layers that towers of images and of texts have in common.
#pragma once

#include <vector>

#include "vision/config.hpp"
#include "vision/weights.hpp"

namespace weft::vision {

/// The names of a layer's parts in files, behind the name of the layer.
struct LayerNames {
  const char *norm1, *q, *k, *v, *o, *norm2, *fc1, *fc2;
};
/// Of CLIP, SigLIP and Idefics3; of ViT; and of InternViT.
extern const LayerNames kClipLayer, kVitLayer, kInternVitLayer;

Tensor activated(const Tensor& x, Activation activation);

/// fc2(activation(fc1(x))).
struct Mlp {
  Linear fc1, fc2;
  Activation activation = Activation::gelu;
  Tensor operator()(const Tensor& x) const { return fc2(activated(fc1(x), activation)); }
};

/// softmax(q k^T / sqrt(D)) v over heads of queries [T, heads D], keys and values [S, heads D] -> [T, heads D]. With a `batch` of N,
/// T and S are N times as many rows, and those of each N-th part see each other alone.
Tensor attended(const Tensor& q, const Tensor& k, const Tensor& v, Extent heads, bool causal, Extent batch = 1);

/// x + o(attention(norm1(x))), then x + mlp(norm2(x)), layer after layer; both additions with a factor for each channel where the
/// configuration has them.
class Stack {
 public:
  /// `prefix`: of a layer's name, before its number ("vision_model.encoder.layers.").
  Stack(const StackConfig& config, ModelWeights& weights, const std::string& prefix, const LayerNames& names);
  /// The states [T, hidden] after the layers [first, last), of a batch as in `attended`.
  Tensor run(Tensor x, Extent first, Extent last, bool causal, Extent batch = 1) const;
  Extent layers() const { return static_cast<Extent>(layers_.size()); }

 private:
  struct Layer {
    Norm norm1, norm2;
    Linear q, k, v, o;
    Mlp mlp;
    Norm q_norm, k_norm;    // undefined: none
    Tensor scale1, scale2;  // undefined: 1
  };
  Extent heads_;
  std::vector<Layer> layers_;
};

}  // namespace weft::vision
