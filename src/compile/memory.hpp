// Memory plan: which buffer and offset every intermediate value gets.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace weft::compiler {

struct MemoryValue {
  std::size_t bytes = 0;
  int first = 0, last = 0;  // kernels between which it must be kept
  std::string title;        // for messages
};

struct MemoryRequest {
  std::vector<MemoryValue> values;
  std::vector<std::pair<int, int>>
      apart;  // values that must not share a buffer object (one is read where the other is written)
  std::size_t alignment = 64;
  std::size_t buffer_bytes_max = 0, binding_bytes_max = 0;
};

struct MemoryPlan {
  struct Slot {
    int buffer = -1;
    std::size_t offset = 0;  // bytes
  };
  std::vector<Slot> slots;           // one a value
  std::vector<std::size_t> buffers;  // bytes of each
};

/// First-fit by decreasing size over lifetimes, in as few buffers as `apart` and the limits allow. Throws DeviceError that
/// names a value over the limits.
MemoryPlan plan_memory(const MemoryRequest& request);

}  // namespace weft::compiler
