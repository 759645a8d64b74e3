// Devices and the choice among them.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft {

/// The place of a tensor. `trace` records what would run and computes nothing; it is used only when named.
struct Device {
  enum class Kind : unsigned char { cpu, webgpu, trace };
  Kind kind = Kind::cpu;
  int index = 0;  // adapter number, as `weft devices` lists them
  bool operator==(const Device&) const = default;
  /// "cpu", "webgpu:0", "trace".
  std::string to_string() const;
};

inline constexpr Device kCpu{};

/// Parses "auto", "cpu", "webgpu", "webgpu:1", "trace". `auto` takes a real GPU if there is one, else the CPU; a software
/// adapter is used only when named by its index.
/// Errors  UsageError for any other text; DeviceError with the cure if there is no such device.
Device parse_device(std::string_view text);

/// The device that new tensors are made on. Until it is set: WEFT_DEVICE, else the CPU.
Device default_device();
void set_default_device(Device device);

struct DeviceInfo {
  Device device;
  std::string hardware;
  bool is_software = false;
  std::vector<std::pair<std::string, std::string>> details;
};
/// Every device of this machine; `problem` (optional) receives the reason if WebGPU has none.
std::vector<DeviceInfo> list_devices(std::string* problem = nullptr);

/// Waits until all work on the device is done. Errors: DeviceError if it was lost.
void synchronize(Device device);

}  // namespace weft
