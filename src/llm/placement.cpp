#include "llm/placement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "graph/cache.hpp"
#include "parallel/contiguous_parts.hpp"
#include "weft/error.hpp"

namespace weft::llm {
namespace {

// Positions whose cache the division counts where no context is asked for.
constexpr Extent kCountedContext = 4096;

/// Bytes on one device: of what is before the layers, of all layers before each one, and of what is behind them.
struct LayerBytes {
  double before = 0, behind = 0;
  std::vector<double> layers_before;

  double of(Extent first, Extent last) const {
    const Extent layers = static_cast<Extent>(layers_before.size()) - 1;
    return layers_before[static_cast<std::size_t>(last)] - layers_before[static_cast<std::size_t>(first)] +
           (first == 0 ? before : 0) + (last == layers ? behind : 0);
  }
};

LayerBytes layer_bytes(const ModelGraph& graph, const TensorNames& names, const LoadOptions& options, Device device) {
  const Extent context = options.context > 0 ? options.context : std::min(graph.config.context, kCountedContext),
               ring = ring_of(graph, options, context);
  const auto bytes_of = [&](const TensorDesc& tensor) -> std::uint64_t {
    const auto cached = [&](CacheType type, Extent rows) {
      return static_cast<std::uint64_t>(graph::row_elements(type, tensor.shape[1].value) * rows * options.sequences) *
             size_bytes(graph::dtype_of_cache(type));
    };
    switch (tensor.storage) {
      case TensorStorage::constant: return weight_bytes(tensor, names, device);
      case TensorStorage::kv_cache:
        return cached(options.cache, ring > 0 && tensor.shape[0].symbol == Symbol::recent ? ring : context);
      case TensorStorage::state: return cached(CacheType::f32, 1);
      case TensorStorage::adapter:
        return static_cast<std::uint64_t>(tensor.shape[0].value * tensor.shape[1].value) * sizeof(float);
      case TensorStorage::activation: return 0;
    }
    return 0;
  };
  LayerBytes bytes;
  std::vector<double> layers(static_cast<std::size_t>(graph.config.layers), 0);
  std::set<std::string_view> counted;  // of the layer, or of what is before the layers or behind them
  Extent layer = -1;
  bool is_behind = false;
  for (const OpNode& node : graph.nodes) {
    if (node.layer != layer) counted.clear();
    is_behind = is_behind || node.layer >= 0;
    layer = node.layer;
    double& sum = layer >= 0 ? layers[static_cast<std::size_t>(layer)] : is_behind ? bytes.behind : bytes.before;
    for (const std::string& name : node.inputs)
      if (counted.insert(name).second) sum += static_cast<double>(bytes_of(graph.at(name)));
  }
  bytes.layers_before.assign(1, 0);
  for (const double each : layers) bytes.layers_before.push_back(bytes.layers_before.back() + each);
  return bytes;
}

std::vector<Extent> given_layers(const LoadOptions& options, Extent layers, std::size_t devices) {
  std::vector<Extent> given = options.layers;
  const Extent sum = std::accumulate(given.begin(), given.end(), Extent{0});
  if (given.size() + 1 == devices) given.push_back(layers - sum);
  const bool fits = given.size() == devices && std::accumulate(given.begin(), given.end(), Extent{0}) == layers;
  if (!fits || std::any_of(given.begin(), given.end(), [](Extent n) { return n < 1; }))
    throw UsageError(fmt::format(
        "llm::load: numbers of layers for {} devices, {} layers in all, and the model has {}; give each device at "
        "least one layer, or leave the last number out, and the last device takes the rest",
        devices, sum, layers));
  return given;
}

}  // namespace

std::vector<Device> devices_of(const LoadOptions& options) {
  return options.devices.empty() ? std::vector{options.device} : options.devices;
}

Extent ring_of(const ModelGraph& graph, const LoadOptions& options, Extent context) {
  const auto is_recent = [](const TensorDesc& tensor) {
    return !tensor.shape.empty() && tensor.shape[0].symbol == Symbol::recent;
  };
  // A pass is written before it is read, so a ring holds a window and the longest pass. Shorter ones leave room to go back.
  // What a row of an image sees of a window is not a window of the rows behind it, as rings need.
  const Extent rows = graph.config.window + kPassTokensMax;
  const bool has_ring = !options.whole_cache && !graph.config.sees_images_whole && rows < context &&
                        std::any_of(graph.tensors.begin(), graph.tensors.end(), is_recent);
  return has_ring ? rows : 0;
}

std::uint64_t memory_limit(const LoadOptions& options, Device device) {
  const std::vector<Device> devices = devices_of(options);
  const auto is_cpu = [](Device each) { return each.kind == Device::Kind::cpu; };
  // The CPU beside GPUs takes what they have no room for.
  if (is_cpu(device) && !std::all_of(devices.begin(), devices.end(), is_cpu)) return 0;
  return options.device_memory;
}

std::vector<Extent> layers_of_devices(const ModelGraph& graph, const TensorNames& names, const LoadOptions& options) {
  const std::vector<Device> devices = devices_of(options);
  const Extent layers = graph.config.layers;
  if (devices.size() == 1) {
    if (!options.split.empty() || !options.layers.empty())
      throw UsageError("llm::load: shares of devices are given, and there is one device; name several");
    return {layers};
  }
  if (static_cast<Extent>(devices.size()) > layers)
    throw UsageError(
        fmt::format("llm::load: {} devices for a model of {} layers; each takes at least one layer, so name "
                    "fewer",
                    devices.size(), layers));
  if (!options.split.empty() && !options.layers.empty())
    throw UsageError("llm::load: shares of bytes and numbers of layers are both given; leave one of them out");
  if (!options.layers.empty()) return given_layers(options, layers, devices.size());
  const auto is_share = [](double share) { return std::isfinite(share) && share > 0; };
  if (!options.split.empty() &&
      (options.split.size() != devices.size() || !std::all_of(options.split.begin(), options.split.end(), is_share)))
    throw UsageError(fmt::format("llm::load: {} shares for {} devices; give each a number above 0",
                                 options.split.size(), devices.size()));
  std::vector<LayerBytes> bytes;
  for (const Device device : devices) bytes.push_back(layer_bytes(graph, names, options, device));
  const auto load = [&](std::size_t device, Extent first, Extent last) {
    const double own = bytes[device].of(first, last);
    if (!options.split.empty()) return own / options.split[device];
    if (options.device_memory == 0) return own;
    const auto limit = static_cast<double>(memory_limit(options, devices[device]));
    // Beside GPUs with a limit, the CPU takes as little as they leave: below the limit a GPU's load hardly counts.
    if (limit == 0) return own / bytes[device].of(0, layers);
    constexpr double kFree = 1e-6;
    return own <= limit ? kFree * own / limit : own / limit;
  };
  return parallel::choose_layers(layers, devices.size(), load);
}

}  // namespace weft::llm
