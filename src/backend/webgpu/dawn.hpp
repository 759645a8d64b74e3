// The few extensions of Dawn that Weft uses, declared here because the standard webgpu.h lacks them. Chain them only if
// `Library::is_dawn`: other libraries may refuse unknown structs.
#pragma once

#include <webgpu.h>

#include <cstddef>
#include <cstdint>

namespace weft::webgpu::dawn {

constexpr auto kTogglesType = static_cast<WGPUSType>(0x0005000A);
constexpr auto kCacheType = static_cast<WGPUSType>(0x00050007);
constexpr auto kSubgroupMatrixConfigsType = static_cast<WGPUSType>(0x0005003B);

constexpr auto kSubgroupMatrix = static_cast<WGPUFeatureName>(0x00050034);
constexpr auto kSubgroupSizeControl = static_cast<WGPUFeatureName>(0x00000017);

/// Switches by name; chained to the instance, to adapter options and to the device. Unknown names are dropped silently.
struct Toggles {
  WGPUChainedStruct chain;
  std::size_t enabled_count;
  const char* const* enabled;
  std::size_t disabled_count;
  const char* const* disabled;
};

/// For wgpuDeviceSetLoggingCallback. Levels: 1 verbose, 2 info, 3 warning, 4 error.
struct LoggingCallbackInfo {
  WGPUChainedStruct* next;
  void (*callback)(std::uint32_t level, WGPUStringView message, void* user1, void* user2);
  void* user1;
  void* user2;
};

/// Load and store of compiled pipelines. Load is first called with a null value and returns the size; 0 is a miss. Both are
/// called from any thread.
struct Cache {
  using Load = std::size_t (*)(std::size_t key_size, const void* key, std::size_t value_size, void* value, void* user1,
                               void* user2);
  using Store = void (*)(std::size_t key_size, const void* key, std::size_t value_size, const void* value, void* user1,
                         void* user2);
  template <class Function>
  struct Callback {
    WGPUChainedStruct* next;
    Function function;
    void* user1;
    void* user2;
  };
  WGPUChainedStruct chain;
  WGPUStringView isolation_key;
  Callback<Load> load;
  Callback<Store> store;
};

struct SubgroupMatrixConfig {
  std::uint32_t component, result, m, n, k;
};
struct SubgroupMatrixConfigs {
  WGPUChainedStruct chain;
  std::size_t count;
  const SubgroupMatrixConfig* configs;
};

}  // namespace weft::webgpu::dawn
