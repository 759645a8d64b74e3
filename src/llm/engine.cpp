#include "llm/engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "base/background.hpp"
#include "base/checked.hpp"
#include "base/processors.hpp"
#include "io/quantised_folder.hpp"
#include "llm/adapter_file.hpp"
#include "llm/divide.hpp"
#include "llm/magnitudes.hpp"
#include "llm/merge_folder.hpp"
#include "llm/placement.hpp"
#include "llm/read_config.hpp"
#include "text/load_tokenizer.hpp"
#include "weft/error.hpp"

namespace weft::llm::detail {
namespace {

constexpr Extent kContextMax = Extent{1} << 24;
constexpr Extent kLeastContext = 512, kContextStep = 256;  // of contexts that memory decides
constexpr std::uint64_t kGpuCacheBytes = std::uint64_t{2} << 30;
// Tokens of a pass. A pass of every size is compiled once, when it is first needed.
constexpr std::size_t kSizes[] = {1, 2, 4, 8, 16, 64, 256, 512};
static_assert(Engine::kStepsMax == kPassTokensMax);

std::size_t smallest_size(std::size_t steps) { return *std::lower_bound(std::begin(kSizes), std::end(kSizes), steps); }

/// The largest pass over a prompt. Half of all that fits is as quick on a CPU, and takes half the memory. On several devices,
/// smaller passes let more of them work at the same time.
std::size_t largest_pass(const Pipeline::Stages& stages) {
  const bool is_whole = stages.size() == 1 && stages[0]->device().kind != Device::Kind::cpu;
  return is_whole ? Engine::kStepsMax : Engine::kStepsMax / 2;
}

/// How many tokens the next pass takes from a long prompt. Padding costs as much as tokens.
std::size_t next_size(std::size_t steps, std::size_t most) {
  if (steps <= 16) return smallest_size(steps);
  std::size_t size = 16;
  for (const std::size_t each : kSizes)
    if (each <= std::min(steps, most)) size = each;
  return steps > 3 * size ? smallest_size(std::min(steps, most)) : size;
}

/// Whether all tokens are of one sequence. Of a model with states they are that, or each is of another: a state takes the steps
/// of its sequence one after another, and a pass has one way to do so.
bool is_one_sequence(std::span<const PositionedToken> batch) {
  std::set<int> slots;
  for (const PositionedToken& token : batch) slots.insert(token.slot);
  if (slots.size() != 1 && slots.size() != batch.size())
    throw InternalError(
        fmt::format("llm: a pass over {} tokens of {} sequences with states", batch.size(), slots.size()));
  return slots.size() == 1;
}

/// For the caches on a device, where nothing says how much they may take. Stages on the CPU share its memory.
std::uint64_t usual_cache_bytes(const Pipeline::Stages& stages, Device device) {
  if (device.kind != Device::Kind::cpu) return kGpuCacheBytes;
  const auto is_here = [&](const auto& stage) { return stage->device() == device; };
  return free_memory() / 2 / static_cast<std::uint64_t>(std::count_if(stages.begin(), stages.end(), is_here));
}

}  // namespace

void Engine::read_graph(const TensorNames& names, const LoadOptions& options, bool is_planned) {
  if (options.sequences < 1 || options.sequences > 256)
    throw UsageError(fmt::format("llm::load: {} sequences; 1 to 256 can be kept side by side", options.sequences));
  if (options.context < 0 || options.context > kContextMax)
    throw UsageError(
        fmt::format("llm::load: context {}: give 1 to {}, or 0 for the model's own", options.context, kContextMax));
  const io::TensorSource& source = names.source();
  path_ = source.path();
  if (source.gguf() && is_mmproj(source.gguf()->metadata()))
    throw FileError(
        fmt::format("{}: is the part of a model that sees images, without a language model; give the file of the "
                    "language model, and this one as mmproj",
                    source.path().string()));
  ModelConfig config = read_config(source, names, options.hints);
  mmproj_ = mmproj_of_model(source, config, options.mmproj, notes_);
  if (mmproj_) mmproj_->join(config, source.gguf()->metadata());
  const Family& family = family_of(config);
  graph_ = family.build({config, family, [&](std::string_view key) { return names.find(key) != nullptr; }});
  add_adapters(names, options, is_planned);
  if (options.context > config.context && config.rope_dims == 0)
    throw UsageError(
        fmt::format("llm::load: a context of {}; the model knows {} positions", options.context, config.context));
  settings_.slots = options.sequences;
  cached_.resize(static_cast<std::size_t>(options.sequences));
  settings_.cache_type = options.cache;
  settings_.exact = options.exact;
  settings_.has_states = std::any_of(graph_.tensors.begin(), graph_.tensors.end(),
                                     [](const TensorDesc& tensor) { return tensor.storage == TensorStorage::state; });
}

void Engine::add_adapters(const TensorNames& names, const LoadOptions& options, bool is_planned) {
  if (options.merge_adapters) return;  // their changes are in the tensors
  std::vector<std::vector<LowRank>> adapters;
  for (const AdapterUse& use : options.adapters) {
    std::vector<LowRank>& changes = adapters.emplace_back(read_adapter(use.path, use.scale, graph_));
    if (is_planned)
      forget_magnitudes(changes);
    else
      make_gains(changes, graph_, names);
  }
  changes_ = joined(graph_, adapters);
  for (const LowRank& change : changes_) add_low_rank(graph_, change.node, change.rank, change.has_gain());
  if (!changes_.empty()) graph_.validate();
}

void Engine::make_stages(const TensorNames& names, const LoadOptions& options) {
  check_tensors(graph_, names);
  const std::vector<Device> devices = devices_of(options);
  const std::vector<Extent> layers = layers_of_devices(graph_, names, options);
  std::vector<ModelGraph> parts = devices.size() == 1 ? std::vector{graph_} : divide(graph_, layers);
  for (std::size_t i = 0; i < parts.size(); ++i)
    stages_.push_back(std::make_unique<Stage>(std::move(parts[i]), devices[i], i == 0, i + 1 == devices.size()));
}

Engine::Engine(const std::filesystem::path& path, const LoadOptions& options) {
  io::TensorSource source = io::with_quantised_layers(io::TensorSource::open(path));
  // A packed file holds the weights of the model's own files, without adapters.
  bool keeps_packed = options.keep_packed;
  if (std::optional<io::TensorSource> changed = with_changed_tensors(source, options)) {
    source = std::move(*changed);
    keeps_packed = false;
  }
  const TensorNames names(source);
  read_graph(names, options, false);
  make_stages(names, options);
  // One thread reads the vocabulary while the others pack weights.
  auto text = run_beside([&] {
    ModelText read = read_text(source, options);
    source.forget_metadata();
    return read;
  });
  const std::vector<std::string> left_out = notes_of_extra_tensors(config(), names);
  notes_.insert(notes_.begin(), left_out.begin(), left_out.end());
  notes_.insert(notes_.begin(), source.notes().begin(), source.notes().end());
  std::uint64_t before = 0, all = 0;
  for (const auto& stage : stages_) all += file_bytes(stage->graph(), names);
  for (const auto& stage : stages_) {
    LoadProgress progress;
    if (options.progress) progress = [&](std::uint64_t done, std::uint64_t) { options.progress(before + done, all); };
    stage->load(names, progress, keeps_packed ? usual_packed_files() : PackedFileRules());
    stage->load_adapters(changes_);
    before += file_bytes(stage->graph(), names);
  }
  changes_ = {};
  text_ = text.get();
  if (config().reads_images) {
    const ImageFiles files =
        mmproj_ ? mmproj_->files(config(), *text_->tokenizer) : image_files_of_folder(path, source);
    image_reader_ = make_image_reader({files, *text_->tokenizer, config().hidden, device()});
    mmproj_.reset();
    if (sees_images_whole() && image_reader_->tile_rows({}) > Extent{kStepsMax})
      throw FileError(fmt::format("{}: an image has {} rows that see each other, and a pass of Weft takes {}",
                                  path.string(), image_reader_->tile_rows({}), kStepsMax));
  }
  note_images();
  constraints_.emplace(text_->tokenizer, text_->end_tokens);
  choose_context(options);
  make_positions(options);
  for (const auto& stage : stages_) stage->make_caches(settings_, false);
  if (has_states()) {
    std::uint64_t bytes = 0;
    for (const auto& stage : stages_) bytes += stage->state_bytes(1);
    checkpoints_.emplace(options.state_memory, std::max<std::uint64_t>(bytes, 1));
  }
  return_free_memory();
}

ModelText Engine::read_text(const io::TensorSource& source, const LoadOptions& options) const {
  const std::filesystem::path& path = source.path();
  return source.gguf() ? model_text_of_gguf(*source.gguf(), config(), options.chat_template,
                                            mmproj_ ? mmproj_->missing_token(source.gguf()->metadata()) : "")
                       : model_text_of_folder(source.kind() == io::SourceKind::folder ? path : path.parent_path(),
                                              config(), options.chat_template);
}

void Engine::note_images() {
  if (config().reads_images || config().lacks_image_settings) shows_lists_ = text_->chat && !takes_texts(*text_->chat);
  if (config().lacks_image_settings)
    notes_.push_back("the folder has no preprocessor_config.json, so the model reads texts alone");
}

Engine::Engine(const io::TensorSource& source, const LoadOptions& options, Planned planned) : is_planned_(true) {
  const TensorNames names(source);
  read_graph(names, options, true);
  make_stages(names, options);
  if (planned.with_text) {
    text_ = read_text(source, options);
    note_images();
  }
  if (config().reads_images) {
    const text::Tokenizer tokenizer =
        mmproj_ ? text::tokenizer_of_gguf(source.gguf()->metadata(), mmproj_->missing_token(source.gguf()->metadata()))
                : text::load_tokenizer(source.path());
    const ImageFiles files =
        mmproj_ ? mmproj_->files(config(), tokenizer) : image_files_of_folder(source.path(), source);
    image_reader_ = make_image_reader({files, tokenizer, config().hidden, device(), true});
    mmproj_.reset();
  }
  for (const auto& stage : stages_) {
    stage->plan_weights(names);
    stage->load_adapters(changes_);
  }
  settings_.context = options.context > 0 ? options.context : config().context;
  check_rows();
  make_positions(options);
  for (const auto& stage : stages_) stage->make_caches(settings_, true);
}

std::uint64_t Engine::planned_pass_bytes(std::size_t stage) {
  return stages_[stage]->planned_pass_bytes(1) + stages_[stage]->planned_pass_bytes(largest_pass(stages_));
}

std::uint64_t Engine::scratch_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& stage : stages_) bytes += stage->scratch_bytes();
  return bytes;
}

std::uint64_t Engine::weight_bytes(std::size_t stage) const {
  return stages_[stage]->weights().bytes + (stage == 0 && image_reader_ ? image_reader_->bytes() : 0);
}

std::uint64_t Engine::weight_bytes() const {
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < stages_.size(); ++i) bytes += weight_bytes(i);
  return bytes;
}

std::uint64_t Engine::cache_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& stage : stages_) bytes += stage->cache_bytes();
  return bytes;
}

std::vector<ModelPart> Engine::parts() const {
  std::vector<ModelPart> parts;
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    const Stage& stage = *stages_[i];
    parts.push_back({stage.device(), stage.first_layer(), stage.layer_count(), weight_bytes(i), stage.cache_bytes()});
  }
  return parts;
}

const std::filesystem::path& Engine::packed_file() const {
  const auto mapped = [](const auto& stage) { return !stage->weights().packed_file.empty(); };
  const auto found = std::find_if(stages_.begin(), stages_.end(), mapped);
  return (found == stages_.end() ? stages_.front() : *found)->weights().packed_file;
}

void Engine::make_positions(const LoadOptions& options) {
  const ModelConfig& config = this->config();
  const Extent context = settings_.context;
  if (const auto most = short_positions(config); most && *most < context) short_positions_ = most;
  settings_.has_two_factors = short_positions_.has_value();
  const auto table = [&](bool local) {
    std::vector<Extent> lengths = {short_positions_.value_or(context)};
    if (short_positions_) lengths.push_back(context);
    std::vector<float> sets;
    for (const Extent length : lengths) {
      const RopeTable rope = rope_table(config, length, local);
      if (!local) settings_.magnitude = rope.magnitude;
      sets.insert(sets.end(), rope.frequencies.begin(), rope.frequencies.end());
    }
    settings_.frequencies_shape = {static_cast<Extent>(lengths.size()), config.rope_dims / 2};
    return sets;
  };
  settings_.frequencies = table(false);
  settings_.local_frequencies = table(true);
  if (!config.rope_sections.empty()) {
    const std::vector<int> axes = rope_axes(config);
    for (int axis = 0; axis < 3; ++axis)
      for (const int each : axes) settings_.axes.push_back(each == axis ? 1.0F : 0.0F);
  }
  settings_.sees_images_whole = config.sees_images_whole;
  settings_.ring = ring_of(graph_, options, context);
}

void Engine::choose_context(const LoadOptions& options) {
  const ModelConfig& config = graph_.config;
  Extent fitting = kContextMax;
  bool is_limited = false;
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    const Stage& stage = *stages_[i];
    const std::uint64_t limit = memory_limit(options, stage.device()), states = stage.state_bytes(slots());
    // Rings of some layers only make it less.
    const std::uint64_t position_bytes =
        std::max<std::uint64_t>(stage.position_bytes(slots(), settings_.cache_type), 1);
    if (limit > 0 && weight_bytes(i) + states >= limit)
      throw UsageError(
          fmt::format("llm::load: the weights take {} bytes, and {} are allowed on {}; allow more, or take a smaller "
                      "model",
                      weight_bytes(i) + states, limit, stage.device().to_string()));
    const std::uint64_t budget =
        limit > 0 ? limit - weight_bytes(i) - states : usual_cache_bytes(stages_, stage.device());
    const auto here = static_cast<Extent>(std::min<std::uint64_t>(budget / position_bytes, kContextMax));
    if (limit > 0 && options.context > here)
      throw UsageError(fmt::format(
          "llm::load: a context of {} does not fit into {} bytes on {} beside the weights, which leave room for {}",
          options.context, limit, stage.device().to_string(), here));
    is_limited = is_limited || limit > 0;
    fitting = std::min(fitting, here);
  }
  Extent& context = settings_.context;
  if (options.context > 0) {
    context = options.context;
  } else if (fitting >= config.context) {
    context = config.context;
  } else {
    context = std::max(fitting / kContextStep * kContextStep, std::min(kLeastContext, config.context));
    if (is_limited && context > fitting)
      throw UsageError(fmt::format("llm::load: {} bytes leave room for {} positions beside the weights; allow more",
                                   options.device_memory, fitting));
  }
  check_rows();
}

void Engine::check_rows() const {
  // Devices count rows of caches with 32 bits.
  if (const auto rows = try_multiply<Extent>(context(), slots());
      !rows || *rows > std::numeric_limits<std::int32_t>::max())
    throw UsageError(fmt::format("llm::load: {} sequences of {} positions each; together they can have at most {}",
                                 slots(), context(), std::numeric_limits<std::int32_t>::max()));
}

PassNumbers Engine::numbers_of(std::span<const PositionedToken> batch, std::size_t size, LogitsOf wanted) {
  // Lists of numbers, as a stage takes them.
  const bool has_images = std::any_of(batch.begin(), batch.end(), [](const auto& t) { return is_image_row(t.token); });
  const bool has_states = settings_.has_states;
  const Extent context = settings_.context, ring = settings_.ring;
  const std::size_t lists_of_places = ring > 0 ? 6 : 4, list_of_images = settings_.lists(),
                    lists = list_of_images + (has_images ? settings_.lists_of_images() : 0), width = row_width();
  PassNumbers pass{.kind = {size, wanted, has_images, has_states && is_one_sequence(batch)},
                   .tokens = std::vector<std::int32_t>(size, 0),
                   .lists = std::vector<std::int32_t>(lists * size, 0),
                   .last = static_cast<std::int32_t>(batch.size()) - 1,
                   .image_rows = std::vector<float>(has_images ? size * width : 0, 0)};
  for (std::size_t t = 0; t < size; ++t) {
    const auto put = [&](std::size_t list, Extent value) {
      pass.lists[list * size + t] = static_cast<std::int32_t>(value);
    };
    if (t >= batch.size()) {
      for (std::size_t list = 2; list < lists_of_places; list += 2) put(list, -1);
      if (has_states) put(lists_of_places, -1);
      continue;
    }
    const PositionedToken& token = batch[t];
    const bool is_image = is_image_row(token.token);
    if (wanted != LogitsOf::drawn && !is_image && (token.token < 0 || token.token >= config().vocabulary))
      throw UsageError(
          fmt::format("llm: token {} is outside of the vocabulary of {}", token.token, config().vocabulary));
    if (token.position >= context)
      throw UsageError(fmt::format(
          "llm: the text has more tokens than the context of {}; load with a larger one, or shorten it", context));
    Extent& written = cached_[static_cast<std::size_t>(token.slot)].written;
    if (has_states && token.position != 0 && token.position != written)
      throw InternalError(
          fmt::format("llm: position {} of a sequence whose state has seen {}", token.position, written));
    written = token.position == 0 ? 1 : std::max(written, token.position + 1);
    if (!has_window(token.slot, token.position))
      throw InternalError(
          fmt::format("llm: position {} of a sequence whose ring was written up to {}", token.position, written));
    if (is_image) {
      copy_image_row(token.token, std::span(pass.image_rows).subspan(t * width, width));
      put(list_of_images, 1);
    } else {
      pass.tokens[t] = token.token;
    }
    const std::array<Extent, 3> places = places_of(token);
    put(0, places[0]);
    std::size_t list_of_more = list_of_images + 1;
    if (has_images && has_axes())
      for (const std::size_t axis : {std::size_t{1}, std::size_t{2}}) put(list_of_more++, places[axis]);
    Extent seen = token.position + 1;
    if (has_images && sees_images_whole()) {
      if (is_image) seen = end_of_image(token, batch);
      const Extent begin = config().window > 0 ? std::max<Extent>(token.position + 1 - config().window, 0) : 0;
      put(list_of_more, token.slot * context + begin);
      put(list_of_more + 1, seen - begin);
    }
    put(1, seen);
    const auto put_places = [&](std::size_t list, Extent rows) {
      put(list, token.slot * rows + token.position % rows);
      put(list + 1, token.slot * rows);
    };
    put_places(2, context);
    if (ring > 0) put_places(4, ring);
    if (has_states) {
      put(lists_of_places, token.slot);
      put(lists_of_places + 1, token.position == 0 ? 1 : 0);
    }
    if (short_positions_) put(list_of_images - 1, cached_[static_cast<std::size_t>(token.slot)].is_long ? 1 : 0);
  }
  if (has_states) pass.lists[(lists_of_places + 2) * size] = static_cast<std::int32_t>(batch.size());
  return pass;
}

template <class Work>
auto Engine::guarded(const Work& work) {
  try {
    return work();
  } catch (...) {
    pipeline_.clear();
    if (stages_.size() > 1)
      for (Cached& each : cached_) each.tokens.clear();
    throw;
  }
}

Tensor Engine::pass(std::span<const PositionedToken> batch, std::size_t size, LogitsOf wanted, const Tensor& drawn,
                    std::string* profile) {
  PassNumbers numbers = numbers_of(batch, size, wanted);
  numbers.drawn = drawn;
  return guarded([&] { return pipeline_.run(std::move(numbers), profile); });
}

std::string Engine::profile(std::span<const PositionedToken> batch) {
  std::string profile;
  pass(batch, smallest_size(batch.size()), LogitsOf::last, {}, &profile);
  return profile;
}

template <class Work>
void Engine::in_passes(std::span<const PositionedToken> batch, const Work& run) const {
  if (batch.empty()) throw UsageError("llm: no tokens; give at least one");
  while (!batch.empty()) {
    std::size_t size = next_size(batch.size(), largest_pass(stages_)), taken = std::min(size, batch.size());
    if (const std::size_t whole = sees_images_whole() ? whole_images(batch, taken) : taken; whole != taken) {
      taken = whole;
      size = smallest_size(taken);
    }
    run(batch.first(taken), size, taken == batch.size());
    batch = batch.subspan(taken);
  }
}

Tensor Engine::last_logits(std::span<const PositionedToken> batch) {
  see_images(batch);
  Tensor logits;
  in_passes(batch, [&](std::span<const PositionedToken> part, std::size_t size, bool is_last) {
    if (is_last)
      logits = pass(part, size, LogitsOf::last);
    else
      read_pass(part, size);
  });
  return logits;
}

void Engine::read(std::span<const PositionedToken> batch) {
  see_images(batch);
  in_passes(batch, [&](std::span<const PositionedToken> part, std::size_t size, bool) { read_pass(part, size); });
}

void Engine::read_pass(std::span<const PositionedToken> part, std::size_t size) {
  PassNumbers numbers = numbers_of(part, size, LogitsOf::last);
  guarded([&] { pipeline_.feed(std::move(numbers)); });
}

void Engine::finish_reading() {
  guarded([&] { pipeline_.drain(); });
}

Tensor Engine::all_logits(std::span<const PositionedToken> batch) { return whole_pass(batch, LogitsOf::every); }
Tensor Engine::states(std::span<const PositionedToken> batch) { return whole_pass(batch, LogitsOf::none); }
Tensor Engine::whole_pass(std::span<const PositionedToken> batch, LogitsOf wanted) {
  if (batch.empty() || batch.size() > kStepsMax)
    throw InternalError(fmt::format("llm: a pass over {} tokens", batch.size()));
  see_images(batch);
  return pass(batch, smallest_size(batch.size()), wanted);
}

Tensor Engine::next_logits(const Drawing& token, Extent position, int slot) {
  const PositionedToken nothing{text::kNoToken, position, slot};
  return pass({&nothing, 1}, 1, LogitsOf::drawn, token.drawn);
}

bool Engine::has_window(int slot, Extent position) const {
  const Extent ring = settings_.ring;
  const Extent lost = cached_[static_cast<std::size_t>(slot)].written - ring;  // positions whose rows have others now
  return ring == 0 || position == 0 || std::max<Extent>(position + 1 - config().window, 0) >= lost;
}

bool Engine::turns_anew(int slot, Extent length) const {
  return short_positions_ && (length > *short_positions_) != cached_[static_cast<std::size_t>(slot)].is_long;
}

void Engine::grow(int slot, Extent length) {
  if (!turns_anew(slot, length)) return;
  cached_[static_cast<std::size_t>(slot)].is_long = length > *short_positions_;
  const std::vector<text::TokenId> held = std::exchange(cached(slot), {});
  std::vector<PositionedToken> batch;
  for (std::size_t i = 0; i < held.size(); ++i) batch.push_back({held[i], static_cast<Extent>(i), slot});
  if (!batch.empty()) read(batch);
  cached(slot) = held;
}

void Engine::keep_states(int slot) {
  const std::vector<text::TokenId>& held = cached(slot);
  if (!checkpoints_ || checkpoints_->is_off() || held.empty() || checkpoints_->has(held, slot)) return;
  if (static_cast<Extent>(held.size()) != cached_[static_cast<std::size_t>(slot)].written) return;
  finish_reading();
  std::vector<Tensor> states;
  for (const auto& stage : stages_)
    for (Tensor& state : stage->states_of(slot)) states.push_back(std::move(state));
  checkpoints_->add({held, slot, std::move(states)});
}

void Engine::keep_states_sometimes(int slot) {
  if (checkpoints_ && cached(slot).size() % kStateInterval == 0) keep_states(slot);
}

std::size_t Engine::restore_states(int slot, std::span<const text::TokenId> prompt, std::size_t same,
                                   std::size_t more_than) {
  // Keys and values of attention are those of this sequence, up to `same`; states alone may be those of any.
  const bool has_keys =
      std::any_of(stages_.begin(), stages_.end(), [](const auto& stage) { return stage->has_keys(); });
  const std::size_t longest = has_keys ? same : prompt.size() - 1;
  const StateCheckpoints::Checkpoint* found = checkpoints_->best(prompt, longest, has_keys ? slot : -1);
  if (!found || found->tokens.size() <= more_than) return 0;
  std::span<const Tensor> states = found->states;
  for (const auto& stage : stages_) {
    stage->set_states(slot, states.first(stage->state_count()));
    states = states.subspan(stage->state_count());
  }
  cached_[static_cast<std::size_t>(slot)].written = static_cast<Extent>(found->tokens.size());
  cached(slot) = found->tokens;
  return found->tokens.size();
}

Extent Engine::reuse(int slot, std::span<const text::TokenId> prompt) {
  std::vector<text::TokenId>& held = cached(slot);
  if (turns_anew(slot, static_cast<Extent>(prompt.size()))) held.clear();
  grow(slot, static_cast<Extent>(prompt.size()));
  std::size_t same = 0;
  while (same < held.size() && same + 1 < prompt.size() && held[same] == prompt[same]) ++same;
  if (sees_images_whole() && is_image_row(prompt[same]))
    if (const auto image = images_.find(prompt[same]))
      same -= std::min(
          same, static_cast<std::size_t>((image->first - prompt[same]) % image_reader_->tile_rows(image->image)));
  if (!has_window(slot, static_cast<Extent>(same))) same = 0;
  if (has_states()) {
    const bool goes_on = static_cast<Extent>(same) == cached_[static_cast<std::size_t>(slot)].written;
    const std::size_t restored = restore_states(slot, prompt, same, goes_on ? same : 0);
    if (restored > 0 || !goes_on) same = restored;
  }
  held.resize(same);
  return static_cast<Extent>(same);
}

}  // namespace weft::llm::detail
