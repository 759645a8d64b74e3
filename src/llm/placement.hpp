// Where a model's layers are: the devices, how many layers each takes, and how much memory it may use.
#pragma once

#include <cstdint>
#include <vector>

#include "llm/weights.hpp"
#include "weft/llm.hpp"

namespace weft::llm {

/// The devices of the options: `devices`, or `device` alone.
std::vector<Device> devices_of(const LoadOptions& options);
/// Layers of each device. Errors: UsageError for shares or numbers of layers that do not fit the devices or the model.
std::vector<Extent> layers_of_devices(const ModelGraph& graph, const TensorNames& names, const LoadOptions& options);
/// Bytes that weights and cache may take on a device; 0: no limit.
std::uint64_t memory_limit(const LoadOptions& options, Device device);
/// Rows of a sequence in caches of layers with a window, if the cache keeps `context` positions; 0: all of them.
Extent ring_of(const ModelGraph& graph, const LoadOptions& options, Extent context);

/// The longest pass.
inline constexpr Extent kPassTokensMax = 512;

}  // namespace weft::llm
