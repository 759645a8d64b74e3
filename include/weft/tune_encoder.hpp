// Fine-tuning of text encoders: classes of texts and of words, embeddings, and cross-encoders. All weights train.
//
//   auto examples = tune::read_encoder_examples("reviews.jsonl", "bert-base-uncased");
//   tune::EncoderTuner tuner("bert-base-uncased", examples, {}, {});
//   for (std::size_t i = 0; i + 16 <= examples.all.size(); i += 16) tuner.step({std::span(examples.all).subspan(i, 16)}, 2e-5);
//   tuner.save("reviews-bert");  // for weft, transformers and sentence-transformers
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weft/tune.hpp"

namespace weft::tune {

/// A line of the data.
struct EncoderExample {
  /// A text or two; of `ranking` an anchor, its positive and its hard negatives; of `tokens` words.
  std::vector<std::string> texts;
  /// Of `single_label` one; of `multi_label` those that hold; of `tokens` one for each word, or -100 where none counts.
  std::vector<std::int32_t> classes = {};
  double value = 0;  ///< of `regression`; the score of a pair
};

struct EncoderExamples {
  Objective objective = Objective::single_label;
  std::vector<std::string> classes;  ///< by id; empty where there are none
  std::vector<EncoderExample> all;
  std::uint64_t hash = 0;  ///< of the file
};

/// Lines of JSON, by their keys:
///   "text", or "text" and "text_pair", "sentence1" and "sentence2", "query" and "document"; with "label": a name or number of a class, a
///     list of them (also as "labels"), or a number with a fraction (regression)
///   "tokens" with "labels" or "ner_tags": words, and a class of each
///   "anchor" and "positive", with "negative": none, a text or a list
///   two texts with "score": cosent, or cross_encoder if the model classifies texts
/// Classes are those of the model's head if it has all of them, else those of the data in order; of validation data give those of the
/// training data. Errors: FileError that names the line; UsageError for an objective that the lines do not fit.
EncoderExamples read_encoder_examples(const std::filesystem::path& file, const std::filesystem::path& model,
                                      std::optional<Objective> objective = {},
                                      const std::vector<std::string>& classes = {});

/// A text encoder that trains. One thread at a time.
///
/// Losses, where B examples are in a batch: those of `Objective`, means over the batch (of `tokens` over the words). With cosines c_ij of
/// anchor i and candidate j, which are the positives of all examples and then their hard negatives,
///   ranking  the mean of -log softmax_j(scale c_ij)[i] (Henderson et al. 2017, arXiv:1705.00652)
///   cosine   the mean of (c_i - score_i)^2
///   cosent   log(1 + sum over i, j with score_i < score_j of exp(scale (c_i - c_j)))
class EncoderTuner {
 public:
  using Batch = std::span<const EncoderExample>;

  /// `data` says the objective and the classes; its examples are not kept. A head that the model lacks begins with random values. `length`
  /// is the most tokens of a text, beyond which it is cut, if the model reads as many; 0: as its files say.
  /// Errors: UsageError for numbers out of range, options of adapters, preferences and experts, GGUF files, and families without such a
  /// head; FileError.
  EncoderTuner(const std::filesystem::path& model, const EncoderExamples& data, const TunerOptions& options,
               const EncoderOptions& encoder, Extent length = 0, Device device = default_device());
  ~EncoderTuner();
  EncoderTuner(EncoderTuner&&) noexcept;

  /// One update. Errors: UsageError unless there are `accumulate` batches, for one without examples, and for examples with other numbers
  /// of negatives.
  Tuner::StepResult step(std::span<const Batch> batches, double learning_rate);
  Tuner::StepResult step(std::initializer_list<Batch> batches, double learning_rate) {
    return step(std::span(batches.begin(), batches.size()), learning_rate);
  }
  /// Means over the examples, without dropout, in batches of this many. accuracy: of classes and words, of anchors whose positive is the
  /// nearest candidate of its batch, of cross-encoders by a probability of one half. f1: the mean of classes' F1, of `tokens` that of spans
  /// (B- and I- classes) or else of words, of `multi_label` that of all labels. spearman: of values, scores and cosines.
  Measured measure(Batch examples, Extent batch);

  std::int64_t tokens() const;  ///< that steps have seen
  std::int64_t parameter_count() const;
  bool has_new_head() const;
  Extent length() const;
  std::string describe() const;
  double loss_scale() const;
  std::uint64_t trained_bytes() const;
  /// Bytes of a step with this batch, as planned.
  std::uint64_t planned_bytes(Batch batch);
  std::uint64_t planned_measure_bytes(Batch batch);

  /// A folder of the model in f32, for Weft, transformers and sentence-transformers.
  void save(const std::filesystem::path& folder) const;
  nn::StateDict state_dict() const;
  /// Errors: UsageError that lists what is missing, unknown, or of another shape.
  void load_state_dict(const nn::StateDict& state);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace weft::tune
