#include "vision/text_tower.hpp"

#include <algorithm>

#include "weft/error.hpp"
#include "weft/ops.hpp"

namespace weft::vision {
namespace {

// Configurations of CLIP that are older than their tokenizer's name say 2, and mean the largest id.
constexpr std::int64_t kOldEndToken = 2;

}  // namespace

TextTower::TextTower(const TextConfig& c, ModelWeights& weights, Extent width)
    : config_(c),
      table_(weights.dense("text_model.embeddings.token_embedding.weight", {c.vocabulary, c.stack.hidden})),
      positions_(weights.dense("text_model.embeddings.position_embedding.weight", {c.context, c.stack.hidden})),
      stack_(c.stack, weights, "text_model.encoder.layers.", kClipLayer),
      norm_(norm_of(weights, "text_model.final_layer_norm", c.stack.hidden, c.stack.norm_eps)),
      projection_(linear_of(weights, c.is_siglip ? "text_model.head" : "text_projection", width, c.stack.hidden,
                            c.is_siglip)) {}

TextTower::Padded TextTower::padded(std::span<const text::TokenId> tokens) const {
  if (tokens.empty()) throw UsageError("vision: a text has no tokens, and so no embedding; give some text");
  const auto context = static_cast<std::size_t>(config_.context);
  if (tokens.size() > context)
    throw UsageError(
        fmt::format("vision: a text has {} tokens, and the model reads {}; shorten the text", tokens.size(), context));
  Padded padded{{tokens.begin(), tokens.end()}, 0};
  for (const std::int32_t token : padded.tokens)
    if (token < 0 || token >= config_.vocabulary)
      throw UsageError(
          fmt::format("vision: token {} is outside of the vocabulary of {}; is the tokenizer of this model?", token,
                      config_.vocabulary));
  if (config_.is_siglip) {
    // Trained with texts filled up to the context, and nothing hidden: padding is part of the text.
    padded.tokens.resize(context, static_cast<std::int32_t>(config_.padding_token));
    padded.place = static_cast<std::int32_t>(context) - 1;
    return padded;
  }
  const auto end = config_.end_token == kOldEndToken
                       ? std::max_element(tokens.begin(), tokens.end())
                       : std::find(tokens.begin(), tokens.end(), static_cast<std::int32_t>(config_.end_token));
  if (end == tokens.end())
    throw UsageError(
        fmt::format("vision: a text has no end token {}, whose state is its embedding; is the tokenizer of this model?",
                    config_.end_token));
  padded.place = static_cast<std::int32_t>(end - tokens.begin());
  padded.tokens.resize(context, 0);  // behind the end, where nothing that counts looks
  return padded;
}

Tensor TextTower::embedded(const Tensor& tokens, const Tensor& place) const {
  const Tensor x = stack_.run(embedding(table_, tokens) + positions_, 0, stack_.layers(), !config_.is_siglip);
  return projection_(norm_(embedding(x, place)));
}

}  // namespace weft::vision
