// The report of `weft inspect --fit`: sizes from the graph of a model, and the memory of its plans.
#include "weft/llm_fit.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/processors.hpp"
#include "graph/cache.hpp"
#include "io/quantised_folder.hpp"
#include "llm/engine.hpp"
#include "weft/error.hpp"

namespace weft::llm {
namespace {

constexpr Extent kContextStep = 256;  // of contexts that are proposed

/// Bytes of the cache for these positions.
std::uint64_t cache_bytes_of(const detail::Engine& engine, CacheType type, Extent context) {
  std::uint64_t bytes = 0;
  for (const TensorDesc& tensor : engine.graph().tensors) {
    if (tensor.storage != TensorStorage::kv_cache) continue;
    const auto elements = static_cast<std::uint64_t>(graph::row_elements(type, tensor.shape[1].value));
    bytes += elements * size_bytes(graph::dtype_of_cache(type)) *
             static_cast<std::uint64_t>(engine.rows_of(tensor, context) * engine.slots());
  }
  return bytes;
}

bool can_hold(const detail::Engine& engine, CacheType type) {
  return std::all_of(engine.graph().tensors.begin(), engine.graph().tensors.end(), [&](const TensorDesc& tensor) {
    return tensor.storage != TensorStorage::kv_cache || graph::row_elements(type, tensor.shape[1].value) > 0;
  });
}

/// Bytes of the weights if matrices of wider types were quantised to this one.
std::uint64_t weights_in(const detail::Engine& engine, const TensorNames& names, BlockType type) {
  std::uint64_t bytes = engine.weight_bytes();
  for (const TensorDesc& tensor : engine.graph().tensors) {
    if (tensor.element != Element::weight || tensor.keys.empty()) continue;
    for (const std::string& key : tensor.keys) {
      const io::SourceTensor& found = *names.find(key);
      if (!rows_divide(type, found.shape.back()) || !can_pack(type, engine.device())) continue;
      const std::uint64_t now = found.type == BlockType::f32 ? static_cast<std::uint64_t>(found.shape.numel()) * 4
                                                             : found.size_bytes(),
                          then = bytes_for(type, found.shape, found.name);
      if (then < now) bytes -= std::min(bytes, now - then);
    }
  }
  return bytes;
}

LargestBuffer largest_of(const detail::Engine& engine, CacheType type) {
  LargestBuffer largest;
  const auto add = [&](const std::string& name, std::uint64_t bytes) {
    if (bytes > largest.bytes) largest = {name, bytes};
  };
  for (const auto& [name, weight] : engine.weights().weights)
    for (const Tensor& each : weight)
      add(name, is_packed_matrix(each) ? packed_size(each)
                                       : static_cast<std::uint64_t>(each.numel()) * size_bytes(each.dtype()));
  for (const TensorDesc& tensor : engine.graph().tensors) {
    const auto rows = static_cast<std::uint64_t>(engine.slots());
    if (tensor.storage == TensorStorage::state)
      add(tensor.name, static_cast<std::uint64_t>(tensor.shape[1].value) * rows * sizeof(float));
    if (tensor.storage == TensorStorage::kv_cache)
      add(tensor.name, static_cast<std::uint64_t>(graph::row_elements(type, tensor.shape[1].value)) *
                           size_bytes(graph::dtype_of_cache(type)) * rows *
                           static_cast<std::uint64_t>(engine.rows_of(tensor, engine.context())));
  }
  if (engine.device().kind == Device::Kind::webgpu) {
    const auto& description = runtime::backend_of(engine.device()).describe();
    largest.limit = std::min(description.buffer_bytes_max, description.binding_bytes_max);
  }
  return largest;
}

std::vector<FitChange> changes_of(const FitReport& report, const detail::Engine& engine, const TensorNames& names,
                                  std::uint64_t available) {
  std::vector<FitChange> changes;
  const MemoryNeed& need = report.need;
  const auto add = [&](std::string change, std::uint64_t bytes) {
    if (bytes < need.total()) changes.push_back({std::move(change), bytes, bytes <= available});
  };
  const std::uint64_t rest = need.total() - need.cache;
  CacheType smallest = report.cache;
  for (const CacheType type : {CacheType::f16, CacheType::q8}) {
    if (type <= report.cache || !can_hold(engine, type)) continue;
    add(fmt::format("--cache {}", graph::name_of(type)), rest + cache_bytes_of(engine, type, report.context));
    smallest = type;
  }
  // The longest context that fits, with the cache as it is and with the smallest.
  for (const CacheType type : {report.cache, smallest}) {
    Extent low = 0, high = report.context / kContextStep;
    while (low < high) {
      const Extent middle = (low + high + 1) / 2;
      if (rest + cache_bytes_of(engine, type, middle * kContextStep) <= available)
        low = middle;
      else
        high = middle - 1;
    }
    const Extent context = std::max<Extent>(low, 1) * kContextStep;
    if (context < report.context)
      add(fmt::format("--context {}{}", context,
                      type == report.cache ? "" : fmt::format(" --cache {}", graph::name_of(type))),
          rest + cache_bytes_of(engine, type, context));
    if (smallest == report.cache) break;
  }
  for (const BlockType type : {BlockType::q8_0, BlockType::q4_k, BlockType::q4_0})
    add(fmt::format("weft quantize --type {}", file_name_of(type)),
        need.total() - need.weights + weights_in(engine, names, type));
  return changes;
}

}  // namespace

FitReport fit(const std::filesystem::path& path, const LoadOptions& options) {
  const io::TensorSource source = io::with_quantised_layers(io::TensorSource::open(path));
  const TensorNames names(source);
  const std::uint64_t available = options.device_memory > 0 ? options.device_memory : free_memory();
  detail::Engine engine(source, options, detail::Engine::Planned());
  FitReport report{
      .device = engine.device(), .context = engine.context(), .sequences = engine.slots(), .cache = options.cache};
  report.need.weights = engine.weight_bytes();
  report.need.cache = cache_bytes_of(engine, options.cache, engine.context());
  for (const TensorDesc& tensor : engine.graph().tensors)
    if (tensor.storage == TensorStorage::state)
      report.need.states += static_cast<std::uint64_t>(tensor.shape[1].value * engine.slots()) * sizeof(float);
  report.need.passes = engine.planned_pass_bytes();
  if (options.device_memory > 0 || engine.device().kind == Device::Kind::cpu) report.available = available;
  report.largest = largest_of(engine, options.cache);
  const bool is_too_large = report.largest.limit > 0 && report.largest.bytes > report.largest.limit;
  report.fits = !is_too_large && (!report.available || report.need.total() <= *report.available);
  if (report.available && report.need.total() > *report.available)
    report.changes = changes_of(report, engine, names, *report.available);
  return report;
}

std::string FitReport::to_string() const {
  std::string text;
  const auto row = [&](std::string_view name, std::uint64_t bytes, std::string_view note) {
    text += fmt::format("  {:<12} {:>12.1f} MB{}{}\n", name, static_cast<double>(bytes) / 1e6, note.empty() ? "" : "  ",
                        note);
  };
  row("weights", need.weights, "");
  if (need.cache > 0)
    row("cache", need.cache,
        fmt::format("{} position{} of {} sequence{}, {}", context, context == 1 ? "" : "s", sequences,
                    sequences == 1 ? "" : "s", graph::name_of(cache)));
  if (need.states > 0) row("states", need.states, fmt::format("{} sequence{}", sequences, sequences == 1 ? "" : "s"));
  row("passes", need.passes, "activations and scratch, as planned");
  row("all", need.total(), device.to_string());
  if (largest.limit > 0)
    row("largest", largest.bytes,
        fmt::format("{}; the device takes {:.1f} MB in one buffer{}", largest.name,
                    static_cast<double>(largest.limit) / 1e6,
                    largest.bytes > largest.limit ? ": too large; smaller types, or a shorter context" : ""));
  if (!available) return text + "the device does not tell how much memory it has; --device-memory says it\n";
  row("available", *available, need.total() <= *available ? "the model fits" : "the model does not fit");
  for (const FitChange& each : changes) row(each.fits ? "fits with" : "smaller with", each.bytes, each.change);
  return text;
}

}  // namespace weft::llm
