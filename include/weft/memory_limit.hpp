// A limit on the memory of tensors.
#pragma once

#include <cstdint>

#include "weft/device.hpp"
#include "weft/error.hpp"

namespace weft {

/// A value that does not fit in the session's limit.
class DeviceMemoryError : public DeviceError {
  using DeviceError::DeviceError;
};

/// Limits the bytes that values and plans of this thread's session may occupy on each device; 0: no limit. What is held already
/// stays. Later requests beyond the limit are DeviceMemoryErrors, and nothing is computed then.
void set_device_memory_limit(std::uint64_t bytes);
/// Bytes that values of this thread's session occupy on the device, without memory that is kept for reuse.
std::uint64_t device_memory_used(Device device = default_device());

}  // namespace weft
