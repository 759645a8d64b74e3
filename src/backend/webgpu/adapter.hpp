// The features of a GPU (or a software renderer) as plain values, for listing devices, choosing one and writing shaders.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft::webgpu {

enum class AdapterType : std::uint8_t { discrete, integrated, software, unknown };
std::string_view name_of(AdapterType type);

/// A matrix product of tensor cores: result[m, n] = left[m, k] * right[k, n]; types as in WGSL ("f16", "f32", "i8", ...).
struct SubgroupMatrixConfig {
  std::string component, result;
  std::uint32_t m = 0, n = 0, k = 0;
};

struct Limits {
  std::uint64_t buffer_bytes = 0;           // limit for one buffer
  std::uint64_t binding_bytes = 0;          // limit for one storage binding
  std::uint32_t offset_alignment = 256;     // of a binding's offset, in bytes
  std::uint32_t storage_buffers = 8;        // in one shader
  std::uint32_t immediate_bytes = 0;        // 0: no immediates
  std::uint32_t workgroup_bytes = 0;        // of var<workgroup>
  std::uint32_t workgroup_invocations = 0;  // threads in a workgroup
  std::uint32_t workgroup_size_x = 0, workgroup_size_y = 0, workgroup_size_z = 0;
  std::uint32_t workgroups_per_dimension = 65535;
};

struct AdapterInfo {
  int index = -1;  // as in webgpu:INDEX
  std::string name, vendor, architecture;
  std::string driver;   // the driver's own text, with its version
  std::string backend;  // "Vulkan", "Metal", ...
  AdapterType type = AdapterType::unknown;
  bool f16 = false;
  bool subgroups = false;
  bool subgroup_size_control = false;
  bool timestamps = false;
  std::string immediates_directive;  // the line that WGSL must open with to have var<immediate>; may be empty
  std::uint32_t subgroup_size_min = 0, subgroup_size_max = 0;
  std::vector<SubgroupMatrixConfig> subgroup_matrices;  // empty: no tensor cores
  Limits limits;
};

/// All adapters, real ones first. Throws DeviceError if there is no WebGPU library.
std::vector<AdapterInfo> list_adapters();

/// Position in `adapters` of the one with this index; without an index (-1) the first that is not software. Throws a
/// DeviceError that lists the adapters.
std::size_t choose_adapter(std::span<const AdapterInfo> adapters, int index = -1);

/// One line: name, type, backend and driver.
std::string describe(const AdapterInfo& adapter);

}  // namespace weft::webgpu
