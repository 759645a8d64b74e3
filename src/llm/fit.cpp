// The report of `weft inspect --fit`: sizes from the graph of a model, and the memory of its plans.
#include "weft/llm_fit.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/processors.hpp"
#include "graph/cache.hpp"
#include "io/quantised_folder.hpp"
#include "llm/engine.hpp"
#include "llm/merge_folder.hpp"
#include "llm/placement.hpp"
#include "runtime/devices.hpp"
#include "weft/error.hpp"

namespace weft::llm {
namespace {

constexpr Extent kContextStep = 256;  // of contexts that are proposed

/// Bytes of a part's cache for these positions.
std::uint64_t cache_bytes_of(const detail::Engine& engine, const ModelGraph& part, CacheType type, Extent context) {
  std::uint64_t bytes = 0;
  for (const TensorDesc& tensor : part.tensors) {
    if (tensor.storage != TensorStorage::kv_cache) continue;
    const auto elements = static_cast<std::uint64_t>(graph::row_elements(type, tensor.shape[1].value));
    bytes += elements * size_bytes(graph::dtype_of_cache(type)) *
             static_cast<std::uint64_t>(engine.settings().rows_of(tensor, context) * engine.slots());
  }
  return bytes;
}
std::uint64_t cache_bytes_of(const detail::Engine& engine, CacheType type, Extent context) {
  return cache_bytes_of(engine, engine.graph(), type, context);
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
    for (std::size_t i = 0; i < tensor.keys.size(); ++i) {
      const io::SourceTensor& found = names.part(tensor, i);
      if (!rows_divide(type, found.shape.back()) || !can_pack(type, engine.device())) continue;
      const std::uint64_t now = found.type == BlockType::f32 ? static_cast<std::uint64_t>(found.shape.numel()) * 4
                                                             : found.size_bytes(),
                          then = bytes_for(type, found.shape, found.name);
      if (then < now) bytes -= std::min(bytes, now - then);
    }
  }
  return bytes;
}

LargestBuffer largest_of(const detail::Engine& engine, const detail::Stage& stage, CacheType type) {
  LargestBuffer largest;
  const auto add = [&](const std::string& name, std::uint64_t bytes) {
    if (bytes > largest.bytes) largest = {name, bytes};
  };
  for (const auto& [name, weight] : stage.weights().weights)
    add(name, is_packed_matrix(weight) ? packed_size(weight)
                                       : static_cast<std::uint64_t>(weight.numel()) * size_bytes(weight.dtype()));
  for (const TensorDesc& tensor : stage.graph().tensors) {
    const auto rows = static_cast<std::uint64_t>(engine.slots());
    if (tensor.storage == TensorStorage::state)
      add(tensor.name, static_cast<std::uint64_t>(tensor.shape[1].value) * rows * sizeof(float));
    if (tensor.storage == TensorStorage::kv_cache)
      add(tensor.name, static_cast<std::uint64_t>(graph::row_elements(type, tensor.shape[1].value)) *
                           size_bytes(graph::dtype_of_cache(type)) * rows *
                           static_cast<std::uint64_t>(engine.settings().rows_of(tensor, engine.context())));
  }
  if (stage.device().kind == Device::Kind::webgpu) {
    const auto& description = runtime::backend_of(stage.device()).describe();
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
  io::TensorSource source = io::with_quantised_layers(io::TensorSource::open(path));
  if (std::optional<io::TensorSource> changed = with_changed_tensors(source, options)) source = std::move(*changed);
  const TensorNames names(source);
  detail::Engine engine(source, options, detail::Engine::Planned());
  FitReport report{
      .device = engine.device(), .context = engine.context(), .sequences = engine.slots(), .cache = options.cache};
  if (engine.image_reader()) report.tower = engine.image_reader()->bytes();
  const auto is_on_host = [](const auto& stage) { return stage->device().kind == Device::Kind::cpu; };
  const auto on_host =
      static_cast<std::uint64_t>(std::count_if(engine.stages().begin(), engine.stages().end(), is_on_host));
  for (std::size_t i = 0; i < engine.stages().size(); ++i) {
    const detail::Stage& stage = *engine.stages()[i];
    FitPart part{.device = stage.device(), .first_layer = stage.first_layer(), .layers = stage.layer_count()};
    part.need = {.weights = engine.weight_bytes(i),
                 .cache = cache_bytes_of(engine, stage.graph(), options.cache, engine.context()),
                 .states = stage.state_bytes(engine.slots()),
                 .passes = engine.planned_pass_bytes(i)};
    if (const std::uint64_t limit = memory_limit(options, part.device); limit > 0)
      part.available = limit;
    else if (is_on_host(engine.stages()[i]))
      part.available = free_memory() / on_host;
    const LargestBuffer largest = largest_of(engine, stage, options.cache);
    const bool is_too_large = largest.limit > 0 && largest.bytes > largest.limit;
    if (is_too_large || (report.fits && largest.bytes > report.largest.bytes)) report.largest = largest;
    part.fits = !is_too_large && (!part.available || part.need.total() <= *part.available);
    report.need.weights += part.need.weights;
    report.need.cache += part.need.cache;
    report.need.states += part.need.states;
    report.need.passes += part.need.passes;
    report.fits = report.fits && part.fits;
    report.available = i == 0                               ? part.available
                       : report.available && part.available ? std::optional(*report.available + *part.available)
                                                            : std::nullopt;
    report.parts.push_back(std::move(part));
  }
  if (report.parts.size() == 1 && report.available && report.need.total() > *report.available)
    report.changes = changes_of(report, engine, names, *report.available);
  return report;
}

std::string FitReport::to_string() const {
  std::string text;
  const auto row = [&](std::string_view name, std::uint64_t bytes, std::string_view note) {
    text += fmt::format("  {:<12} {:>12.1f} MB{}{}\n", name, static_cast<double>(bytes) / 1e6, note.empty() ? "" : "  ",
                        note);
  };
  row("weights", need.weights,
      tower > 0 ? fmt::format("{:.1f} MB of them see images", static_cast<double>(tower) / 1e6) : "");
  if (need.cache > 0)
    row("cache", need.cache,
        fmt::format("{} position{} of {} sequence{}, {}", context, context == 1 ? "" : "s", sequences,
                    sequences == 1 ? "" : "s", graph::name_of(cache)));
  if (need.states > 0) row("states", need.states, fmt::format("{} sequence{}", sequences, sequences == 1 ? "" : "s"));
  row("passes", need.passes, "activations and scratch, as planned");
  std::string devices;
  for (const FitPart& part : parts) devices += (devices.empty() ? "" : ", ") + part.device.to_string();
  row("all", need.total(), devices);
  if (parts.size() > 1) {
    for (const FitPart& part : parts) {
      row(fmt::format("layers {}-{}", part.first_layer, part.first_layer + part.layers - 1), part.need.total(),
          fmt::format("{}: {:.1f} weights, {:.1f} cache and states, {:.1f} passes", part.device.to_string(),
                      static_cast<double>(part.need.weights) / 1e6,
                      static_cast<double>(part.need.cache + part.need.states) / 1e6,
                      static_cast<double>(part.need.passes) / 1e6));
      if (part.available) row("available", *part.available, part.fits ? "the part fits" : "the part does not fit");
    }
    if (!fits) return text + "the model does not fit: change --split, --layers or --context, or add a device\n";
    return text;
  }
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
