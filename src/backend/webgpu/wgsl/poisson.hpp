// Counts of the Poisson distribution.
#pragma once

#include "backend/webgpu/wgsl/render.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu {

/// Operands as graph/poisson.hpp lists them, of f32.
void render_poisson_quantile(const kernel::CallKernel& kernel, const Target& target, Scratch& scratch,
                             Rendered& rendered);

}  // namespace weft::webgpu
