#include "llm/engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <set>
#include <utility>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include "base/background.hpp"
#include "base/checked.hpp"
#include "base/processors.hpp"
#include "io/quantised_folder.hpp"
#include "llm/most_probable.hpp"
#include "llm/read_config.hpp"
#include "runtime/devices.hpp"
#include "runtime/evaluate.hpp"
#include "weft/error.hpp"
#include "weft/ops.hpp"
#include "weft/ops/indexing.hpp"

namespace weft::llm::detail {
namespace {

constexpr Extent kContextMax = Extent{1} << 24;
constexpr Extent kLeastContext = 512, kContextStep = 256;  // of contexts that memory decides
constexpr std::uint64_t kGpuCacheBytes = std::uint64_t{2} << 30;
// Tokens of a pass. A pass of every size is compiled once, when it is first needed.
constexpr std::size_t kSizes[] = {1, 2, 4, 8, 16, 64, 256, 512};
constexpr Extent kHistory = 256;

std::size_t smallest_size(std::size_t steps) { return *std::lower_bound(std::begin(kSizes), std::end(kSizes), steps); }

/// How many tokens the next pass takes from a long prompt. Padding costs as much as tokens. Half the largest pass is as
/// quick on a CPU, and takes half the memory.
std::size_t next_size(std::size_t steps, Device device) {
  if (steps <= 16) return smallest_size(steps);
  const std::size_t most = device.kind == Device::Kind::cpu ? Engine::kStepsMax / 2 : Engine::kStepsMax;
  std::size_t size = 16;
  for (const std::size_t each : kSizes)
    if (each <= std::min(steps, most)) size = each;
  return steps > 3 * size ? smallest_size(std::min(steps, most)) : size;
}

/// Returns freed memory to the system, because compiling a graph leaves megabytes of holes in the heap.
void return_free_memory() {
#if defined(__GLIBC__)
  malloc_trim(0);
#endif
}

bool is_recent(const TensorDesc& tensor) { return tensor.shape[0].symbol == Symbol::recent; }

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

template <class T>
Tensor on_device(const std::vector<T>& values, const Shape& shape, Device device) {
  return tensor_from_bytes(values.data(), shape, dtype_of<T>, device);
}

}  // namespace

void Engine::read_graph(const TensorNames& names, const LoadOptions& options) {
  if (options.sequences < 1 || options.sequences > 256)
    throw UsageError(fmt::format("llm::load: {} sequences; 1 to 256 can be kept side by side", options.sequences));
  if (options.context < 0 || options.context > kContextMax)
    throw UsageError(
        fmt::format("llm::load: context {}: give 1 to {}, or 0 for the model's own", options.context, kContextMax));
  const ModelConfig config = read_config(names.source(), names, options.hints);
  const Family& family = family_of(config);
  graph_ = family.build({config, family, [&](std::string_view key) { return names.find(key) != nullptr; }});
  if (options.context > config.context && config.rope_dims == 0)
    throw UsageError(
        fmt::format("llm::load: a context of {}; the model knows {} positions", options.context, config.context));
  slots_ = options.sequences;
  cache_type_ = options.cache;
  exact_ = options.exact;
  has_states_ = std::any_of(graph_.tensors.begin(), graph_.tensors.end(),
                            [](const TensorDesc& tensor) { return tensor.storage == TensorStorage::state; });
}

Engine::Engine(const std::filesystem::path& path, const LoadOptions& options) : device_(options.device) {
  io::TensorSource source = io::with_quantised_layers(io::TensorSource::open(path));
  const TensorNames names(source);
  read_graph(names, options);
  // One thread reads the vocabulary while the others pack weights.
  auto text = run_beside([&] {
    ModelText read = source.gguf()
                         ? model_text_of_gguf(*source.gguf(), config(), options.chat_template)
                         : model_text_of_folder(source.kind() == io::SourceKind::folder ? path : path.parent_path(),
                                                config(), options.chat_template);
    source.forget_metadata();
    return read;
  });
  notes_ = source.notes();
  weights_ = load_weights(graph_, names, device_, options.progress,
                          options.keep_packed ? usual_packed_files() : PackedFileRules());
  text_ = text.get();
  if (config().reads_images) {
    image_reader_ = make_image_reader({path, source, *text_->tokenizer, config().hidden, device_});
    weights_.bytes += image_reader_->bytes();
    if (sees_images_whole() && image_reader_->tile_rows({}) > Extent{kStepsMax})
      throw FileError(fmt::format("{}: an image has {} rows that see each other, and a pass of Weft takes {}",
                                  path.string(), image_reader_->tile_rows({}), kStepsMax));
  }
  if (config().reads_images || config().lacks_image_settings) shows_lists_ = text_->chat && !takes_texts(*text_->chat);
  if (config().lacks_image_settings)
    notes_.push_back("the folder has no preprocessor_config.json, so the model reads texts alone");
  constraints_.emplace(text_->tokenizer, text_->end_tokens);
  choose_context(options);
  make_positions(options);
  make_caches(false);
  if (has_states_) {
    std::uint64_t bytes = 0;
    for (const std::string& name : state_names_)
      bytes += static_cast<std::uint64_t>(caches_.at(name).shape()[1]) * sizeof(float);
    checkpoints_.emplace(options.state_memory, std::max<std::uint64_t>(bytes, 1));
  }
  return_free_memory();
}

Engine::Engine(const io::TensorSource& source, const LoadOptions& options, Planned) : device_(options.device) {
  const TensorNames names(source);
  read_graph(names, options);
  check_tensors(graph_, names);
  weights_ = planned_weights(graph_, names, device_);
  context_ = options.context > 0 ? options.context : config().context;
  check_rows();
  make_positions(options);
  make_caches(true);
}

std::uint64_t Engine::planned_pass_bytes() {
  std::uint64_t bytes = 0;
  const std::size_t most = device_.kind == Device::Kind::cpu ? kStepsMax / 2 : kStepsMax;
  for (const std::size_t size : {std::size_t{1}, most}) {
    const PassKind kind{size, LogitsOf::last, false, has_states_};
    const auto count = static_cast<Extent>(size);
    const std::vector<Tensor> arguments = {on_device(std::vector<std::int32_t>(size, 0), {count}, device_),
                                           on_device(std::vector<std::int32_t>(lists_of_numbers() * size, 0),
                                                     {static_cast<Extent>(lists_of_numbers()), count}, device_),
                                           on_device(std::vector<std::int32_t>(1, 0), {1}, device_)};
    const runtime::WithoutPlans lean;
    compiled(kind).prepare(arguments);
    bytes += compiled(kind).scratch_bytes() + static_cast<std::uint64_t>(config().vocabulary) * sizeof(float);
  }
  return bytes;
}

std::uint64_t Engine::scratch_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [kind, pass] : passes_) bytes += pass.scratch_bytes();
  return bytes;
}

void Engine::make_positions(const LoadOptions& options) {
  const ModelConfig& config = this->config();
  if (const auto most = short_positions(config); most && *most < context_) short_positions_ = most;
  const auto table = [&](bool local) {
    std::vector<Extent> lengths = {short_positions_.value_or(context_)};
    if (short_positions_) lengths.push_back(context_);
    std::vector<float> sets;
    for (const Extent length : lengths) {
      const RopeTable rope = rope_table(config, length, local);
      if (!local) magnitude_ = rope.magnitude;
      sets.insert(sets.end(), rope.frequencies.begin(), rope.frequencies.end());
    }
    return on_device(sets, {static_cast<Extent>(lengths.size()), config.rope_dims / 2}, device_);
  };
  frequencies_ = table(false);
  local_frequencies_ = table(true);
  if (!config.rope_sections.empty()) {
    const std::vector<int> axes = rope_axes(config);
    std::vector<float> masks;
    for (int axis = 0; axis < 3; ++axis)
      for (const int each : axes) masks.push_back(each == axis ? 1.0F : 0.0F);
    axes_ = on_device(masks, {3, config.rope_dims / 2}, device_);
  }
  // A pass is written before it is read, so a ring holds a window and the longest pass. Shorter ones leave room to go back.
  // What a row of an image sees of a window is not a window of the rows behind it, as rings need.
  if (const Extent rows = config.window + Extent{kStepsMax};
      !options.whole_cache && !config.sees_images_whole && rows < context_ &&
      std::any_of(graph_.tensors.begin(), graph_.tensors.end(), is_recent))
    ring_ = rows;
}

Extent Engine::rows_of(const TensorDesc& tensor, Extent context) const {
  if (tensor.storage == TensorStorage::state) return 1;
  return ring_ > 0 && is_recent(tensor) ? std::min(ring_, context) : context;
}

void Engine::make_caches(bool is_planned) {
  // Uninitialised memory is fine: rows that no token was written to are never read.
  for (const TensorDesc& tensor : graph_.tensors) {
    const bool is_state = tensor.storage == TensorStorage::state;
    if (tensor.storage != TensorStorage::kv_cache && !is_state) continue;
    const Tensor like = empty_cache(rows_of(tensor, context_) * slots_, tensor.shape[1].value,
                                    is_state ? CacheType::f32 : cache_type_, device_);
    const auto bytes = is_planned ? 0 : static_cast<std::size_t>(like.numel()) * size_bytes(like.dtype());
    const Tensor memory(
        runtime::data_node(like.dtype(), like.shape(), device_, runtime::allocate(device_, bytes, tensor.name)));
    caches_.emplace(tensor.name, Variable(memory, tensor.name, false));
    if (is_state)
      state_names_.push_back(tensor.name);
    else
      has_keys_ = true;
  }
  cached_.resize(static_cast<std::size_t>(slots_));
}

void Engine::choose_context(const LoadOptions& options) {
  const ModelConfig& config = graph_.config;
  // Of one position of every sequence, in all layers: rings of some only make it less.
  std::uint64_t position_bytes = 0, state_bytes = 0;
  for (const TensorDesc& tensor : graph_.tensors) {
    if (tensor.storage == TensorStorage::state)
      state_bytes += static_cast<std::uint64_t>(tensor.shape[1].value * slots_) * sizeof(float);
    if (tensor.storage != TensorStorage::kv_cache) continue;
    const Tensor like = empty_cache(slots_, tensor.shape[1].value, cache_type_, device_);
    position_bytes += static_cast<std::uint64_t>(like.numel()) * size_bytes(like.dtype());
  }
  position_bytes = std::max<std::uint64_t>(position_bytes, 1);
  const bool is_limited = options.device_memory > 0;
  if (is_limited && weights_.bytes + state_bytes >= options.device_memory)
    throw UsageError(
        fmt::format("llm::load: the weights take {} bytes, and {} are allowed on {}; allow more, or take a smaller "
                    "model",
                    weights_.bytes + state_bytes, options.device_memory, device_.to_string()));
  const std::uint64_t budget = is_limited ? options.device_memory - weights_.bytes - state_bytes
                               : device_.kind == Device::Kind::cpu ? free_memory() / 2
                                                                   : kGpuCacheBytes;
  const auto fitting = static_cast<Extent>(std::min<std::uint64_t>(budget / position_bytes, kContextMax));
  if (options.context > 0) {
    if (is_limited && fitting < options.context)
      throw UsageError(fmt::format(
          "llm::load: a context of {} does not fit into {} bytes beside the weights, which leave room for {}",
          options.context, options.device_memory, fitting));
    context_ = options.context;
  } else if (fitting >= config.context) {
    context_ = config.context;
  } else {
    context_ = std::max(fitting / kContextStep * kContextStep, std::min(kLeastContext, config.context));
    if (is_limited && context_ > fitting)
      throw UsageError(fmt::format("llm::load: {} bytes leave room for {} positions beside the weights; allow more",
                                   options.device_memory, fitting));
  }
  check_rows();
}

void Engine::check_rows() const {
  // Devices count rows of caches with 32 bits.
  if (const auto rows = try_multiply<Extent>(context_, slots_);
      !rows || *rows > std::numeric_limits<std::int32_t>::max())
    throw UsageError(fmt::format("llm::load: {} sequences of {} positions each; together they can have at most {}",
                                 slots_, context_, std::numeric_limits<std::int32_t>::max()));
}

std::uint64_t Engine::cache_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [name, cache] : caches_)
    bytes += static_cast<std::uint64_t>(cache.numel()) * size_bytes(cache.dtype());
  return bytes;
}

Compiled& Engine::compiled(const PassKind& kind) {
  if (auto it = passes_.find(kind); it != passes_.end()) return it->second;
  return passes_
      .emplace(kind, Compiled([this, kind](std::span<const Tensor> arguments) {
                 const LogitsOf wanted = kind.wanted;
                 const auto numbers = [&](Extent row) { return select(arguments[1], 0, row); };
                 PassInputs inputs{.tokens = wanted == LogitsOf::drawn ? select(arguments[0], 1, 0) : arguments[0],
                                   .positions = numbers(0),
                                   .length = numbers(1),
                                   .all = {numbers(2), numbers(3)}};
                 if (ring_ > 0) inputs.ring = {numbers(4), numbers(5)};
                 Extent list = ring_ > 0 ? 6 : 4;
                 if (has_states_) {
                   inputs.states = {numbers(list), numbers(list + 1), narrow(numbers(list + 2), 0, 0, 1),
                                    kind.is_one_sequence};
                   list += 3;
                 }
                 if (short_positions_) inputs.factors = numbers(list++);
                 if (kind.has_images) {
                   inputs.is_image = numbers(list++);
                   if (axes_.defined()) {
                     inputs.height = numbers(list++);
                     inputs.width = numbers(list++);
                   }
                   if (sees_images_whole()) {
                     inputs.window_first = numbers(list++);
                     inputs.window_length = numbers(list++);
                   }
                   inputs.image_rows = arguments.back();
                 }
                 if (wanted == LogitsOf::last) inputs.rows = arguments[2];
                 inputs.stops_before_head = wanted == LogitsOf::none;
                 return std::vector<Tensor>{lower({graph_, weights_, caches_, cache_type_, ring_, exact_, frequencies_,
                                                   local_frequencies_, magnitude_, axes_},
                                                  inputs)};
               }))
      .first->second;
}

Tensor Engine::pass(std::span<const PositionedToken> batch, std::size_t size, LogitsOf wanted, const Tensor& drawn,
                    std::string* profile) {
  // Lists of numbers, as `compiled` takes them.
  const bool has_images = std::any_of(batch.begin(), batch.end(), [](const auto& t) { return is_image_row(t.token); });
  const std::size_t lists_of_places = ring_ > 0 ? 6 : 4, list_of_images = lists_of_numbers(),
                    lists = list_of_images + (has_images ? lists_of_images() : 0), width = row_width();
  const PassKind kind{size, wanted, has_images, has_states_ && is_one_sequence(batch)};
  std::vector<std::int32_t> tokens(size, 0), numbers(lists * size, 0);
  std::vector<float> image_rows(has_images ? size * width : 0, 0);
  for (std::size_t t = 0; t < size; ++t) {
    const auto put = [&](std::size_t list, Extent value) {
      numbers[list * size + t] = static_cast<std::int32_t>(value);
    };
    if (t >= batch.size()) {
      for (std::size_t list = 2; list < lists_of_places; list += 2) put(list, -1);
      if (has_states_) put(lists_of_places, -1);
      continue;
    }
    const PositionedToken& token = batch[t];
    const bool is_image = is_image_row(token.token);
    if (wanted != LogitsOf::drawn && !is_image && (token.token < 0 || token.token >= config().vocabulary))
      throw UsageError(
          fmt::format("llm: token {} is outside of the vocabulary of {}", token.token, config().vocabulary));
    if (token.position >= context_)
      throw UsageError(fmt::format(
          "llm: the text has more tokens than the context of {}; load with a larger one, or shorten it", context_));
    Extent& written = cached_[static_cast<std::size_t>(token.slot)].written;
    if (has_states_ && token.position != 0 && token.position != written)
      throw InternalError(
          fmt::format("llm: position {} of a sequence whose state has seen {}", token.position, written));
    written = token.position == 0 ? 1 : std::max(written, token.position + 1);
    if (!has_window(token.slot, token.position))
      throw InternalError(
          fmt::format("llm: position {} of a sequence whose ring was written up to {}", token.position, written));
    if (is_image) {
      copy_image_row(token.token, std::span(image_rows).subspan(t * width, width));
      put(list_of_images, 1);
    } else {
      tokens[t] = token.token;
    }
    const std::array<Extent, 3> places = places_of(token);
    put(0, places[0]);
    std::size_t list_of_more = list_of_images + 1;
    if (has_images && axes_.defined())
      for (const std::size_t axis : {std::size_t{1}, std::size_t{2}}) put(list_of_more++, places[axis]);
    Extent seen = token.position + 1;
    if (has_images && sees_images_whole()) {
      if (is_image) seen = end_of_image(token, batch);
      const Extent begin = config().window > 0 ? std::max<Extent>(token.position + 1 - config().window, 0) : 0;
      put(list_of_more, token.slot * context_ + begin);
      put(list_of_more + 1, seen - begin);
    }
    put(1, seen);
    const auto put_places = [&](std::size_t list, Extent rows) {
      put(list, token.slot * rows + token.position % rows);
      put(list + 1, token.slot * rows);
    };
    put_places(2, context_);
    if (ring_ > 0) put_places(4, ring_);
    if (has_states_) {
      put(lists_of_places, token.slot);
      put(lists_of_places + 1, token.position == 0 ? 1 : 0);
    }
    if (short_positions_) put(list_of_images - 1, cached_[static_cast<std::size_t>(token.slot)].is_long ? 1 : 0);
  }
  if (has_states_) numbers[(lists_of_places + 2) * size] = static_cast<std::int32_t>(batch.size());
  const auto count = static_cast<Extent>(size);
  std::vector<Tensor> arguments = {wanted == LogitsOf::drawn ? drawn.to(device_) : on_device(tokens, {count}, device_),
                                   on_device(numbers, {static_cast<Extent>(lists), count}, device_)};
  if (wanted == LogitsOf::last)
    arguments.push_back(on_device(std::vector{static_cast<std::int32_t>(batch.size()) - 1}, {1}, device_));
  if (has_images) arguments.push_back(on_device(image_rows, {count, static_cast<Extent>(width)}, device_));
  const bool is_new = !passes_.contains(kind);
  if (is_new) {
    const runtime::WithoutPlans lean;
    compiled(kind).prepare(arguments);
    return_free_memory();
  }
  if (profile) *profile = compiled(kind).profile(arguments);
  Tensor logits = compiled(kind)(arguments)[0];
  if (is_new) return_free_memory();  // what kernels outgrew
  return logits;
}

std::string Engine::profile(std::span<const PositionedToken> batch) {
  std::string profile;
  pass(batch, smallest_size(batch.size()), LogitsOf::last, {}, &profile);
  return profile;
}

Tensor Engine::last_logits(std::span<const PositionedToken> batch) {
  if (batch.empty()) throw UsageError("llm: no tokens; give at least one");
  Tensor logits;
  while (!batch.empty()) {
    std::size_t size = next_size(batch.size(), device_), taken = std::min(size, batch.size());
    if (const std::size_t whole = sees_images_whole() ? whole_images(batch, taken) : taken; whole != taken) {
      taken = whole;
      size = smallest_size(taken);
    }
    logits = {};  // those of the part before go first
    logits = pass(batch.first(taken), size, LogitsOf::last);
    batch = batch.subspan(taken);
  }
  return logits;
}

Tensor Engine::all_logits(std::span<const PositionedToken> batch) { return whole_pass(batch, LogitsOf::every); }
Tensor Engine::states(std::span<const PositionedToken> batch) { return whole_pass(batch, LogitsOf::none); }
Tensor Engine::whole_pass(std::span<const PositionedToken> batch, LogitsOf wanted) {
  if (batch.empty() || batch.size() > kStepsMax)
    throw InternalError(fmt::format("llm: a pass over {} tokens", batch.size()));
  return pass(batch, smallest_size(batch.size()), wanted);
}

Tensor Engine::next_logits(const Drawing& token, Extent position, int slot) {
  const PositionedToken nothing{text::kNoToken, position, slot};
  return pass({&nothing, 1}, 1, LogitsOf::drawn, token.drawn);
}

std::vector<Draw> Engine::draw(const Tensor& logits, std::span<const DrawRequest> requests) {
  return finish(start_draw(logits, requests), requests.size());
}

Drawing Engine::start_draw(const Tensor& logits, std::span<const DrawRequest> requests) {
  const auto rows = logits.dim(0);
  std::size_t biased = 1;
  for (const DrawRequest& r : requests) biased = std::max(biased, std::bit_ceil(r.sampling->logit_bias.size()));
  const auto count = static_cast<std::size_t>(rows);
  std::vector<float> settings(count * kSampleSettings, 0), bias(count * biased, 0);
  std::vector<std::int32_t> history(count * kHistory, -1), bias_tokens(count * biased, -1);
  std::vector<std::uint32_t> state(count * 4, 0);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const DrawRequest& r = requests[i];
    const Sampling& s = *r.sampling;
    const double values[] = {s.temperature,
                             static_cast<double>(s.top_k),
                             s.typical,
                             s.top_p,
                             s.min_p,
                             s.repetition_penalty,
                             s.frequency_penalty,
                             s.presence_penalty,
                             r.log_probability ? 1.0 : 0.0};
    for (std::size_t j = 0; j < kSampleSettings; ++j) settings[i * kSampleSettings + j] = static_cast<float>(values[j]);
    const bool is_penalised = s.repetition_penalty != 1 || s.frequency_penalty != 0 || s.presence_penalty != 0;
    const std::size_t window =
        is_penalised ? std::min({r.history.size(), static_cast<std::size_t>(s.penalty_window), std::size_t{kHistory}})
                     : 0;
    // Rows of images are not tokens, and so cannot come again.
    std::transform(r.history.end() - static_cast<std::ptrdiff_t>(window), r.history.end(),
                   history.begin() + static_cast<std::ptrdiff_t>(i * kHistory),
                   [](text::TokenId id) { return std::max(id, text::kNoToken); });
    for (std::size_t j = 0; j < s.logit_bias.size(); ++j) {
      bias_tokens[i * biased + j] = s.logit_bias[j].first;
      bias[i * biased + j] = static_cast<float>(s.logit_bias[j].second);
    }
    const std::uint64_t words[] = {r.seed, r.position};
    for (std::size_t j = 0; j < 4; ++j) state[i * 4 + j] = static_cast<std::uint32_t>(words[j / 2] >> (j % 2 * 32));
  }
  if (!sampler_)
    sampler_.emplace([](std::span<const Tensor> a) {
      return std::vector<Tensor>{sample_token(a[0], a[1], a[2], a[3], a[4], a[5])};
    });
  const Extent b = rows, m = static_cast<Extent>(biased), v = logits.dim(1);
  std::vector<Tensor> arguments = {logits,
                                   settings_.of(std::move(settings), {b, kSampleSettings}, device_),
                                   history_.of(std::move(history), {b, kHistory}, device_),
                                   bias_tokens_.of(std::move(bias_tokens), {b, m}, device_),
                                   bias_.of(std::move(bias), {b, m}, device_),
                                   on_device(state, {b, 4}, device_)};
  const auto is_masked = [](const DrawRequest& r) { return r.allowed != nullptr; };
  Drawing drawing;
  if (std::any_of(requests.begin(), requests.end(), is_masked)) {
    // Forbidden tokens are out before bias, penalties and filters.
    std::vector<std::uint8_t> forbidden(count * static_cast<std::size_t>(v), 0);
    for (std::size_t i = 0; i < requests.size(); ++i)
      for (std::size_t token = 0; requests[i].allowed && token < static_cast<std::size_t>(v); ++token)
        forbidden[i * static_cast<std::size_t>(v) + token] = !(*requests[i].allowed)[token];
    arguments.push_back(tensor_from_bytes(forbidden.data(), {b, v}, DType::boolean, device_));
    if (!masked_sampler_)
      masked_sampler_.emplace([](std::span<const Tensor> a) {
        const Tensor left = masked_fill(a[0], a[6], -std::numeric_limits<double>::infinity());
        return std::vector<Tensor>{sample_token(left, a[1], a[2], a[3], a[4], a[5])};
      });
    drawing.drawn = (*masked_sampler_)(arguments)[0];
  } else {
    drawing.drawn = (*sampler_)(arguments)[0];
  }
  backend::Backend& backend = runtime::backend_of(device_);
  drawing.readback = backend.start_download(*runtime::buffer_of(*drawing.drawn.node()), 0, drawing.drawn.numel());
  bool needs_logits = false;
  for (const DrawRequest& r : requests) {
    drawing.tops.push_back(r.top);
    needs_logits = needs_logits || r.top > 0 || (r.log_probability && is_masked(r));
  }
  if (needs_logits) {
    drawing.logits = logits;
    drawing.logits_readback = backend.start_download(*runtime::buffer_of(*logits.node()), 0,
                                                     static_cast<Extent>(requests.size()) * logits.dim(1));
  }
  return drawing;
}

std::vector<Draw> Engine::finish(Drawing drawing, std::size_t count) const {
  std::vector<std::int32_t> drawn(static_cast<std::size_t>(drawing.drawn.numel()));
  if (drawing.readback)
    drawing.readback->finish(drawn.data());
  else
    drawing.drawn.copy_to(drawn.data(), drawn.size() * sizeof drawn[0]);
  std::vector<Draw> draws;
  for (std::size_t i = 0; i < count; ++i) {
    draws.push_back({drawn[2 * i], std::bit_cast<float>(drawn[2 * i + 1]), {}});
  }
  if (drawing.logits.defined()) {
    const auto vocabulary = static_cast<std::size_t>(drawing.logits.dim(1));
    std::vector<float> logits(count * vocabulary);
    if (drawing.logits_readback)
      drawing.logits_readback->finish(logits.data());
    else
      runtime::backend_of(device_).download(*runtime::buffer_of(*drawing.logits.node()), 0,
                                            static_cast<Extent>(logits.size()), DType::f32, logits.data());
    for (std::size_t i = 0; i < count; ++i) {
      const auto row = std::span<const float>(logits).subspan(i * vocabulary, vocabulary);
      const double total = log_total(row);
      if (draws[i].token < 0) continue;
      draws[i].top = most_probable(row, drawing.tops[i], total);
      // The same sum, so that the token has the same log-probability in the list.
      draws[i].log_probability = static_cast<float>(row[static_cast<std::size_t>(draws[i].token)] - total);
    }
  }
  return draws;
}

bool Engine::has_window(int slot, Extent position) const {
  const Extent lost = cached_[static_cast<std::size_t>(slot)].written - ring_;  // positions whose rows have others now
  return ring_ == 0 || position == 0 || std::max<Extent>(position + 1 - config().window, 0) >= lost;
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
  if (!batch.empty()) last_logits(batch);
  cached(slot) = held;
}

void Engine::keep_states(int slot) {
  const std::vector<text::TokenId>& held = cached(slot);
  if (!checkpoints_ || checkpoints_->is_off() || held.empty() || checkpoints_->has(held, slot)) return;
  if (static_cast<Extent>(held.size()) != cached_[static_cast<std::size_t>(slot)].written) return;
  if (!save_states_)
    save_states_.emplace([this](std::span<const Tensor> arguments) {
      std::vector<Tensor> rows;
      for (const std::string& name : state_names_) rows.push_back(embedding(caches_.at(name).value(), arguments[0]));
      return rows;
    });
  const std::vector<Tensor> arguments = {on_device(std::vector<std::int32_t>{slot}, {1}, device_)};
  checkpoints_->add({held, slot, (*save_states_)(arguments)});
}

void Engine::keep_states_sometimes(int slot) {
  if (checkpoints_ && cached(slot).size() % kStateInterval == 0) keep_states(slot);
}

std::size_t Engine::restore_states(int slot, std::span<const text::TokenId> prompt, std::size_t same,
                                   std::size_t more_than) {
  // Keys and values of attention are those of this sequence, up to `same`; states alone may be those of any.
  const std::size_t longest = has_keys_ ? same : prompt.size() - 1;
  const StateCheckpoints::Checkpoint* found = checkpoints_->best(prompt, longest, has_keys_ ? slot : -1);
  if (!found || found->tokens.size() <= more_than) return 0;
  if (!restore_states_)
    restore_states_.emplace([this](std::span<const Tensor> arguments) {
      for (std::size_t i = 0; i < state_names_.size(); ++i) {
        Variable& state = caches_.at(state_names_[i]);
        state.assign(write_rows(state, arguments[i + 1], arguments[0], CacheType::f32));
      }
      return std::vector<Tensor>{arguments[0] + 0};
    });
  std::vector<Tensor> arguments = {on_device(std::vector<std::int32_t>{slot}, {1}, device_)};
  arguments.insert(arguments.end(), found->states.begin(), found->states.end());
  (*restore_states_)(arguments);
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
  if (has_states_) {
    const bool goes_on = static_cast<Extent>(same) == cached_[static_cast<std::size_t>(slot)].written;
    const std::size_t restored = restore_states(slot, prompt, same, goes_on ? same : 0);
    if (restored > 0 || !goes_on) same = restored;
  }
  held.resize(same);
  return static_cast<Extent>(same);
}

}  // namespace weft::llm::detail
