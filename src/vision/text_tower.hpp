// A transformer over the tokens of a text, which ends in one row.
#pragma once

#include <span>

#include "text/token.hpp"
#include "vision/stack.hpp"

namespace weft::vision {

class TextTower {
 public:
  /// `width`: of the embeddings that images and texts share.
  TextTower(const TextConfig& config, ModelWeights& weights, Extent width);

  const TextConfig& config() const { return config_; }
  /// The tokens of a text, filled up to the context, and the place whose state is the text's. UsageError for more tokens than the
  /// context, and for none.
  struct Padded {
    std::vector<std::int32_t> tokens;
    std::int32_t place = 0;
  };
  Padded padded(std::span<const text::TokenId> tokens) const;
  /// tokens i32 [context], place i32 [1] -> f32 [1, width].
  Tensor embedded(const Tensor& tokens, const Tensor& place) const;

 private:
  TextConfig config_;
  Tensor table_, positions_;
  Stack stack_;
  Norm norm_;
  Linear projection_;
};

}  // namespace weft::vision
