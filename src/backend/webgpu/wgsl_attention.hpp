// Attention as WGSL.
#pragma once

#include "backend/webgpu/wgsl_render.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu {

/// Appends the dispatches of `kernel`.
void render(const kernel::AttentionKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered);

}  // namespace weft::webgpu
