#include "backend/webgpu/adapter.hpp"

#include <fmt/format.h>

#include "weft/error.hpp"

namespace weft::webgpu {

std::string_view name_of(AdapterType type) {
  switch (type) {
    case AdapterType::discrete: return "discrete GPU";
    case AdapterType::integrated: return "integrated GPU";
    case AdapterType::software: return "software";
    case AdapterType::unknown: break;
  }
  return "unknown type";
}

std::string describe(const AdapterInfo& adapter) {
  return fmt::format("{} ({}, {}{}{})", adapter.name, name_of(adapter.type), adapter.backend,
                     adapter.driver.empty() ? "" : ", ", adapter.driver);
}

std::size_t choose_adapter(std::span<const AdapterInfo> adapters, int index) {
  for (std::size_t i = 0; i < adapters.size(); ++i)
    if (index < 0 ? adapters[i].type != AdapterType::software : adapters[i].index == index) return i;
  std::string found;
  for (const AdapterInfo& adapter : adapters)
    found += fmt::format("\n  webgpu:{}  {}", adapter.index, describe(adapter));
  if (found.empty())
    throw DeviceError(
        "webgpu: no adapter was found; install the GPU's Vulkan driver (for software: mesa-vulkan-drivers 23 or later) "
        "or choose the device cpu");
  if (index >= 0) throw DeviceError(fmt::format("webgpu:{}: there is no such adapter; found{}", index, found));
  throw DeviceError(
      fmt::format("webgpu: only software adapters were found, and these are used only when named{}", found));
}

}  // namespace weft::webgpu
