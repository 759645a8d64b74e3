// Text encoders: models that see a text in both directions, such as BERT. They embed texts (sentence-transformers), order
// documents by a question (cross-encoders), name the class of a text or of its tokens, fill masks, and find answers in texts.
//
//   auto model = encoder::load("bge-small-en-v1.5");
//   Tensor rows = model.embed({"The whale was white.", "Der Wal war weiß."});  // f32 [2, 384]
//   auto reranker = encoder::load("bge-reranker-base");
//   for (const encoder::Ranked& r : reranker.rerank("What is a panda?", documents, 3)) fmt::print("{}\n", documents[r.index]);
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/device.hpp"
#include "weft/tensor.hpp"

namespace weft::encoder {

namespace detail {
struct ModelState;
}

/// What the head of a model is for. Every model embeds texts too.
enum class Task : std::uint8_t { embed, classify, label_tokens, fill_masks, answer };
std::string_view name_of(Task task);

struct LoadOptions {
  Device device = default_device();
  Extent length = 0;  ///< most tokens of a text; 0: as the model's files say
  /// f16 or bf16: products and attention take values of this type, on tensor cores where the device has them, and sum in f32; weights
  /// of products are kept in it. Norms, sums and what comes out stay f32.
  DType precision = DType::f32;
};

/// What to do with a text that has more tokens than the model reads.
enum class TooLong : std::uint8_t { error, cut };

struct EmbedOptions {
  /// The name of one of the model's prompts ("query", "document"), which is put before each text. Unset: the model's default.
  std::optional<std::string> prompt = {};
  bool normalize = true;  ///< to length 1, so that products of rows are cosines
  Extent width = 0;       ///< only so many first columns, of models that were trained for it (Matryoshka); 0: all
  TooLong too_long = TooLong::error;
};

/// A class of a text.
struct Label {
  Extent index = 0;
  std::string name;
  double probability = 0;
};
/// A document's place in an order.
struct Ranked {
  std::size_t index = 0;   ///< among the documents
  double score = 0;        ///< the logit
  double probability = 0;  ///< its sigmoid; of models with several classes, the share of the last one
};
/// A token with its most probable class.
struct TokenLabel {
  std::int32_t token = 0;
  std::string text;  ///< of the token in the middle of a text: " Paris"
  Label label;
};
/// Neighbouring tokens with one class, "B-" and "I-" before its name left out.
struct Entity {
  std::string name, text;
  double probability = 0;                   ///< the mean of the tokens'
  std::size_t first_token = 0, tokens = 0;  ///< of those that `label_tokens` gives
};
/// A token for a mask.
struct Fill {
  std::int32_t token = 0;
  std::string text;
  double probability = 0;
};

struct AnswerOptions {
  std::size_t count = 1;     ///< the best ones
  Extent longest = 15;       ///< most tokens of an answer
  Extent window = 384;       ///< most tokens of a question with a part of the text, if the model reads as many
  Extent stride = 128;       ///< tokens of the text that neighbouring windows share
  bool may_be_none = false;  ///< that the text does not answer the question is an answer too, an empty one
};
/// A part of a text that answers a question.
struct Answer {
  std::string text;
  std::size_t begin = 0, end = 0;  ///< its place, in bytes
  double probability = 0;
};

/// A text encoder on its device. A cheap handle; one thread at a time.
class Model {
 public:
  /// A row for each text: the states of its tokens, pooled and multiplied as the folder's modules.json says; without that file,
  /// their mean. Texts share passes. Special tokens written out in a text are plain text.
  /// Shapes: f32 [texts, width] on the CPU. Errors: UsageError for no texts, a prompt that the model does not have, a width
  /// that is larger than the model's, and a text with more tokens than `length()`.
  Tensor embed(std::span<const std::string> texts, const EmbedOptions& options = {}) const;
  Tensor embed(std::initializer_list<std::string> texts, const EmbedOptions& options = {}) const {
    return embed(std::span<const std::string>(texts.begin(), texts.size()), options);
  }
  /// The states behind the last layer, f32 [tokens, hidden] on the CPU. Errors as `embed`.
  Tensor states(std::string_view text) const;

  /// Scores of classes, f32 [texts, classes] on the CPU; of texts, or of pairs of them. Errors: UsageError for a model without a
  /// head of classes, for lists of different lengths, and for a text that is too long.
  Tensor logits(std::span<const std::string> texts, TooLong too_long = TooLong::error) const;
  Tensor logits(std::span<const std::string> texts, std::span<const std::string> pairs,
                TooLong too_long = TooLong::error) const;
  /// The most probable classes of a text, in order; with a `pair`, of both. Probabilities are a softmax, or of models where
  /// several classes may hold (problem_type multi_label_classification, or one class) sigmoids.
  std::vector<Label> classify(std::string_view text, std::size_t count = 5, std::string_view pair = {},
                              TooLong too_long = TooLong::error) const;
  /// Documents by how well they answer the query, the best first; of a cross-encoder with a head of one class, or of several
  /// whose last is "relevant". 0: all. A document that is too long is cut.
  std::vector<Ranked> rerank(std::string_view query, std::span<const std::string> documents,
                             std::size_t count = 0) const;

  /// The tokens of a text, special ones left out, with their classes. Errors: UsageError for a model without such a head.
  std::vector<TokenLabel> label_tokens(std::string_view text) const;
  /// Those tokens joined where they name one thing: a class "B-PER" begins one, "I-PER" goes on; "O" is none. Classes without
  /// B- and I- are joined where neighbours are equal.
  std::vector<Entity> entities(std::string_view text) const;
  /// The same of labels that are there already.
  std::vector<Entity> entities(std::span<const TokenLabel> labels) const;

  /// For each mask token in a text ("[MASK]", see `mask()`) the most probable tokens, in order. Errors: UsageError for a model
  /// without such a head, and a text without a mask.
  std::vector<std::vector<Fill>> fill_masks(std::string_view text, std::size_t count = 5) const;
  /// The parts of a text that most probably answer a question, in order, each once. A text that is too long is read in windows. With s and e
  /// the softmax of the scores of first and last tokens over a window's part of the text and the first token of all, an answer from
  /// token i to j has s_i e_j; that there is none has the smallest s_0 e_0 of all windows. Answers are widened to whole words.
  /// Errors: UsageError for a model without such a head, an empty text, a question that leaves no room for the text, and a stride that
  /// is as long as the room.
  std::vector<Answer> answer(std::string_view question, std::string_view text, const AnswerOptions& options = {}) const;

  const std::string& mask() const;  ///< how a mask is written; empty: the tokenizer has none

  Task task() const;
  Extent width() const;   ///< of embeddings
  Extent length() const;  ///< most tokens of a text
  const std::vector<std::string>& classes() const;
  /// The model's prompts by name.
  const std::map<std::string, std::string>& prompts() const;
  /// The tokens of a text, with those that the model expects around it.
  std::vector<std::int32_t> encode(std::string_view text) const;
  /// Family, sizes, head, bytes on the device.
  std::string describe() const;

 private:
  friend Model load(const std::filesystem::path&, const LoadOptions&);
  explicit Model(std::shared_ptr<detail::ModelState> state) : state_(std::move(state)) {}
  std::shared_ptr<detail::ModelState> state_;
};

/// A Hugging Face or sentence-transformers folder with config.json, tokenizer.json and safetensors, or a GGUF file.
/// Families: BERT, RoBERTa, XLM-RoBERTa, CamemBERT, ELECTRA, ALBERT, DistilBERT, MPNet, the encoders of T5 and mT5, DeBERTa v2 and v3,
/// Nomic BERT, GTE, ModernBERT, EuroBERT, EmbeddingGemma. Errors: FileError that names file, place and cure; UsageError for a length
/// or precision that cannot be.
Model load(const std::filesystem::path& path, const LoadOptions& options = {});

/// Whether a path is that of a text encoder, by its config.json or metadata; false for what cannot be read.
bool is_encoder(const std::filesystem::path& path);
/// Whether the config.json of a folder names a head of classes of texts, which cross-encoders have too.
bool classifies_texts(const std::filesystem::path& folder);

}  // namespace weft::encoder
