// Devices with subgroup matrices for tests: a real one, or one that emulates them.
#pragma once

#include <string>
#include <utility>

#include "backend/webgpu/render_support.hpp"
#include "backend/webgpu/tested_facts.hpp"
#include "backend/webgpu/wgsl/matmul_support.hpp"
#include "backend/webgpu/wgsl/matrix_emulation.hpp"

#if WEFT_HAS_WEBGPU
namespace weft::webgpu {

inline Target matrix_gpu() {
  Target target = kLargeGpu;
  target.lists_matrices = target.tested.matrices = true;
  return target;
}

/// Whether the device under test has matrices of its own, which need no emulation.
inline bool has_real_matrices() {
  static const bool has = test_facts(Device::open(0, {.validate = true, .cache_folder = {}})).matrices;
  return has;
}

/// To run on the device under test. One that emulates matrices has shorter subgroups than those have threads.
inline Target running_matrix_gpu() {
  Target target = matrix_gpu();
  if (!has_real_matrices()) target.subgroup_size = 0;
  return target;
}

inline std::string emulated(std::string text) {
  return text.find("subgroup_matrix") == std::string::npos ? text : with_emulated_matrices(std::move(text));
}

}  // namespace weft::webgpu
#endif
