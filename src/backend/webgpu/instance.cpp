#include "backend/webgpu/instance.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <mutex>
#include <thread>
#include <utility>

#include "backend/webgpu/dawn.hpp"
#include "weft/error.hpp"

namespace weft::webgpu {
namespace {

constexpr const char* kInstanceToggles[] = {"allow_unsafe_apis"};
// Dawn disables f16 on NVIDIA by default because it fails precision tests, although the hardware has it.
constexpr const char* kAdapterToggles[] = {"vulkan_enable_f16_on_nvidia", "use_vulkan_memory_model"};
// wgpu-native's number of the feature for immediates.
constexpr auto kNativeImmediates = static_cast<WGPUFeatureName>(0x00030001);

#if defined(__APPLE__)
constexpr WGPUBackendType kBackend = WGPUBackendType_Metal;
#else
constexpr WGPUBackendType kBackend = WGPUBackendType_Vulkan;
#endif

template <std::size_t N>
dawn::Toggles toggles(const char* const (&enabled)[N]) {
  return {{nullptr, dawn::kTogglesType}, N, enabled, 0, nullptr};
}

std::string_view name_of(WGPUBackendType type) {
  switch (type) {
    case WGPUBackendType_Vulkan: return "Vulkan";
    case WGPUBackendType_Metal: return "Metal";
    case WGPUBackendType_D3D12: return "D3D12";
    case WGPUBackendType_D3D11: return "D3D11";
    case WGPUBackendType_OpenGL:
    case WGPUBackendType_OpenGLES: return "OpenGL";
    case WGPUBackendType_WebGPU: return "browser";
    default: return "unknown backend";
  }
}

AdapterType type_of(WGPUAdapterType type) {
  switch (type) {
    case WGPUAdapterType_DiscreteGPU: return AdapterType::discrete;
    case WGPUAdapterType_IntegratedGPU: return AdapterType::integrated;
    case WGPUAdapterType_CPU: return AdapterType::software;
    default: return AdapterType::unknown;
  }
}

std::string component_name(std::uint32_t type) {
  constexpr const char* kNames[] = {"unknown", "f32", "f16", "u32", "i32", "u8", "i8"};
  return type < std::size(kNames) ? kNames[type] : "unknown";
}

Limits limits_of(const WGPULimits& limits) {
  Limits result;
  result.buffer_bytes = limits.maxBufferSize;
  result.binding_bytes = limits.maxStorageBufferBindingSize & ~std::uint64_t{3};
  result.offset_alignment = limits.minStorageBufferOffsetAlignment;
  result.storage_buffers = limits.maxStorageBuffersPerShaderStage;
  result.immediate_bytes = limits.maxImmediateSize == WGPU_LIMIT_U32_UNDEFINED ? 0 : limits.maxImmediateSize;
  result.workgroup_bytes = limits.maxComputeWorkgroupStorageSize;
  result.workgroup_invocations = limits.maxComputeInvocationsPerWorkgroup;
  result.workgroup_size_x = limits.maxComputeWorkgroupSizeX;
  result.workgroup_size_y = limits.maxComputeWorkgroupSizeY;
  result.workgroup_size_z = limits.maxComputeWorkgroupSizeZ;
  result.workgroups_per_dimension = limits.maxComputeWorkgroupsPerDimension;
  return result;
}

Instance::Adapter read(AdapterHandle handle) {
  const Library& api = library();
  Instance::Adapter adapter;
  AdapterInfo& info = adapter.info;

  WGPUSupportedFeatures features{};
  api.AdapterGetFeatures(handle.get(), &features);
  bool has_matrices = false;
  for (std::size_t i = 0; i < features.featureCount; ++i) {
    const WGPUFeatureName feature = features.features[i];
    bool wanted = true;
    if (feature == WGPUFeatureName_ShaderF16)
      info.f16 = true;
    else if (feature == WGPUFeatureName_Subgroups)
      info.subgroups = true;
    else if (feature == WGPUFeatureName_TimestampQuery)
      info.timestamps = true;
    else if (api.is_dawn && feature == dawn::kSubgroupSizeControl)
      info.subgroup_size_control = true;
    else if (api.is_dawn && feature == dawn::kSubgroupMatrix)
      has_matrices = true;
    else
      wanted = !api.is_dawn && feature == kNativeImmediates;
    if (wanted) adapter.features.push_back(feature);
  }
  api.SupportedFeaturesFreeMembers(features);

  WGPUAdapterInfo text{};
  dawn::SubgroupMatrixConfigs matrices{{nullptr, dawn::kSubgroupMatrixConfigsType}, 0, nullptr};
  if (has_matrices) text.nextInChain = &matrices.chain;
  api.AdapterGetInfo(handle.get(), &text);
  info.name = to_string(text.device);
  info.vendor = to_string(text.vendor);
  info.architecture = to_string(text.architecture);
  info.driver = to_string(text.description);
  info.backend = name_of(text.backendType);
  info.type = type_of(text.adapterType);
  info.subgroup_size_min = text.subgroupMinSize;
  info.subgroup_size_max = text.subgroupMaxSize;
  for (std::size_t i = 0; i < matrices.count; ++i) {
    const dawn::SubgroupMatrixConfig& config = matrices.configs[i];
    info.subgroup_matrices.push_back(
        {component_name(config.component), component_name(config.result), config.m, config.n, config.k});
  }
  // The array of configurations is freed with the process: it is small, and its release function takes the chained
  // struct by value, which the standard header cannot declare.
  api.AdapterInfoFreeMembers(text);

  api.AdapterGetLimits(handle.get(), &adapter.limits);
  info.limits = limits_of(adapter.limits);
  if (api.is_dawn && info.limits.immediate_bytes > 0) info.immediates_directive = "requires immediate_address_space;\n";
  adapter.handle = std::move(handle);
  return adapter;
}

// Dawn lists every adapter only through its C++ interface, whose instance and adapter are each one pointer. Builds with another
// standard library lack this symbol; then the standard request gives only the best adapter.
constexpr const char* kEnumerateSymbol = "_ZNK4dawn6native8Instance17EnumerateAdaptersEPK25WGPURequestAdapterOptions";
using EnumerateFunction = std::vector<AdapterHandle> (*)(const WGPUInstance* self, const WGPURequestAdapterOptions*);

}  // namespace

std::shared_ptr<const Instance> Instance::create() {
  const Library& api = library();
  std::shared_ptr<Instance> instance(new Instance);
  WGPUInstanceDescriptor descriptor{};
  std::vector<WGPUInstanceFeatureName> features;
  dawn::Toggles toggle_chain = toggles(kInstanceToggles);
  if (api.is_dawn) {
    for (WGPUInstanceFeatureName feature :
         {WGPUInstanceFeatureName_TimedWaitAny, WGPUInstanceFeatureName_MultipleDevicesPerAdapter})
      if (api.HasInstanceFeature(feature)) features.push_back(feature);
    descriptor.nextInChain = &toggle_chain.chain;
    descriptor.requiredFeatures = features.data();
    descriptor.requiredFeatureCount = features.size();
  }
  instance->handle_ = InstanceHandle(api.CreateInstance(&descriptor));
  if (!instance->handle_) throw DeviceError("webgpu: " + api.path + " could not create a WebGPU instance");
  instance->find_adapters();
  return instance;
}

void Instance::find_adapters() {
  const Library& api = library();
  WGPURequestAdapterOptions options{};
  options.featureLevel = WGPUFeatureLevel_Core;
  options.powerPreference = WGPUPowerPreference_HighPerformance;
  options.backendType = kBackend;
  dawn::Toggles toggle_chain = toggles(kAdapterToggles);
  if (api.is_dawn) options.nextInChain = &toggle_chain.chain;

  const auto enumerate = reinterpret_cast<EnumerateFunction>(dlsym(api.handle, kEnumerateSymbol));
  if (enumerate) {
    const WGPUInstance self = handle_.get();
    for (AdapterHandle& handle : enumerate(&self, &options)) adapters_.push_back(read(std::move(handle)));
  } else {
    auto outcome = std::make_shared<Outcome>();
    WGPURequestAdapterCallbackInfo callback{};
    callback.mode = callback_mode();
    callback.userdata1 = Outcome::give(outcome);
    callback.callback = [](WGPURequestAdapterStatus, WGPUAdapter adapter, WGPUStringView, void* user, void*) {
      const auto given = Outcome::take(user);
      given->object = adapter;
      given->done = true;
    };
    wait({api.InstanceRequestAdapter(handle_.get(), &options, callback), outcome}, nullptr, UINT64_MAX);
    if (outcome->object) adapters_.push_back(read(AdapterHandle(static_cast<WGPUAdapter>(outcome->object))));
  }
  std::stable_partition(adapters_.begin(), adapters_.end(),
                        [](const Adapter& adapter) { return adapter.info.type != AdapterType::software; });
  for (std::size_t i = 0; i < adapters_.size(); ++i) adapters_[i].info.index = static_cast<int>(i);
}

WGPUCallbackMode Instance::callback_mode() const {
  return library().is_dawn ? WGPUCallbackMode_WaitAnyOnly : WGPUCallbackMode_AllowProcessEvents;
}

bool Instance::wait(const Pending& pending, WGPUDevice device, std::uint64_t timeout_ns) const {
  const Library& api = library();
  if (api.is_dawn) {
    if (!pending.outcome->done) {
      WGPUFutureWaitInfo wait{pending.future, WGPU_FALSE};
      api.InstanceWaitAny(handle_.get(), 1, &wait, timeout_ns);
    }
    return pending.outcome->done;
  }
  while (!pending.outcome->done) {
    if (device) api.DevicePoll(device, WGPU_TRUE, nullptr);
    api.InstanceProcessEvents(handle_.get());
    if (!device) std::this_thread::yield();
  }
  return true;
}

std::shared_ptr<const Instance> Instance::shared() {
  static std::mutex& mutex = *new std::mutex;
  // Never destroyed: other statics may still use a device when the process ends.
  static std::shared_ptr<const Instance>& instance = *new std::shared_ptr<const Instance>;
  const std::lock_guard lock(mutex);
  if (!instance) instance = create();
  return instance;
}

std::vector<AdapterInfo> list_adapters() {
  std::vector<AdapterInfo> infos;
  const auto instance = Instance::shared();
  for (const Instance::Adapter& adapter : instance->adapters()) infos.push_back(adapter.info);
  return infos;
}

}  // namespace weft::webgpu
