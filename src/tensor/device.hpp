// The default device is kept here, where tensors are made; the runtime finds the hardware.
#pragma once

#include <string_view>

#include "weft/device.hpp"

namespace weft {

/// Finds the device that a text names. Set by the runtime; without it (tests of the graph alone) there is only the CPU.
using DeviceResolver = Device (*)(std::string_view text);
void set_device_resolver(DeviceResolver resolver);

}  // namespace weft
