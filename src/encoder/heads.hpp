// Heads of text encoders: classes of texts and of tokens, and tokens for masks.
#pragma once

#include "encoder/network.hpp"
#include "weft/encoder.hpp"

namespace weft::encoder {

/// `pooling_type` of GGUF files whose head orders documents by a query.
inline constexpr std::int64_t kRankPooling = 4;

/// Whether `architectures` of a config.json names a head of classes of texts.
bool has_classes(const Json& config);
/// Whether a tensor of this name, which has no prefix of the model in front, is a head's alone.
bool is_of_head(const EncoderConfig& config, std::string_view name);
/// What the file's tensors and its `architectures` say. FileError for a model with a head that Weft does not have.
Task task_of(const Json& config, const EncoderConfig& encoder, const io::TensorSource& source);

/// f32 [texts, hidden]: of each text's states one row.
Tensor pooled(const Tensor& states, const Padded& texts, Pooling pooling);

/// Classes of a text: out(norm(activation(dense(pooled states)))), where some families lack some of it.
class ClassHead {
 public:
  ClassHead() = default;
  ClassHead(const EncoderConfig& config, const EncoderNames& names, Extent classes, layers::ModelWeights& weights);
  /// f32 [texts, classes].
  Tensor operator()(const Tensor& states, const Padded& texts, const Dropouts& dropouts = {}) const;

 private:
  Pooling pooling_ = Pooling::first;
  bool pools_scores_ = false;
  std::string activation_;
  layers::Linear dense_, out_;
  layers::Norm norm_;
};

/// Classes of each token, f32 [rows, classes].
class TokenHead {
 public:
  TokenHead() = default;
  TokenHead(const EncoderConfig& config, Extent classes, layers::ModelWeights& weights);
  /// The scores of a token to be an answer's first and last one.
  static TokenHead of_answers(const EncoderConfig& config, layers::ModelWeights& weights);
  Tensor operator()(const Tensor& states, const Dropouts& dropouts = {}) const;

 private:
  TokenHead(const EncoderConfig& config, const std::string& name, Extent classes, layers::ModelWeights& weights);
  std::string activation_;
  layers::Linear dense_, out_;  // ModernBERT has a product before that of the classes
  layers::Norm norm_;
};

/// Scores of the vocabulary for some states, f32 [rows, vocabulary].
class MaskHead {
 public:
  MaskHead() = default;
  MaskHead(const EncoderConfig& config, const Tensor& words, layers::ModelWeights& weights);
  Tensor operator()(const Tensor& states) const;

 private:
  std::string activation_;
  layers::Linear dense_, decoder_;
  layers::Norm norm_;
};

}  // namespace weft::encoder
