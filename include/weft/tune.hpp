// Fine-tuning of language models by low-rank adapters (LoRA, Hu et al. 2021; with weights in blocks QLoRA, Dettmers et al. 2023).
//
//   llm::Model model = llm::load("SmolLM2-135M-Instruct", {.context = 512});
//   tune::Examples examples = tune::read_examples("talks.jsonl", model, 512);
//   tune::Tuner tuner(model, {.rank = 16, .alpha = 32});
//   tune::RowStream rows(examples.all, 512, 1);
//   for (int step = 0; step < 100; ++step) tuner.step({rows.batch(step * 4, 4)}, 2e-4);
//   tuner.save("talks-adapter");  // llm::load("SmolLM2-135M-Instruct", {.adapters = {{"talks-adapter"}}})
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "weft/llm.hpp"
#include "weft/nn/state.hpp"
#include "weft/tensor.hpp"

namespace weft::tune {

/// A text to learn from. A token counts if the model is to learn to write it; what users say in a conversation does not.
struct Example {
  std::vector<std::int32_t> tokens;
  std::vector<bool> counts;  ///< for each token; the first one is never written
};

/// Two answers to one prompt. The model is to prefer the chosen one.
struct Preference {
  Example chosen, rejected;
};

struct Examples {
  std::vector<Example> all;
  std::vector<Preference> preferences;  ///< of a file of preferences; `all` is then empty
  std::int64_t cut = 0;                 ///< examples that were longer than the context, and lost their end
  std::uint64_t hash = 0;               ///< of the file
};

/// A file of examples. Lines of JSON (.jsonl, .json, .ndjson), each an object:
///   {"messages": [{"role": "user", "content": "..."}, ...]}   a conversation, by the model's template: what assistants say counts;
///                                                             also "tools", and "tool_calls" of messages
///   {"prompt": "...", "completion": "..."}                    the completion counts, and the token that ends texts behind it
///   {"text": "..."}                                           all of it counts, and the token that ends texts behind it
/// Or each line is a preference: {"prompt": ..., "chosen": ..., "rejected": ...}. The prompt is a text, and the answers are texts, each with
/// the token that ends texts behind it; or the prompt, which may also be called "messages", is a list of messages, and each answer a list of
/// messages, one message, or the text of the assistant's answer. Without a prompt, the text that both answers begin with is the prompt.
/// Any other file is one text, cut into examples of the context; all of it counts.
/// Errors: FileError that names file and line; UsageError for conversations and a model without a template, or a context below 2.
Examples read_examples(const std::filesystem::path& file, const llm::Model& model, Extent context);

/// Texts side by side in rows of equal length, as a step takes them. Texts of a row do not see each other.
struct Rows {
  Extent rows = 0, context = 0;
  std::vector<std::int32_t> tokens, positions, texts, targets;  ///< [rows, context]; a target of -100 does not count
  std::vector<std::int32_t> lengths;                            ///< [rows, kTextsMax]
  /// Of preferences: chosen texts are in rows 2i, and the rejected ones at the same places of rows 2i + 1.
  std::vector<std::int32_t> pairs;  ///< [rows / 2, kTextsMax]: the number of each preference, or -1
  std::vector<float>
      reference;  ///< [rows, kTextsMax]: log-probabilities of the texts by the reference model; 0 unless set
  static constexpr Extent kTextsMax = 16;  ///< in a row
  static constexpr std::int32_t kIgnored = -100;

  std::int64_t counted() const;  ///< targets that count
};

/// Rows without end: epoch after epoch, each with the examples in another order, as many in a row as fit. Row i is always the same
/// for a seed. `examples` must outlive it.
class RowStream {
 public:
  /// Errors: UsageError without examples, or for an example that is longer than the context.
  /// Errors too: `texts` in a row outside 1 to Rows::kTextsMax.
  RowStream(std::span<const Example> examples, Extent context, std::uint64_t seed, bool shuffled = true,
            Extent texts = Rows::kTextsMax);
  /// Rows of preferences: two rows have the chosen and the rejected texts of the same preferences.
  RowStream(std::span<const Preference> preferences, Extent context, std::uint64_t seed, bool shuffled = true,
            Extent texts = Rows::kTextsMax);
  /// Rows [first, first + count). Errors: UsageError for preferences and an odd number.
  Rows batch(std::int64_t first, Extent count);
  /// The number of rows of the first epochs.
  std::int64_t rows_of_epochs(std::int64_t epochs);

 private:
  void add_example(const Example& example);
  void add_epoch();
  std::vector<const Example*> examples_;  // of preferences chosen and rejected ones take turns
  Extent sides_ = 1;                      // rows beside each other: 2 of preferences
  Extent context_, texts_;
  std::uint64_t seed_;
  bool shuffled_;
  std::vector<std::vector<std::uint32_t>> rows_;  // numbers of their examples, or of the preferences of two rows
  std::vector<std::int64_t> ends_;                // of epochs, in elements of rows_
};

/// What preferences are learned by. With h = (log p(chosen) - log q(chosen)) - (log p(rejected) - log q(rejected)), where p is the model
/// that trains and q the reference:
///   sigmoid  -(1 - s) log sigmoid(beta h) - s log sigmoid(-beta h), s: label_smoothing (DPO, Rafailov et al. 2023, arXiv:2305.18290)
///   ipo      (h - 1 / (2 beta))^2, of log-probabilities divided by the number of tokens that count (IPO, Azar et al. 2023,
///            arXiv:2310.12036)
enum class PreferenceLoss : std::uint8_t { sigmoid, ipo };
struct PreferenceOptions {
  PreferenceLoss loss = PreferenceLoss::sigmoid;
  double beta = 0.1;  ///< how close the model stays to the reference
  double label_smoothing =
      0;  ///< share of preferences taken to be the wrong way round, below 0.5; of the sigmoid alone
};
/// "sigmoid" or "ipo". Errors: UsageError.
PreferenceLoss preference_loss_named(std::string_view name);

struct TunerOptions {
  Extent rank = 16;
  double alpha = 32;   ///< changes are multiplied by alpha / rank
  double dropout = 0;  ///< probability that an input of A becomes 0 while training
  /// Rows of the changed matrices get lengths m that train too: W' = m (W + B A) / |W + B A|, of which the length below has no gradient
  /// (DoRA, Liu et al. 2024, arXiv:2402.09353).
  bool dora = false;
  /// Which products of the layers get an adapter: by the last part of their name in a folder ("q_proj") or in the graph ("q"), see
  /// `llm::Model::describe(true)`. "lm_head" is that of the head, "experts" those of all experts, "experts.gate_up_proj"
  /// and "experts.down_proj" a part of these. Empty: all products of the layers but those of experts.
  std::vector<std::string> targets = {};
  /// Modules whose tensors train as a whole beside the adapter, by the ends of their names in a folder ("embed_tokens", "lm_head", "norm"):
  /// PEFT's modules_to_save. Their values and the optimiser's state are f32. A table of tokens that is the head too stays what it was in the
  /// place that is not named. Folders of adapters hold them; GGUF files have no place for them.
  std::vector<std::string> saved = {};
  /// All weights of the model train, in place of an adapter: the model of `save` is a folder of its own. Numbers are f32 while they
  /// train, whatever the model's type, with the optimiser's state beside them.
  bool full = false;
  /// An adapter to go on with; `rank`, `alpha`, `dora` and `targets` are then its own, and so are tensors
  /// that it holds as a whole, beside those of `saved`.
  std::filesystem::path from = {};
  std::uint64_t seed = 1;
  /// Of products, attention and activations; the adapter and its moments are f32. f16 scales the loss.
  DType precision = DType::f32;
  Extent accumulate = 1;  ///< batches whose mean gradient makes one update
  bool recompute = true;  ///< layers are computed again for gradients; activations then take one row of each layer
  /// The rule of updates, by its name in weft/optim/table.hpp, and its options as NAME=VALUE ("momentum=0.9").
  std::string optimizer = "adamw";
  std::vector<std::string> optimizer_options = {};
  /// Of rules that have them. Rules other than AdamW keep betas of their own unless these are changed.
  double weight_decay = 0, beta_1 = 0.9, beta_2 = 0.999;
  double clip_norm = 1;
  PreferenceOptions preference = {};  ///< for rows of preferences
  /// Of models with experts: what trains is the loss plus `balance` times E sum_e f_e P_e, where f_e is the mean number of times that a
  /// token chooses expert e and P_e the mean of the softmax of its router's logits, over all tokens and layers. It keeps the experts in
  /// use alike (Fedus et al. 2021, arXiv:2101.03961; router_aux_loss_coef in configurations of transformers). 0: without.
  double balance = 0;
};

/// What a measurement gives; what does not belong to what is learnt is unset.
struct Measured {
  double loss = 0;
  std::optional<double>
      accuracy;  ///< share that is right: of preferences, texts, words, or anchors whose positive is the nearest
  std::optional<double> margin;  ///< of preferences: mean difference of rewards
  std::optional<double> f1;      ///< of text encoders: the mean of classes, or that of spans of words, or of all labels
  std::optional<double> spearman;  ///< of scored pairs and of values: correlation of orders
};

/// A model that trains: an adapter, beside which its own weights stay as they are, in blocks too; or a copy of all its weights in f32. One
/// thread at a time.
class Tuner {
 public:
  /// Errors: UsageError for numbers out of range, targets that the model has no product for, a model that is divided over several devices,
  /// `full` with what belongs to adapters or where the CPU has no room, and `balance` for a model without experts; FileError for `from`.
  Tuner(const llm::Model& model, const TunerOptions& options);
  ~Tuner();
  Tuner(Tuner&&) noexcept;

  struct StepResult {
    Tensor loss;       ///< mean over the targets that count, before the update; of several batches their mean
    Tensor grad_norm;  ///< before clipping; not finite where a step in f16 was left out
    /// Of preferences, else undefined: the share of them whose chosen text has the larger reward beta (log p - log q), and the mean
    /// difference of the two rewards.
    Tensor accuracy, margin;
    Tensor balance;  ///< with `balance`, else undefined: E sum_e f_e P_e, which `loss` does not contain
  };
  /// One update. Errors: UsageError unless there are `accumulate` batches, of the same size; for rows of more texts
  /// than `texts_of_row`.
  StepResult step(std::span<const Rows> batches, double learning_rate);
  StepResult step(std::initializer_list<Rows> batches, double learning_rate) {
    return step(std::span(batches.begin(), batches.size()), learning_rate);
  }
  /// The mean loss over rows, without dropout.
  double loss(const Rows& rows);
  using Measured = tune::Measured;
  /// The same, with what a step tells of preferences.
  Measured measure(const Rows& rows);
  /// Of each text, the sum of the log-probabilities of its tokens that count, [rows, Rows::kTextsMax]. Before the first step these are
  /// those of the reference model.
  std::vector<float> log_probabilities(const Rows& rows);
  /// Logits of every token, f32 [rows * context, vocabulary], by the pass that training takes.
  Tensor logits(const Rows& rows);

  /// Largest number of texts in a row: 1 for models with states, else Rows::kTextsMax.
  Extent texts_of_row() const;
  /// Products that have an adapter, by their ids in the graph.
  std::vector<std::string> products() const;
  std::int64_t parameter_count() const;
  double loss_scale() const;  ///< of a run in f16, else 1
  /// Bytes of gradients, activations and scratch of a step, as planned; compiles it for such rows.
  std::uint64_t planned_bytes(Extent rows, Extent context, bool of_preferences = false);
  /// The same of a measurement.
  std::uint64_t planned_measure_bytes(Extent rows, Extent context, bool of_preferences = false);
  /// Bytes of the trained parameters, of the optimiser's state beside them, and of the sum of gradients if batches accumulate.
  std::uint64_t trained_bytes() const;

  /// Writes the adapter as a folder of PEFT, or as a GGUF file if the name ends in .gguf. With `full` writes a folder of the model, in
  /// the types that its files have (F16 for blocks); FileError for models whose GGUF files do not become folders.
  void save(const std::filesystem::path& path) const;
  /// Everything that training goes on from, bit for bit.
  nn::StateDict state_dict() const;
  /// Errors: UsageError that lists what is missing, unknown, or of another shape.
  void load_state_dict(const nn::StateDict& state);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// What a text encoder learns (weft/tune_encoder.hpp), by the losses of transformers and sentence-transformers.
enum class Objective : std::uint8_t {
  single_label,   ///< the class of a text, or of two: cross-entropy
  multi_label,    ///< classes of which several may hold: binary cross-entropy of each
  regression,     ///< a number: mean squared error
  tokens,         ///< the class of each word: cross-entropy at its first token
  ranking,        ///< anchors near their positives, and far from those of others: MultipleNegativesRankingLoss
  cosine,         ///< cosines that are scores: CosineSimilarityLoss
  cosent,         ///< cosines in the order of scores: CoSENTLoss
  cross_encoder,  ///< how well a text answers another, in [0, 1]: BinaryCrossEntropyLoss
};
/// "single-label", "multi-label", "regression", "tokens", "ranking", "cosine", "cosent", "cross-encoder". Errors: UsageError.
Objective objective_named(std::string_view name);
std::string_view name_of(Objective objective);

struct EncoderOptions {
  std::optional<Objective> objective = {};  ///< unset: as the lines of the data and the model's head say
  double scale = 20;                        ///< of cosines, in the losses `ranking` and `cosent`
  bool dropout = true;                      ///< with the probabilities of the model's config.json
};

/// How a learning rate falls behind its rise.
enum class RateSchedule : std::uint8_t { cosine, linear, constant };
/// "cosine", "linear" or "constant". Errors: UsageError.
RateSchedule rate_schedule_named(std::string_view name);

/// A run that `weft tune` makes, of a language model or of a text encoder. All weights of an encoder train, so that of `tuner` the options
/// of adapters, preferences and experts are refused.
struct Request {
  std::filesystem::path model, data, out;
  std::filesystem::path validation = {};  ///< empty: the last twentieth of `data`, if that is at least one example
  Device device = default_device();
  TunerOptions tuner = {};
  EncoderOptions encoder = {};
  Extent context = 512;    ///< tokens of a row; of a text encoder the most tokens of a text
  Extent batch = 0;        ///< rows, or examples of a text encoder; 0: 4 rows, 16 examples
  std::int64_t steps = 0;  ///< 0: by `epochs`
  double epochs = 1;
  /// Rises over `warm_up` steps, then falls to 0 as `schedule` says. Without a value 2e-4, or 2e-5 for preferences; a tenth of that
  /// if all weights train; 2e-5 of a text encoder.
  std::optional<double> learning_rate = {};
  RateSchedule schedule = RateSchedule::cosine;
  double warm_up = 10;                          ///< steps, at most a tenth of the run
  std::int64_t log_every = 10, eval_every = 0;  ///< steps; 0 of `eval_every`: a tenth of the run
  std::int64_t checkpoint_every = 100;
  std::uint64_t device_memory = 0;  ///< bytes that the run may take on the device; 0: what the CPU has free
  bool resume = false;
  bool to_gguf = false;  ///< also writes adapter.gguf
  std::string chat_template = {};
};

/// How much memory a run takes on its device, and how long it is.
struct RunNeed {
  Device device;
  Extent batch = 0, context = 0;
  std::size_t examples = 0;  ///< or preferences
  std::int64_t steps = 0, parameters = 0;
  DType precision = DType::f32;
  std::string optimizer = {};  ///< the class of the rule: "AdamW"
  std::uint64_t weights = 0;   ///< of the model, as the device holds them
  std::uint64_t trained =
      0;  ///< what trains in f32, the optimiser's state, and the sum of gradients of a run that accumulates
  /// Gradients, activations and scratch of a step, and those of a measurement of the validation loss, as planned; 0 where all weights
  /// train and there is no room for them, so that no plan was made.
  std::uint64_t step = 0, validation = 0;
  /// `Request::device_memory`, or else the free memory of the host for the CPU. A GPU does not tell; nothing then.
  std::optional<std::uint64_t> available;
  bool fits = true;                     ///< true where nothing is known
  std::optional<Extent> largest_batch;  ///< that fits, as planned; 0: none. Nothing where `available` is not known

  std::uint64_t total() const { return weights + trained + step + validation; }
  /// A table for people.
  std::string to_string() const;
};
/// What the run of a request would take. The configuration, the tokenizer and the data are read; no weight is. A step is compiled for
/// the device, so its plan is the one that would run, but nothing runs, and nothing is written.
/// Errors: as `run`, but for those of weights' values and of files that it writes.
RunNeed run_need(const Request& request);

/// What a run tells while it goes on. All are called on its thread.
struct Progress {
  std::int64_t step = 0, steps = 0;
  double loss = 0, learning_rate = 0, grad_norm = 0, tokens_per_second = 0, seconds = 0;
  std::optional<double> validation_loss = {};
  std::optional<double> accuracy = {}, margin = {};                                              ///< of preferences
  std::optional<double> validation_accuracy = {}, validation_f1 = {}, validation_spearman = {};  ///< as `Measured`
  std::optional<double> balance = {};  ///< with `TunerOptions::balance`
};
struct RunReport {
  std::int64_t steps = 0;
  std::optional<double> first_validation, last_validation, best_validation;  ///< before the first step, and later
  std::optional<double> last_accuracy, last_f1, last_spearman;               ///< as `Measured`, of the last one
  double seconds = 0;
  bool interrupted = false;
};
/// A run that is about to make its first step.
struct RunStart {
  std::string model;            ///< what it is
  std::int64_t parameters = 0;  ///< numbers that train
  std::size_t products = 0;     ///< that have an adapter
  std::string learns;           ///< "examples", "preferences", or the name of an objective
  std::size_t examples = 0;     ///< or preferences
  std::int64_t tokens = 0;      ///< of all of them
  std::int64_t steps = 0;
};
struct Observer {
  std::function<void(const RunStart& start)> begin = {};
  std::function<void(const Progress&)> step = {};
  std::function<void(std::string_view)> note = {};
};

/// Trains a model by a request. For a file of preferences the reference is the model as the run begins: its log-probabilities are
/// computed once, and kept in the checkpoint. If all weights train, out/model and out/best are folders of models; so they are of a text encoder. Else `out` gets adapter_config.json and adapter_model.safetensors (the last one), best/ (the one with the
/// lowest validation loss), metrics.jsonl, loss.svg, run.json, and checkpoint.safetensors, which `resume` goes on from with the same
/// bits. A stop ends the run after the step at hand, with a checkpoint.
/// Errors: UsageError, FileError, DeviceError; Error for a loss that is not finite.
RunReport run(const Request& request, const Observer& observer = {}, const std::stop_token& stop = {});

}  // namespace weft::tune
