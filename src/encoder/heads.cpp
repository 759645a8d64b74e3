#include "encoder/heads.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/quote.hpp"
#include "weft/error.hpp"
#include "weft/ops.hpp"

namespace weft::encoder {
namespace {

using layers::Linear;
using layers::ModelWeights;
using layers::Norm;

bool is_any(const EncoderConfig& c, std::initializer_list<std::string_view> families) {
  return std::find(families.begin(), families.end(), c.family) != families.end();
}

/// Names of a head for masks, in the order in which they are looked for; a row's `dense` must be there.
struct MaskNames {
  const char *dense, *norm, *decoder, *bias;
};
constexpr MaskNames kMaskNames[] = {
    {"cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions.decoder",
     "cls.predictions.bias"},
    {"lm_head.dense", "lm_head.layer_norm", "lm_head.decoder", "lm_head.bias"},
    {"lm_head.dense", "lm_head.norm", "lm_head.decoder", "lm_head.decoder.bias"},
    {"vocab_transform", "vocab_layer_norm", "vocab_projector", "vocab_projector.bias"},
    {"predictions.dense", "predictions.LayerNorm", "predictions.decoder", "predictions.bias"},
    {"generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head", "generator_lm_head.bias"},
    {"head.dense", "head.norm", "decoder", "decoder.bias"}};

const MaskNames* mask_names(const io::TensorSource& source) {
  for (const MaskNames& names : kMaskNames)
    if (source.find(std::string(names.dense) + ".weight") && source.find(std::string(names.norm) + ".weight"))
      return &names;
  return nullptr;
}

/// RoBERTa's head holds both of its products.
bool holds_dense(const EncoderConfig& c) {
  return is_any(c, {"roberta", "xlm-roberta", "camembert", "mpnet", "electra"});
}

/// The one class of `architectures`; "" without it.
std::string architecture_of(const Json& config) {
  const auto listed = config.find("architectures");
  const bool is_one = listed != config.end() && listed->is_array() && listed->size() == 1 && (*listed)[0].is_string();
  return is_one ? (*listed)[0].get<std::string>() : "";
}

}  // namespace

bool has_classes(const Json& config) { return architecture_of(config).ends_with("ForSequenceClassification"); }

bool is_of_head(const EncoderConfig& c, std::string_view name) {
  const std::string_view first = name.substr(0, name.find('.'));
  if (first == "classifier" || first == "pre_classifier" || first == "qa_outputs") return true;
  if (c.family == "deberta-v2") return first == "pooler";
  if (c.family == "modernbert") return first == "head";
  return c.family == "eurobert" && first == "dense";
}

Task task_of(const Json& config, const EncoderConfig& encoder, const io::TensorSource& source) {
  if (source.gguf()) {
    const io::GgufMetadata& metadata = source.gguf()->metadata();
    const std::string key = metadata.get_or<std::string>("general.architecture", "") + ".pooling_type";
    if (metadata.get_or<std::int64_t>(key, 0) != kRankPooling) return Task::embed;
    for (const char* part : {"cls.weight", "cls.output.weight"})
      if (!source.find(part))
        throw FileError(
            fmt::format("{}: {} is {} (rank), and there is no tensor {}: the head that orders documents is "
                        "not in the file; load the model's folder",
                        encoder.source, key, kRankPooling, part));
    return Task::classify;
  }
  const std::string name = architecture_of(config);
  if (has_classes(config)) return Task::classify;
  if (name.ends_with("ForTokenClassification")) return Task::label_tokens;
  if (name.ends_with("ForMaskedLM") || name.ends_with("ForPreTraining"))
    return mask_names(source) ? Task::fill_masks : Task::embed;
  if (name.ends_with("ForQuestionAnswering") && encoder.family != "t5" && encoder.family != "mt5") return Task::answer;
  for (const char* other : {"ForQuestionAnswering", "ForMultipleChoice", "ForNextSentencePrediction"})
    if (name.ends_with(other))
      throw FileError(
          fmt::format("{}: architectures is [{}], a head that Weft does not have; known are "
                      "ForSequenceClassification, ForTokenClassification, ForQuestionAnswering and ForMaskedLM",
                      encoder.source, quote(name, 80)));
  return Task::embed;
}

Tensor pooled(const Tensor& states, const Padded& texts, Pooling pooling) {
  const Extent n = texts.texts(), length = texts.length(), width = states.dim(1);
  const Tensor x = reshape(states, {n, length, width});
  if (pooling == Pooling::first) return reshape(narrow(x, 1, 0, 1), {n, width});
  const Device device = states.device();
  const Tensor places = reshape(arange(length, DType::i32, device), {1, length, 1}),
               lengths = reshape(texts.lengths, {n, 1, 1}), is_within = less(places, lengths),
               count = cast(reshape(texts.lengths, {n, 1}), DType::f32);
  switch (pooling) {
    case Pooling::last: {
      const Tensor is_last = equal(places, lengths - 1.0);
      return sum(where(is_last, x, 0.0 * x), {1});
    }
    case Pooling::max: return amax(where(is_within, x, full({1, 1, 1}, -1e30, DType::f32, device)), {1});
    case Pooling::weighted_mean: {
      const Tensor weights = where(is_within, cast(places, DType::f32) + 1.0, full({1, 1, 1}, 0.0, DType::f32, device));
      return sum(x * weights, {1}) / sum(weights, {1});
    }
    case Pooling::mean:
    case Pooling::scaled_sum: {
      const Tensor total = sum(where(is_within, x, full({1, 1, 1}, 0.0, DType::f32, device)), {1});
      return total / (pooling == Pooling::mean ? count : sqrt(count));
    }
    case Pooling::first: break;
  }
  throw InternalError("a pooling without a formula");
}

ClassHead::ClassHead(const EncoderConfig& c, const EncoderNames& names, Extent classes, ModelWeights& weights)
    : pooling_(c.class_pooling), pools_scores_(c.pools_class_scores), activation_(c.class_activation) {
  const auto square = [&](const std::string& name, bool bias = true) {
    return linear_of(weights, name, c.hidden, c.hidden, bias);
  };
  std::string out = "classifier";
  if (weights.source().gguf()) {
    dense_ = square("cls");
    out = "cls.output";
  } else if (holds_dense(c)) {
    dense_ = square("classifier.dense");
    out = "classifier.out_proj";
  } else if (c.family == "distilbert") {
    dense_ = square("pre_classifier");
  } else if (c.family == "albert") {
    dense_ = square(names("pooler"));
  } else if (c.family == "deberta-v2") {
    dense_ = square("pooler.dense");
  } else if (c.family == "modernbert") {
    dense_ = square("head.dense", weights.has("head.dense.bias"));
    norm_ = norm_of(weights, "head.norm", c.hidden, c.norm_eps, c.norm);
  } else if (c.family == "eurobert") {
    dense_ = square("dense");
  } else {
    dense_ = square(names("pooler.dense"));
  }
  out_ = linear_of(weights, out, classes, c.hidden);
}

Tensor ClassHead::operator()(const Tensor& states, const Padded& texts, const Dropouts& dropouts) const {
  Tensor x = pools_scores_ ? states : pooled(states, texts, pooling_);
  if (dropouts.has_dense) x = dropout(x, dropouts.classes);
  Tensor y = elementwise(activation_, {dense_(x)});
  if (norm_.weight.defined()) y = norm_(y);
  y = out_(dropout(y, dropouts.classes));
  return pools_scores_ ? pooled(y, texts, pooling_) : y;
}

TokenHead::TokenHead(const EncoderConfig& c, Extent classes, ModelWeights& weights)
    : TokenHead(c, "classifier", classes, weights) {}

TokenHead TokenHead::of_answers(const EncoderConfig& c, ModelWeights& weights) {
  return {c, c.family == "modernbert" ? "classifier" : "qa_outputs", 2, weights};
}

TokenHead::TokenHead(const EncoderConfig& c, const std::string& name, Extent classes, ModelWeights& weights)
    : activation_(c.class_activation), out_(linear_of(weights, name, classes, c.hidden)) {
  if (c.family != "modernbert") return;
  dense_ = linear_of(weights, "head.dense", c.hidden, c.hidden, weights.has("head.dense.bias"));
  norm_ = norm_of(weights, "head.norm", c.hidden, c.norm_eps, c.norm);
}

Tensor TokenHead::operator()(const Tensor& states, const Dropouts& dropouts) const {
  return out_(dropout(dense_.weight.defined() ? norm_(elementwise(activation_, {dense_(states)})) : states,
                      dropouts.token_classes));
}

MaskHead::MaskHead(const EncoderConfig& c, const Tensor& words, ModelWeights& weights) {
  const MaskNames* names = mask_names(weights.source());
  if (!names) throw InternalError("a task of masks without its tensors");
  // RoBERTa, MPNet and ELECTRA have GELU whatever the layers have; ModernBERT the activation of its classes.
  activation_ = holds_dense(c) ? "gelu" : c.family == "modernbert" ? c.class_activation : c.activation;
  const std::string dense = names->dense, decoder = names->decoder, bias = names->bias;
  dense_ = linear_of(weights, dense, c.embedding, c.hidden, weights.has(dense + ".bias"));
  norm_ = norm_of(weights, names->norm, c.embedding, c.norm_eps, c.norm);
  // Most files leave out the matrix, which is the table of tokens.
  decoder_.weight =
      weights.has(decoder + ".weight") ? weights.matrix(decoder + ".weight", {c.vocabulary, c.embedding}) : words;
  for (const std::string& name : {bias, decoder + ".bias"})
    if (!decoder_.bias.defined() && weights.has(name)) decoder_.bias = weights.dense(name, {c.vocabulary});
}

Tensor MaskHead::operator()(const Tensor& states) const {
  return decoder_(norm_(elementwise(activation_, {dense_(states)})));
}

}  // namespace weft::encoder
