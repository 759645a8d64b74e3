// The WebGPU backend: renders the kernels of a plan to WGSL and replays them on a device.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "backend/contract.hpp"
#include "backend/webgpu/adapter.hpp"
#include "backend/webgpu/device_profile.hpp"

namespace weft::webgpu {

/// When dispatches become phases of one, whose workgroups meet between them.
enum class Residence {
  off,
  tested,  // where tests show that workgroups run at once and see what others wrote
  single,  // everywhere, with one workgroup, which meets nobody: slow, for tests
};

struct BackendOptions {
  /// Whether WebGPU checks every call. Default: WEFT_WEBGPU_VALIDATE, else true in debug builds.
  std::optional<bool> validate;
  /// Whether shaders clamp indices into their buffers. Weft's shaders stay inside by construction.
  bool robust = false;
  /// Where compiled pipelines are kept (empty: nowhere); by default in the user's cache.
  std::optional<std::filesystem::path> cache_folder;
  /// Whether short dispatches of language models become phases of one. Default: WEFT_WEBGPU_RESIDENT (off, tested, single), else
  /// tested.
  std::optional<Residence> residence;
  /// The figures for the choice of kernels. Default: WEFT_WEBGPU_PROFILE, else measured for the first large product.
  std::optional<DeviceProfile> profile;
};

/// The backend on the adapter with this index (see list_adapters), or on the first real GPU for -1. Throws a DeviceError that
/// lists the adapters and says how to get a driver or a library.
///
/// Dtypes: f32, i32, u32, bool (a u32 in memory). Buffers work only on the backend that made them. They may outlive the
/// backend, because they keep the device alive. Thread safe.
std::unique_ptr<backend::Backend> make_webgpu_backend(int adapter_index = -1, const BackendOptions& options = {});

}  // namespace weft::webgpu
