// A whole plan as dispatches: kernels rendered, some of them together, and short ones merged.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/webgpu/wgsl/render.hpp"

namespace weft::webgpu {

struct RenderedPlan {
  std::vector<RenderedDispatch> dispatches;  // in the order that they run in
  /// Scratch buffers of the kernels, numbered after the plan's buffers.
  std::vector<std::uint64_t> scratch_bytes;
};

/// Whether the plan is a pass of a language model over very few rows: short kernels that wait for one another.
bool is_short_pass(const kernel::Plan& plan);

/// Needs no device. Errors: as `render`.
RenderedPlan render_plan(const kernel::Plan& plan, const Target& target);

}  // namespace weft::webgpu
