// Language models: loaded from GGUF files and Hugging Face folders, to generate text.
//
//   auto model = llm::load("SmolLM2-135M-Instruct.Q4_1.gguf");
//   for (std::string_view piece : model.chat({{"user", "Why is the sky blue?"}}, {.max_tokens = 200}))
//     fmt::print("{}", piece);
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "weft/device.hpp"
#include "weft/grammar.hpp"
#include "weft/inference.hpp"
#include "weft/tensor.hpp"
#include "weft/tokenizer.hpp"

namespace weft::jinja {
struct Rendered;
}

namespace weft::llm {

/// Facts that cannot be derived from the tensors of a model without a config.json. 0 and "": not given.
struct ModelHints {
  std::string architecture = {};  ///< a model_type of transformers, if names of tensors do not show it
  Extent heads = 0;               ///< of queries
  Extent experts_per_token = 0;   ///< of a mixture
  Extent groups = 0;              ///< of Mamba-2
  double rope_base = 0;           ///< the family's by default
  Extent context = 0;             ///< positions that the model was trained with; 2048 by default
};

/// The part of a model on one device: the layers [first_layer, first_layer + layers), with their weights and caches. The first part
/// also has the table of tokens, the last one the head.
struct ModelPart {
  Device device;
  Extent first_layer = 0, layers = 0;
  std::uint64_t weight_bytes = 0, cache_bytes = 0;
};

/// Report of a load.
struct ModelLoad {
  double seconds = 0;
  bool was_packed = false;  ///< the weights were mapped from the packed file of an earlier load
  Device device;            ///< the first, of several
  std::uint64_t weight_bytes = 0, cache_bytes = 0;
  std::vector<ModelPart> parts = {};  ///< one for each device
};

/// A low-rank adapter (LoRA) of a model's matrices: a folder of PEFT with adapter_config.json and adapter_model.safetensors, or a
/// GGUF file of llama.cpp. Both kinds of adapters work with models in both kinds of files.
struct AdapterUse {
  std::filesystem::path path;
  double scale = 1;  ///< factor of the adapter
};

struct LoadOptions {
  /// Positions kept of each sequence. 0: as many as the model was trained for, or as many as fit into half of the free memory
  /// (2 GiB on a GPU, which does not report its memory; what the weights leave of `device_memory`, if that is set).
  Extent context = 0;
  int sequences = 1;  ///< sequences in the cache: the number of prompts that run in parallel
  CacheType cache = CacheType::f32;
  /// Layers with a window keep all positions too, not only those inside the window. This takes more memory, but a text that
  /// differs from the last one far before its end is not read again.
  bool whole_cache = false;
  /// Products of weights in blocks use f32 activations, not activations rounded to eight bits: slower, but more exact.
  bool exact = false;
  /// On the CPU: packed weights of 16 MB or more are kept in the cache folder (WEFT_CACHE_DIR), and mapped from there the next
  /// time. The files take at most a tenth of the disk, and may be removed at any time.
  bool keep_packed = true;
  /// For models with states (Mamba): bytes for copies of states at earlier tokens. A prompt that differs from the last one continues
  /// from such a copy. 0: no copies; such a prompt is read from its start.
  std::uint64_t state_memory = std::uint64_t{256} << 20;
  /// Bytes that weights and cache may take together; 0: no such limit. UsageError if they do not suffice. With several devices
  /// the limit holds for each GPU. A CPU beside GPUs has no limit, and takes the layers for which the GPUs have no room.
  std::uint64_t device_memory = 0;
  std::string chat_template = {};  ///< its text, in place of the model's own
  /// For a GGUF file: the file with the vision tower and projector of the model (an mmproj file). Empty: a file beside the model
  /// whose name contains "mmproj", if it belongs to the model; a note of `describe` names it. "none": no such file. FileError for a
  /// file of another model.
  std::filesystem::path mmproj = {};
  /// Adapters are computed beside the model's products; the matrices do not change and may be in blocks. Whole tensors and tables of
  /// tokens in an adapter replace those of the model. FileError for an adapter of another model, and for kinds of adapters that Weft
  /// does not read.
  std::vector<AdapterUse> adapters = {};
  /// Adds the adapters to the matrices while they are read, so that a token takes as long as without an adapter. Matrices in blocks
  /// become F16, which takes more memory; the others keep their types.
  bool merge_adapters = false;
  Device device = default_device();
  /// The layers are divided over these devices, in this order. Each keeps weights and caches of its layers; activations go
  /// from one to the next through the host, 4 bytes per element. Empty: the whole model is on `device`.
  std::vector<Device> devices = {};
  /// The shares of the devices in the bytes of weights and caches: {3, 1} gives the first device three quarters. Empty: equal
  /// shares, but see `device_memory`.
  std::vector<double> split = {};
  /// In place of shares: the number of layers of each device. The last number may be left out; that device takes the rest.
  std::vector<Extent> layers = {};
  std::function<void(std::uint64_t done, std::uint64_t total)> progress = {};  ///< bytes of weights
  /// For a safetensors file, or a folder without config.json.
  ModelHints hints = {};
  std::function<void(const ModelLoad&)> on_load = {};  ///< called when the model is loaded
};

/// How the next token is drawn; SampleSetting (weft/inference.hpp) explains each number.
struct Sampling {
  double temperature = 0.8;  ///< 0: always the most probable token
  Extent top_k = 40;
  double top_p = 0.95;
  double min_p = 0.05;
  double typical = 1;
  double repetition_penalty = 1, frequency_penalty = 0, presence_penalty = 0;
  Extent penalty_window = 64;  ///< number of last tokens that penalties consider, at most 256
  std::vector<std::pair<std::int32_t, double>> logit_bias = {};
  std::optional<std::uint64_t> seed = {};  ///< unset: another seed for every call
};

struct GenerateOptions {
  Extent max_tokens = 256;
  Sampling sampling = {};
  std::vector<std::string> stop = {};  ///< texts that end the generation; they are not part of the result
  bool log_probabilities = false;
  /// Lists with each token this many of the most probable tokens (0 to 20), with their log-probabilities and that of the token.
  Extent top_log_probabilities = 0;
  bool keep_special = false;  ///< special tokens are part of the text, except those that end it
  bool parse_special = true;  ///< whether the text of a special token in a prompt becomes that token
  /// What the text must fit: only tokens that fit are drawn, whatever the sampling settings are, and the text ends when it is
  /// complete, or at `max_tokens`. Guesses that do not fit are dropped.
  std::optional<Grammar> grammar = {};
  /// The grammar applies to what comes after this text; anything may come before it. Empty: the grammar applies to the whole text.
  /// A chat whose template opens reasoning sets "</think>" itself.
  std::string grammar_after = {};
  bool grammar_is_optional = false;  ///< the text may end without `grammar_after`
  Extent draft = 0;             ///< tokens guessed from the text so far and checked together; the result stays the same
  std::stop_token cancel = {};  ///< checked before every token
};

/// A text, or an image, in a message.
struct ContentPart {
  ContentPart(std::string text) : text(std::move(text)) {}
  ContentPart(const char* text) : text(text) {}
  ContentPart(Tensor image) : image(std::move(image)) {}
  std::string text;
  /// u8 [height, width, 3], as image::read gives it; or pixels that are ready for the model, f32 [3, side, side], normalised.
  /// Undefined: the part is a text.
  Tensor image;
};

/// A message of a conversation. Its contents are text for the template, and never become special tokens.
struct Message {
  std::string role, content;
  std::string reasoning = {};  ///< reasoning before the content, as `reasoning_content`; empty: none
  /// Calls that the assistant made: a JSON list such as [{"type": "function", "function": {"name": ..., "arguments": {...}}}].
  std::string tool_calls = {};
  std::string name = {}, tool_call_id = {};  ///< of a tool's answer
  std::vector<ContentPart> parts =
      {};  ///< texts and images in their order, in place of `content`; empty: there are none
};

/// What a template sees in addition to the messages.
struct ChatOptions {
  std::string tools = {};      ///< a JSON list of schemas; empty: none
  std::string documents = {};  ///< a JSON list of documents to answer from; empty: none
  std::string variables = {};  ///< a JSON object of further variables, such as {"enable_thinking": false}; empty: none
  std::string template_name = {};     ///< of a model with several
  bool add_generation_prompt = true;  ///< end the text where the model's answer begins
};

struct TokenProbability {
  std::int32_t id = 0;
  float log_probability = 0;  ///< under the model's own distribution: before bias, penalties, temperature and filters
};

struct GeneratedToken {
  std::int32_t id = 0;
  float log_probability = 0;          ///< as in TokenProbability; only if requested
  std::vector<TokenProbability> top;  ///< the most probable tokens in its place, in order; only if requested
};

enum class Finish { end_of_text, stop_text, length, cancelled };
std::string_view name_of(Finish finish);

struct Result {
  std::string text;
  std::vector<GeneratedToken> tokens;
  Finish finish = Finish::length;
  std::string stop_text = {};  ///< the one that ended it
  Extent prompt_tokens = 0;
  Extent reused_tokens = 0;  ///< tokens of the prompt that were in the cache
  Extent drafted_tokens = 0, accepted_tokens = 0;
  double prompt_seconds = 0, seconds = 0;  ///< time for the prompt, and for the tokens after it
};

class Model;
namespace detail {
class Engine;
class Run;
struct BatchState;
struct ImageRows;
std::shared_ptr<Engine> engine_of(const Model& model);
/// A model whose weights have no values: it reads texts, and what it would compute can be planned. Errors: as `fit`.
Model planned_model(const std::filesystem::path& path, const LoadOptions& options);
}  // namespace detail

/// What a model continues: tokens, and rows of images between them. Copies share the images.
class Prompt {
 public:
  Prompt() = default;
  explicit Prompt(std::vector<std::int32_t> tokens) : tokens_(std::move(tokens)) {}
  /// Each row of an image has an id below -1. Equal images have equal ids, and other images have other ids. So the beginning that a
  /// prompt shares with the last one is not computed again, images included.
  const std::vector<std::int32_t>& tokens() const { return tokens_; }
  std::size_t size() const { return tokens_.size(); }
  bool empty() const { return tokens_.empty(); }
  std::size_t image_count() const { return images_.size(); }
  /// Adds tokens at the end.
  void append(std::span<const std::int32_t> tokens) { tokens_.insert(tokens_.end(), tokens.begin(), tokens.end()); }

 private:
  friend class Model;
  std::vector<std::int32_t> tokens_;
  std::vector<std::shared_ptr<detail::ImageRows>> images_;
};

/// Text while it is generated. Each step of the iterator runs the model until a piece of text is certain: pieces are whole
/// UTF-8 characters, never part of a stop text.
/// A model runs one generation at a time, until its end or its destruction.
class Generation {
 public:
  class iterator {
   public:
    using value_type = std::string_view;
    using difference_type = std::ptrdiff_t;
    std::string_view operator*() const { return owner_->piece_; }
    iterator& operator++();
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return owner_->done_; }

   private:
    friend class Generation;
    explicit iterator(Generation* owner) : owner_(owner) {}
    Generation* owner_;
  };
  iterator begin();
  std::default_sentinel_t end() const { return {}; }

  /// Runs the generation to its end.
  const Result& result();

  Generation(Generation&&) noexcept;
  ~Generation();

 private:
  friend class Model;
  explicit Generation(std::unique_ptr<detail::Run> run);
  void advance();
  std::unique_ptr<detail::Run> run_;
  std::string piece_;
  bool started_ = false, done_ = false;
};

struct PerplexityOptions {
  Extent window = 0;       ///< tokens; 0: 512, or the context if that is smaller
  Extent windows_max = 0;  ///< 0: the whole text
};
struct Perplexity {
  double value = 0;      ///< exp of the mean negative log-probability
  double error = 0;      ///< its standard error
  double mean_loss = 0;  ///< in nats
  Extent tokens = 0;     ///< number of predicted tokens
};

/// How the states of a text's tokens become one row: their mean, or the state of the last token, which depends on all others.
enum class Pooling { mean, last };
struct EmbedOptions {
  Pooling pooling = Pooling::mean;
  bool normalize = true;    ///< to length 1, so that products of rows are cosines
  bool add_special = true;  ///< the tokens that the tokenizer puts around a text
};

/// The seed of prompt `index` in a batch; the first one's is `seed` itself.
std::uint64_t batch_seed(std::uint64_t seed, std::size_t index);

/// A model on its device, with the cache of its sequences. A cheap handle; one thread at a time.
class Model {
 public:
  /// The reply to a conversation, written with the model's own template. Messages are plain text, never special tokens. The
  /// part of the conversation that is in the cache is not computed again. Errors: UsageError if the model has no template, or
  /// the conversation with its reply does not fit the context.
  Generation chat(const std::vector<Message>& messages, const GenerateOptions& options = {},
                  const ChatOptions& chat = {}) const;
  /// What an image shows: the reply to one message with the image and the text. Image and errors as in ContentPart and `chat`.
  Generation describe_image(const Tensor& image, std::string_view text, const GenerateOptions& options = {},
                            const ChatOptions& chat = {}) const;
  /// Continues a prompt, perhaps one with images.
  Generation generate(const Prompt& prompt, const GenerateOptions& options = {}) const;
  /// Continues a text. Special tokens written out in the text count as special tokens, unless `parse_special` is false.
  Generation generate(std::string_view prompt, const GenerateOptions& options = {}) const;
  Generation generate(std::span<const std::int32_t> prompt, const GenerateOptions& options = {}) const;
  /// Runs several prompts, `LoadOptions::sequences` of them in parallel; returns a result for each prompt. Prompt i draws with
  /// `batch_seed(seed, i)`: equal prompts get different texts, each the text that the prompt gets alone with that seed.
  std::vector<Result> generate_batch(std::span<const std::string> prompts, const GenerateOptions& options = {}) const;

  /// Errors: the UsageError that a generation with these options would throw for a number out of range.
  void check(const GenerateOptions& options) const;
  /// Logits after each of the tokens, [tokens, vocabulary]; rows of images count as tokens.
  std::vector<float> forward(std::span<const std::int32_t> tokens) const;
  std::vector<float> forward(const Prompt& prompt) const { return forward(std::span(prompt.tokens())); }
  /// A row for each text: the model's states after the final norm, before the head, pooled. `LoadOptions::sequences` texts share
  /// passes. Shapes: f32 [texts, width] on the CPU. Errors: UsageError for a text without tokens, or with more than the context.
  Tensor embed(std::span<const std::string> texts, const EmbedOptions& options = {}) const;
  /// The perplexity of a text, cut into windows; each token of the second half of a window is predicted from all tokens before
  /// it in the window. Errors: UsageError for a text shorter than a window.
  Perplexity perplexity(std::string_view text, const PerplexityOptions& options = {},
                        const std::function<void(const Perplexity&)>& progress = {}) const;

  std::vector<std::int32_t> encode(std::string_view text, bool add_special = true) const;
  /// Ids without a piece add nothing.
  std::string decode(std::span<const std::int32_t> tokens) const;
  /// The bytes that a token adds in the middle of a text (" the"); they may be part of a character.
  std::string token_bytes(std::int32_t token) const;
  /// The tokenizer, which may outlive the model.
  Tokenizer tokenizer() const;
  /// Tokens that end a generation.
  const std::vector<std::int32_t>& end_tokens() const;
  /// The text of a conversation, written with the model's template, and its tokens: the prompt of `chat`.
  /// Errors: UsageError if the model has no template, for invalid JSON, and for input that the template refuses.
  std::string render(const std::vector<Message>& messages, const ChatOptions& chat = {}) const;
  std::vector<std::int32_t> chat_tokens(const std::vector<Message>& messages, const ChatOptions& chat = {}) const;
  /// The prompt of `chat`, with the images of the messages. Images are resized here; the vision tower runs when the prompt is
  /// first run. Any thread may call this function. Errors: UsageError as `render`, for images of a wrong shape, for images that the
  /// template does not place, and for a model that reads no images.
  Prompt chat_prompt(const std::vector<Message>& messages, const ChatOptions& chat = {}) const;
  /// A text with images, where the text has the model's image marker (often "<image>"). Special tokens written out in the text
  /// count as special tokens. Errors: UsageError unless there is one marker for each image.
  Prompt prompt(std::string_view text, std::span<const Tensor> images) const;

  Extent vocabulary() const;
  Extent width() const;                  ///< elements of the state of a token
  Extent context() const;                ///< positions kept of each sequence
  Extent trained_context() const;        ///< positions that the model was trained for
  Device device() const;                 ///< of several, the first
  std::vector<ModelPart> parts() const;  ///< what each device has; one part for a model on one device
  bool has_template() const;
  bool reads_images() const;
  /// Notes for users on how the files were read, a sentence each: the mmproj file that was found, and parts that were not loaded.
  const std::vector<std::string>& notes() const;
  /// Architecture, sizes, bytes on the device; with `graph` the model's graph.
  std::string describe(bool graph = false) const;

 private:
  friend class Batch;
  friend std::shared_ptr<detail::Engine> detail::engine_of(const Model& model);
  friend Model detail::planned_model(const std::filesystem::path& path, const LoadOptions& options);
  friend Model load(const std::filesystem::path& path, const LoadOptions& options);
  explicit Model(std::shared_ptr<detail::Engine> engine) : engine_(std::move(engine)) {}
  Prompt prompt_of(const jinja::Rendered& chat, const std::vector<Message>& messages) const;
  std::shared_ptr<detail::Engine> engine_;
};

/// Generations that run side by side; each may begin and end at any time. A step gives each of them a token, by one pass over all.
/// Other prompts in the batch change neither the draws of a text nor, on the CPU, its bits.
///
///   Batch batch(model);
///   const auto id = batch.add(model.encode("The sea is"), {.max_tokens = 20});
///   while (!batch.empty())
///     for (const Batch::Progress& p : batch.step())
///       if (p.has_ended) std::puts(batch.result(p.id).text.c_str()), batch.remove(p.id);
///
/// One thread at a time. While a Batch exists, its model runs no other generation.
class Batch {
 public:
  using Id = std::uint64_t;
  struct Progress {
    Id id;
    std::string piece;  ///< text that became certain: whole UTF-8 characters, never part of a stop text; may be empty
    bool has_ended = false;
    std::string error = {};  ///< why the generation failed; empty: it did not. The others continue
  };

  /// Errors: UsageError if another generation of the model is running.
  explicit Batch(const Model& model);
  ~Batch();
  Batch(Batch&&) noexcept;

  /// Number of generations that can be added: `LoadOptions::sequences` less those that have not been removed.
  int room() const;
  bool empty() const;  ///< whether all generations have been removed
  /// Begins a generation. Uses the sequence whose cache has most of the prompt. `draft` has no effect. Errors: UsageError for
  /// options out of range, a prompt that is empty or does not fit the context, and a batch whose sequences are all taken.
  Id add(Prompt prompt, GenerateOptions options);
  Id add(std::vector<std::int32_t> prompt, GenerateOptions options) {
    return add(Prompt(std::move(prompt)), std::move(options));
  }
  /// Reads a part of a prompt, of one generation after the other, and gives a token to each generation whose prompt has been read.
  /// Returns the generations that made progress. A generation ends by itself, by its `cancel`, or with an error.
  std::vector<Progress> step();
  /// The text so far; complete when the generation has ended.
  const Result& result(Id id) const;
  /// Ends a generation, wherever it is, and makes room for another.
  void remove(Id id);
  /// As Model::embed, in the sequences for which there is room. Errors: UsageError also if there is none.
  Tensor embed(std::span<const std::string> texts, const EmbedOptions& options = {});

 private:
  std::unique_ptr<detail::BatchState> state_;
};

/// Loads a GGUF file (any part of a split one), or a folder with config.json, tokenizer.json and safetensors. Errors: FileError
/// that names file, place and cure, for files that are damaged, of an unknown architecture, or do not fit it; UsageError for
/// wrong options; DeviceError if there is not enough memory.
Model load(const std::filesystem::path& path, const LoadOptions& options = {});

}  // namespace weft::llm
