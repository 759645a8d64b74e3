// Turns shader texts into compute pipelines: compiled in parallel, each text once per device.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "backend/webgpu/device.hpp"

namespace weft::webgpu {

/// A compute shader: WGSL with an entry point `main` and storage buffers at @group(0) @binding(0), (1), ...
struct Shader {
  std::string name;  // for errors and profiles
  std::string text;
  std::vector<bool> read_only;        // one for each binding
  std::uint32_t immediate_bytes = 0;  // of var<immediate>, a multiple of 4
};

struct Pipeline {
  PipelineHandle handle;
  WGPUBindGroupLayout layout = nullptr;  // the cache owns it; equal bindings share one
  std::vector<bool> read_only;
  std::uint32_t immediate_bytes = 0;
};
using PipelinePtr = std::shared_ptr<const Pipeline>;

class PipelineCache {
 public:
  explicit PipelineCache(Device& device) : device_(device) {}

  /// One pipeline for each shader, in order. Throws InternalError with the compiler's message and the numbered text if a shader
  /// does not compile, DeviceError if it needs more than the device has; the others are kept. Callers hold the device's mutex.
  std::vector<PipelinePtr> compile(std::span<const Shader> shaders);
  std::size_t size() const { return pipelines_.size(); }

 private:
  struct Layout {
    BindGroupLayoutHandle group;
    std::map<std::uint32_t, PipelineLayoutHandle> pipelines;  // by the size of the immediates
  };

  void check_limits(const Shader& shader) const;
  Layout& layout_of(const std::vector<bool>& read_only);
  WGPUPipelineLayout pipeline_layout_of(Layout& layout, std::uint32_t immediate_bytes);

  Device& device_;
  std::map<std::vector<bool>, Layout> layouts_;
  std::unordered_map<std::string, PipelinePtr> pipelines_;  // by bindings, immediates and text
};

}  // namespace weft::webgpu
