#include "tensor/device.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <optional>

namespace weft {
namespace {

std::optional<Device>& chosen() {
  static std::optional<Device> device;
  return device;
}
DeviceResolver& resolver() {
  static DeviceResolver r = nullptr;
  return r;
}

}  // namespace

std::string Device::to_string() const {
  switch (kind) {
    case Kind::cpu: return "cpu";
    case Kind::webgpu: return fmt::format("webgpu:{}", index);
    case Kind::trace: return "trace";
  }
  return "?";
}

void set_device_resolver(DeviceResolver r) { resolver() = r; }

Device default_device() {
  auto& device = chosen();
  if (!device) {
    const char* name = std::getenv("WEFT_DEVICE");
    device = name && *name && resolver() ? resolver()(name) : kCpu;
  }
  return *device;
}
void set_default_device(Device device) { chosen() = device; }

}  // namespace weft
