// Loop kernels with reductions as WGSL.
#pragma once

#include "backend/webgpu/wgsl/render.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu {

/// Like `render` of a loop kernel, for outer >= 1 and inner >= 2.
void render_reduction(const kernel::LoopKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered);

}  // namespace weft::webgpu
