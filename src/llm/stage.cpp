#include "llm/stage.hpp"

#include <algorithm>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include "runtime/devices.hpp"
#include "runtime/evaluate.hpp"
#include "weft/error.hpp"
#include "weft/ops.hpp"
#include "weft/ops/indexing.hpp"

namespace weft::llm::detail {
namespace {

std::uint64_t value_bytes(const Tensor& tensor) {
  return static_cast<std::uint64_t>(tensor.numel()) * size_bytes(tensor.dtype());
}

}  // namespace

void return_free_memory() {
#if defined(__GLIBC__)
  malloc_trim(0);
#endif
}

Extent StageSettings::rows_of(const TensorDesc& tensor, Extent positions) const {
  if (tensor.storage == TensorStorage::state) return 1;
  return ring > 0 && tensor.shape[0].symbol == Symbol::recent ? std::min(ring, positions) : positions;
}

Stage::Stage(ModelGraph graph, Device device, bool is_first, bool is_last)
    : graph_(std::move(graph)),
      device_(device),
      is_first_(is_first),
      is_last_(is_last),
      reads_images_(std::any_of(graph_.nodes.begin(), graph_.nodes.end(), [&](const OpNode& node) {
        return std::find(node.inputs.begin(), node.inputs.end(), graph_.image_rows) != node.inputs.end();
      })) {}

void Stage::load(const TensorNames& names, const LoadProgress& progress, const PackedFileRules& rules) {
  weights_ = load_weights(graph_, names, device_, progress, rules);
}

void Stage::plan_weights(const TensorNames& names) { weights_ = planned_weights(graph_, names, device_); }

namespace {

/// Rows of `from` numbers with zeros behind them.
std::vector<float> with_columns(std::vector<float> values, Extent from, Extent to) {
  if (from == to) return values;
  const auto rows = values.size() / static_cast<std::size_t>(from);
  std::vector<float> wide(rows * static_cast<std::size_t>(to));
  for (std::size_t row = 0; row < rows; ++row)
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(row * static_cast<std::size_t>(from)), from,
                wide.begin() + static_cast<std::ptrdiff_t>(row * static_cast<std::size_t>(to)));
  return wide;
}

}  // namespace

void Stage::load_adapters(std::span<const LowRank> changes) {
  const auto put = [&](const std::string& name, const std::vector<float>& values, const Shape& shape) {
    if (!graph_.find(name)) return;
    weights_.weights[name] = {on_device(values, shape, device_).named(name)};
    weights_.bytes += values.size() * sizeof(float);
  };
  const auto put_packed = [&](const std::string& name, const std::vector<float>& values, const Shape& shape) {
    if (!graph_.find(name)) return;
    weights_.weights[name] = packed_experts(values, shape, device_).named(name);
    weights_.bytes += packed_size(weights_.weights[name]);
  };
  const bool packs = can_pack(BlockType::f32, device_);
  for (const LowRank& change : changes) {
    if (change.experts > 0) {
      // The columns of B are padded to as many as a packed A has rows.
      const Extent rank = packs ? padded_rows_of_experts(change.rank) : change.rank;
      const auto put_either = [&](const std::string& name, const std::vector<float>& values, const Shape& shape) {
        packs ? put_packed(name, values, shape) : put(name, values, shape);
      };
      put_either(low_rank_a(change.node), change.a, {change.experts, change.rank, change.in});
      put_either(low_rank_b(change.node), with_columns(change.scaled_b(), change.rank, rank),
                 {change.experts, change.out, rank});
      continue;
    }
    put(low_rank_a(change.node), change.a, {change.rank, change.in});
    put(low_rank_b(change.node), change.scaled_b(), {change.out, change.rank});
    if (change.has_gain()) put(low_rank_gain(change.node), change.gain, {change.out});
  }
}

void Stage::make_caches(const StageSettings& settings, bool is_planned) {
  settings_ = settings;
  frequencies_ = on_device(settings.frequencies, settings.frequencies_shape, device_);
  local_frequencies_ = on_device(settings.local_frequencies, settings.local_frequencies_shape, device_);
  if (!settings.axes.empty()) axes_ = on_device(settings.axes, {3, settings.frequencies_shape[1]}, device_);
  // Uninitialised memory is fine: rows that no token was written to are never read.
  for (const TensorDesc& tensor : graph_.tensors) {
    const bool is_state = tensor.storage == TensorStorage::state;
    if (tensor.storage != TensorStorage::kv_cache && !is_state) continue;
    const Tensor like = empty_cache(settings.rows_of(tensor, settings.context) * settings.slots, tensor.shape[1].value,
                                    is_state ? CacheType::f32 : settings.cache_type, device_);
    const auto bytes = is_planned ? 0 : static_cast<std::size_t>(value_bytes(like));
    const Tensor memory(
        runtime::data_node(like.dtype(), like.shape(), device_, runtime::allocate(device_, bytes, tensor.name)));
    caches_.emplace(tensor.name, Variable(memory, tensor.name, false));
    if (is_state) state_names_.push_back(tensor.name);
  }
}

bool Stage::has_keys() const { return caches_.size() > state_names_.size(); }

std::vector<Tensor> Stage::states_of(int slot) {
  if (state_names_.empty()) return {};
  if (!save_states_)
    save_states_.emplace([this](std::span<const Tensor> arguments) {
      std::vector<Tensor> rows;
      for (const std::string& name : state_names_) rows.push_back(embedding(caches_.at(name).value(), arguments[0]));
      return rows;
    });
  const std::vector<Tensor> arguments = {on_device(std::vector<std::int32_t>{slot}, {1}, device_)};
  return (*save_states_)(arguments);
}

void Stage::set_states(int slot, std::span<const Tensor> states) {
  if (state_names_.empty()) return;
  if (!restore_states_)
    restore_states_.emplace([this](std::span<const Tensor> arguments) {
      for (std::size_t i = 0; i < state_names_.size(); ++i) {
        Variable& state = caches_.at(state_names_[i]);
        state.assign(write_rows(state, arguments[i + 1], arguments[0], CacheType::f32));
      }
      return std::vector<Tensor>{arguments[0] + 0};
    });
  std::vector<Tensor> arguments = {on_device(std::vector<std::int32_t>{slot}, {1}, device_)};
  arguments.insert(arguments.end(), states.begin(), states.end());
  (*restore_states_)(arguments);
}

bool Stage::runs_beside_host() const { return runtime::backend_of(device_).describe().runs_beside_host; }

std::uint64_t Stage::cache_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [name, cache] : caches_)
    bytes += static_cast<std::uint64_t>(cache.numel()) * size_bytes(cache.dtype());
  return bytes;
}

std::uint64_t Stage::position_bytes(int slots, CacheType type) const {
  std::uint64_t bytes = 0;
  for (const TensorDesc& tensor : graph_.tensors)
    if (tensor.storage == TensorStorage::kv_cache)
      bytes += value_bytes(empty_cache(slots, tensor.shape[1].value, type, device_));
  return bytes;
}

std::uint64_t Stage::state_bytes(int slots) const {
  std::uint64_t bytes = 0;
  for (const TensorDesc& tensor : graph_.tensors)
    if (tensor.storage == TensorStorage::state)
      bytes += static_cast<std::uint64_t>(tensor.shape[1].value * slots) * sizeof(float);
  return bytes;
}

Extent Stage::first_layer() const {
  for (const OpNode& node : graph_.nodes)
    if (node.layer >= 0) return node.layer;
  return 0;
}

Extent Stage::layer_count() const {
  Extent last = -1;
  for (const OpNode& node : graph_.nodes) last = std::max(last, node.layer);
  return last + 1 - first_layer();
}

/// Before the head, passes are the same whatever is wanted of them.
PassKind Stage::own(PassKind kind) const {
  if (!is_last_) kind.wanted = LogitsOf::every;
  return kind;
}

Compiled& Stage::compiled(const PassKind& kind) {
  if (auto it = passes_.find(kind); it != passes_.end()) return it->second;
  const auto trace = [this, kind](std::span<const Tensor> arguments) {
    const auto numbers = [&](Extent row) { return select(arguments[1], 0, row); };
    PassInputs inputs{.tokens = kind.wanted == LogitsOf::drawn ? select(arguments[0], 1, 0) : arguments[0],
                      .positions = numbers(0),
                      .length = numbers(1),
                      .all = {numbers(2), numbers(3)}};
    if (settings_.ring > 0) inputs.ring = {numbers(4), numbers(5)};
    Extent list = settings_.ring > 0 ? 6 : 4;
    if (settings_.has_states) {
      inputs.states = {numbers(list), numbers(list + 1), narrow(numbers(list + 2), 0, 0, 1), kind.is_one_sequence};
      list += 3;
    }
    if (settings_.has_two_factors) inputs.factors = numbers(list++);
    if (kind.has_images) {
      inputs.is_image = numbers(list++);
      if (axes_.defined()) {
        inputs.height = numbers(list++);
        inputs.width = numbers(list++);
      }
      if (settings_.sees_images_whole) {
        inputs.window_first = numbers(list++);
        inputs.window_length = numbers(list++);
      }
      if (reads_images_) inputs.image_rows = arguments.back();
    }
    if (kind.wanted == LogitsOf::last) inputs.rows = arguments[2];
    inputs.stops_before_head = kind.wanted == LogitsOf::none;
    return std::vector<Tensor>{lower({graph_, weights_, caches_, settings_.cache_type, settings_.ring, settings_.exact,
                                      frequencies_, local_frequencies_, settings_.magnitude, axes_},
                                     inputs)};
  };
  return passes_.emplace(kind, Compiled(trace)).first->second;
}

std::vector<Tensor> Stage::arguments(const PassNumbers& numbers, const Tensor& states) const {
  const PassKind kind = own(numbers.kind);
  const auto count = static_cast<Extent>(kind.size), lists = static_cast<Extent>(numbers.lists.size()) / count;
  std::vector<Tensor> arguments;
  if (!is_first_)
    arguments.push_back(states);
  else if (kind.wanted == LogitsOf::drawn)
    arguments.push_back(numbers.drawn.to(device_));
  else
    arguments.push_back(on_device(numbers.tokens, {count}, device_));
  arguments.push_back(on_device(numbers.lists, {lists, count}, device_));
  if (kind.wanted == LogitsOf::last) arguments.push_back(on_device(std::vector{numbers.last}, {1}, device_));
  if (kind.has_images && reads_images_)
    arguments.push_back(
        on_device(numbers.image_rows, {count, static_cast<Extent>(numbers.image_rows.size()) / count}, device_));
  return arguments;
}

Tensor Stage::run(const PassNumbers& numbers, const Tensor& states, std::string* profile) {
  const PassKind kind = own(numbers.kind);
  const std::vector<Tensor> given = arguments(numbers, states);
  const bool is_new = !passes_.contains(kind);
  if (is_new) {
    const runtime::WithoutPlans lean;
    compiled(kind).prepare(given);
    return_free_memory();
  }
  if (profile) *profile += compiled(kind).profile(given);
  Tensor result = compiled(kind)(given)[0];
  if (is_new) return_free_memory();  // what kernels outgrew
  return result;
}

std::uint64_t Stage::planned_pass_bytes(std::size_t size) {
  const PassNumbers numbers{.kind = {size, LogitsOf::last, false, settings_.has_states},
                            .tokens = std::vector<std::int32_t>(size, 0),
                            .lists = std::vector<std::int32_t>(settings_.lists() * size, 0)};
  const auto rows = static_cast<Extent>(size);
  const Tensor states = is_first_
                            ? Tensor()
                            : on_device(std::vector<float>(size * static_cast<std::size_t>(graph_.config.hidden), 0),
                                        {rows, graph_.config.hidden}, device_);
  const runtime::WithoutPlans lean;
  Compiled& pass = compiled(own(numbers.kind));
  pass.prepare(arguments(numbers, states));
  const Extent results = is_last_ ? graph_.config.vocabulary : rows * graph_.config.hidden;
  return pass.scratch_bytes() + static_cast<std::uint64_t>(results) * sizeof(float);
}

std::uint64_t Stage::scratch_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [kind, pass] : passes_) bytes += pass.scratch_bytes();
  return bytes;
}

}  // namespace weft::llm::detail
