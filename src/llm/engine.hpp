// A model on its devices: what its caches hold, and passes over tokens of one sequence or of many.
#pragma once

#include <array>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backend/contract.hpp"
#include "llm/constraint.hpp"
#include "llm/families.hpp"
#include "llm/image_reader.hpp"
#include "llm/image_rows.hpp"
#include "llm/mmproj.hpp"
#include "llm/model_text.hpp"
#include "llm/pipeline.hpp"
#include "llm/state_checkpoints.hpp"
#include "weft/compile.hpp"
#include "weft/llm.hpp"

namespace weft::llm::detail {

/// A token, or a row of an image, on its way through the model: at `position` of the sequence `slot`.
struct PositionedToken {
  text::TokenId token = 0;
  Extent position = 0;
  int slot = 0;
};

/// A drawn token; kNoToken if the logits held a NaN.
struct Draw {
  text::TokenId token = text::kNoToken;
  float log_probability = 0;
  std::vector<TokenProbability> top;
};

/// Tokens of some rows that the device draws, or has drawn.
struct Drawing {
  Tensor drawn;  // [rows, 2] i32: token, bits of its log-probability
  std::unique_ptr<backend::Readback> readback;
  // Logits on the host, for requests that ask for the most probable tokens, or for the model's own probability of a token that a
  // grammar has chosen.
  std::vector<Extent> tops;  // of each request
  Tensor logits;             // undefined if they are not needed
  std::unique_ptr<backend::Readback> logits_readback;
};

/// The settings that a row of logits is drawn with.
struct DrawRequest {
  const Sampling* sampling = nullptr;
  std::uint64_t seed = 0;
  std::uint64_t position = 0;  // of the draw in its generation
  bool log_probability = false;
  Extent top = 0;
  const grammar::TokenMask* allowed = nullptr;  // all other tokens are never drawn; null: none
  std::span<const text::TokenId> history;       // tokens before it
};

/// Numbers on the device that seldom change, and are uploaded only when they change.
template <class T>
class Uploaded {
 public:
  const Tensor& of(std::vector<T> values, const Shape& shape, Device device) {
    if (!tensor_ || shape != tensor_->shape() || values != values_) {
      tensor_ = tensor_from_bytes(values.data(), shape, dtype_of<T>, device);
      values_ = std::move(values);
    }
    return *tensor_;
  }

 private:
  std::vector<T> values_;
  std::optional<Tensor> tensor_;
};

class Engine {
 public:
  Engine(const std::filesystem::path& path, const LoadOptions& options);
  /// The graph, the plans and the sizes of a model, without its weights: nothing can be run. Its text is there if asked for.
  struct Planned {
    bool with_text = false;
  };
  Engine(const io::TensorSource& source, const LoadOptions& options, Planned planned);
  /// Whether the weights have no values.
  bool is_planned() const { return is_planned_; }
  /// Scratch and results of a pass over one token and of the longest pass over a prompt, as compiled for the stage's device.
  std::uint64_t planned_pass_bytes(std::size_t stage);
  /// Scratch of all passes that were compiled so far.
  std::uint64_t scratch_bytes() const;

  const ModelConfig& config() const { return graph_.config; }
  const ModelGraph& graph() const { return graph_; }
  const ModelText& text() const { return *text_; }
  const std::filesystem::path& path() const { return path_; }
  Extent context() const { return settings_.context; }
  int slots() const { return settings_.slots; }
  const StageSettings& settings() const { return settings_; }
  /// The parts of the model, in the order of its layers; one for each device.
  const Pipeline::Stages& stages() const { return stages_; }
  /// Where tokens go in; and where logits come out, and are drawn from.
  Device device() const { return stages_.front()->device(); }
  Device output_device() const { return stages_.back()->device(); }
  std::uint64_t weight_bytes() const;
  /// Of a stage, images included.
  std::uint64_t weight_bytes(std::size_t stage) const;
  /// The file that weights were mapped from, one of them if stages have several; empty where they were packed.
  const std::filesystem::path& packed_file() const;
  std::uint64_t cache_bytes() const;
  std::vector<ModelPart> parts() const;
  /// What users should know of how the weights were read.
  const std::vector<std::string>& notes() const { return notes_; }

  /// Runs a batch of any size, in passes of fixed sizes; what comes earlier in a sequence comes earlier here or is in
  /// the cache. Gives the logits of the last token, [1, V], or of every token of a single pass, [T, V] with T at least their
  /// number.
  Tensor last_logits(std::span<const PositionedToken> batch);
  /// The same without logits: it fills the cache. Stages behind the first one may do their part later, while the first one works
  /// on what comes next; `finish_reading` gives them all of it.
  void read(std::span<const PositionedToken> batch);
  void finish_reading();
  Tensor all_logits(std::span<const PositionedToken> batch);
  /// What the head reads of every token of a single pass, [T, width] with T at least their number.
  Tensor states(std::span<const PositionedToken> batch);
  /// As last_logits of the one token that is being drawn, which the host need not know yet.
  Tensor next_logits(const Drawing& token, Extent position, int slot);
  static constexpr std::size_t kStepsMax = 512;
  /// Runs the batch of a single pass, its kernels timed.
  std::string profile(std::span<const PositionedToken> batch);

  /// Draws from the first rows of the logits, one for each request.
  std::vector<Draw> draw(const Tensor& logits, std::span<const DrawRequest> requests);
  /// The same in two parts, between which the device works on.
  Drawing start_draw(const Tensor& logits, std::span<const DrawRequest> requests);
  std::vector<Draw> finish(Drawing drawing, std::size_t count) const;
  /// Whether one device works while the host does something else, so that a drawn token need not come to the host before the
  /// next pass.
  bool runs_beside_host() const { return stages_.size() == 1 && stages_[0]->runs_beside_host(); }

  /// Whether layers keep a state of all steps. It cannot be cut back to an earlier step, so wrong guesses cannot be taken back,
  /// and a prompt that differs from what the state has seen goes on from a checkpoint.
  bool has_states() const { return settings_.has_states; }
  /// Copies the states of a sequence, which have seen the tokens that the cache holds. Nothing without states.
  void keep_states(int slot);
  /// The same where the last copy is kStateInterval tokens or more back.
  void keep_states_sometimes(int slot);

  /// How many of the first tokens a pass may take: about `most`, and no part of an image that sees itself whole.
  std::size_t part_of(std::span<const text::TokenId> tokens, std::size_t most) const;

  /// What the cache holds of a sequence.
  std::vector<text::TokenId>& cached(int slot) { return cached_[static_cast<std::size_t>(slot)].tokens; }
  /// To be called before a batch that makes a sequence `length` tokens long, but for the prompt's, where `reuse` is. Longrope
  /// turns a whole sequence by short factors or by long ones: when it outgrows the short ones, the keys that the cache
  /// holds of it are computed anew, in as many passes as it took.
  void grow(int slot, Extent length);
  /// Whether `grow` would do that.
  bool turns_anew(int slot, Extent length) const;
  /// Tokens of the prompt that the slot already holds, but for the last, which must be computed for its logits; the cache
  /// is cut there. If rings have lost the window before that place, nothing is reused: the rows of that window depend
  /// on earlier rows, which are lost too. States go back to the last checkpoint before that place.
  Extent reuse(int slot, std::span<const text::TokenId> prompt);

  /// True while a generation uses the model.
  bool busy = false;
  Constraints& constraints() { return *constraints_; }
  /// Positions of a sequence that turns by longrope's short factors, where a longer one turns by others.
  std::optional<Extent> positions_by_short_factors() const { return short_positions_; }
  /// How the model sees images; null if it does not.
  const ImageReader* image_reader() const { return image_reader_.get(); }
  ImageStore& images() { return images_; }
  /// Of a row of an image, with what layers add of it.
  std::size_t row_width() const { return static_cast<std::size_t>(config().hidden * (1 + config().image_layers)); }
  /// Whether its template is given every content as a list of parts.
  bool shows_lists() const { return shows_lists_; }

 private:
  struct Cached {
    std::vector<text::TokenId> tokens;
    Extent written = 0;    // positions from 0 on that rows were written for, some perhaps beyond the tokens
    bool is_long = false;  // it turns by the long factors of longrope
    /// Behind an image whose rows have places on axes: tokens from `from` on turn as if they stood `by` later.
    struct Shift {
      Extent from, by;
    };
    std::vector<Shift> shifts;
  };

  /// Sets the graph and what the options say of it. With the tower of an mmproj file, if there is one.
  /// `is_planned`: weights have no values.
  void read_graph(const TensorNames& names, const LoadOptions& options, bool is_planned);
  /// Reads the adapters, and adds their products to the graph.
  void add_adapters(const TensorNames& names, const LoadOptions& options, bool is_planned);
  /// Divides the graph over the devices.
  void make_stages(const TensorNames& names, const LoadOptions& options);
  ModelText read_text(const io::TensorSource& source, const LoadOptions& options) const;
  /// Notes what images change of the text.
  void note_images();
  void make_positions(const LoadOptions& options);
  void check_rows() const;
  /// Sets how many positions are kept, once the weights are there.
  void choose_context(const LoadOptions& options);
  /// Whether rings hold all that a token at this position sees before it.
  bool has_window(int slot, Extent position) const;
  /// Sets the states of a sequence to the last checkpoint of the prompt: of more than `more_than` tokens, and with attention of at
  /// most `same`. Gives its number of tokens; 0 if there is none.
  std::size_t restore_states(int slot, std::span<const text::TokenId> prompt, std::size_t same, std::size_t more_than);
  /// The numbers of a pass; notes what it writes.
  PassNumbers numbers_of(std::span<const PositionedToken> batch, std::size_t size, LogitsOf wanted);
  Tensor pass(std::span<const PositionedToken> batch, std::size_t size, LogitsOf wanted, const Tensor& drawn = {},
              std::string* profile = nullptr);
  Tensor whole_pass(std::span<const PositionedToken> batch, LogitsOf wanted);
  /// Runs what sends passes to the stages. After an error, some stages lack rows that others have, so the caches count as empty.
  template <class Work>
  auto guarded(const Work& work);
  void read_pass(std::span<const PositionedToken> part, std::size_t size);
  /// Cuts a batch into passes: calls `run` with the tokens and the size of each, and whether it is the last.
  template <class Work>
  void in_passes(std::span<const PositionedToken> batch, const Work& run) const;
  bool has_axes() const { return !settings_.axes.empty(); }
  bool sees_images_whole() const { return graph_.config.sees_images_whole; }
  /// Places in time, height and width that turn a token, in the order in which the tokens of a sequence come.
  std::array<Extent, 3> places_of(const PositionedToken& token);
  /// How many positions a row of an image sees, whose whole image the batch has.
  Extent end_of_image(const PositionedToken& token, std::span<const PositionedToken> batch) const;
  std::size_t whole_images(std::span<const PositionedToken> batch, std::size_t most) const;
  /// Runs the tower over all tiles of images that the batch has rows of and that were not seen yet: those of one shape together.
  void see_images(std::span<const PositionedToken> batch);
  /// Writes the row of an image, which the tower sees now if it was not seen yet.
  void copy_image_row(text::TokenId id, std::span<float> out);

  std::filesystem::path path_;
  ModelGraph graph_;
  std::vector<LowRank> changes_;  // of adapters, until they are on the devices
  Pipeline::Stages stages_;
  Pipeline pipeline_{stages_};
  std::vector<std::string> notes_;
  std::optional<ModelText> text_;
  bool is_planned_ = false;
  std::optional<Mmproj> mmproj_;  // until its weights are on the device
  std::unique_ptr<ImageReader> image_reader_;
  ImageStore images_;
  bool shows_lists_ = false;
  StageSettings settings_;
  std::vector<Cached> cached_;
  std::optional<Extent> short_positions_;  // of a sequence that turns by short factors, where both kinds are needed
  static constexpr std::size_t kStateInterval = 256;  // tokens
  std::optional<StateCheckpoints> checkpoints_;
  std::optional<Compiled> sampler_, masked_sampler_;
  std::optional<Constraints> constraints_;
  Uploaded<float> settings_of_draws_, bias_;
  Uploaded<std::int32_t> history_, bias_tokens_;
};

/// What a model is on its devices.
std::shared_ptr<Engine> engine_of(const Model& model);

}  // namespace weft::llm::detail
