// The WebGPU backend: renders the kernels of a plan to WGSL and replays them on a device.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "backend/contract.hpp"
#include "backend/webgpu/adapter.hpp"
#include "backend/webgpu/device_profile.hpp"

namespace weft::webgpu {

struct BackendOptions {
  /// WebGPU checks every call; by default as WEFT_WEBGPU_VALIDATE says, else in debug builds.
  std::optional<bool> validate;
  /// Shaders clamp indices into their buffers. Ours stay within them by construction.
  bool robust = false;
  /// Where compiled pipelines are kept (empty: nowhere); by default in the user's cache.
  std::optional<std::filesystem::path> cache_folder;
  /// What kernels are chosen by; else as WEFT_WEBGPU_PROFILE says, or measured for the first large product.
  std::optional<DeviceProfile> profile;
};

/// The backend on the adapter with this index (see list_adapters), or on the first real GPU for -1. Throws DeviceError
/// that says what there is and how to get a driver or a library.
///
/// Dtypes: f32, i32, u32, bool (a u32 in memory). Buffers of this backend are at home on it alone; the backend outlives
/// none of them: they keep the device. Thread safe.
std::unique_ptr<backend::Backend> make_webgpu_backend(int adapter_index = -1, const BackendOptions& options = {});

}  // namespace weft::webgpu
