// How an engine comes to be: the graph of the model, its adapters, stages and weights, and the context that memory allows.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/background.hpp"
#include "base/checked.hpp"
#include "base/processors.hpp"
#include "io/quantised_folder.hpp"
#include "llm/adapter_file.hpp"
#include "llm/divide.hpp"
#include "llm/engine.hpp"
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
    settings_.local_frequencies_shape = {
        static_cast<Extent>(lengths.size()),
        (config.rope_local_base > 0 && config.rope_local_dims > 0 ? config.rope_local_dims : config.rope_dims) / 2};
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

}  // namespace weft::llm::detail
