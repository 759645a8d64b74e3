// A transformer over the patches of an image.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "vision/stack.hpp"

namespace weft::vision {

class Tower {
 public:
  /// `prefix` of its tensors: "vision_model.". With `has_head` false, only the states of patches are wanted, and the tensors that
  /// make an image's embedding of them may be missing; without `has_last_norm`, `last_states` is not wanted either. FileError for more
  /// layers than the files have tensors.
  Tower(const TowerConfig& config, ModelWeights& weights, const std::string& prefix, bool has_head,
        bool has_last_norm = true);

  const TowerConfig& config() const { return config_; }
  /// Tokens of an image: its patches, and the class token in front, if there is one.
  Extent tokens() const;
  /// pixels f32 [N, 3, side, side] of N images, normalised -> the states [N T, hidden] after `layers` layers, without a last norm.
  Tensor states(const Tensor& pixels, Extent layers) const;
  /// The states after all layers and the last norm, if there is one, [N T, hidden]. Not for CLIP, which has none for patches.
  Tensor last_states(const Tensor& pixels) const {
    const Tensor x = states(pixels, stack_.layers());
    return last_norm_.weight.defined() ? last_norm_(x) : x;
  }
  /// The embeddings of whole images before their projection, [N, hidden].
  Tensor pooled(const Tensor& pixels) const;

 private:
  /// SigLIP's head: a learnt query looks at all tokens.
  struct QueryHead {
    Tensor probe;
    Linear q, k, v, o;
    Norm norm;
    Mlp mlp;
  };
  Tensor embedded(const Tensor& pixels) const;
  QueryHead query_head(ModelWeights& weights, const std::string& prefix) const;

  TowerConfig config_;
  Linear patches_;
  Tensor class_token_, positions_;
  Norm first_norm_, last_norm_;
  Stack stack_;
  std::optional<QueryHead> head_;
};

/// The position of each patch of a row of `count` among `known` trained ones, as Idefics3 counts: the trained position whose part of the
/// row the patch begins in.
std::vector<std::int32_t> spread_positions(Extent count, Extent known);

}  // namespace weft::vision
