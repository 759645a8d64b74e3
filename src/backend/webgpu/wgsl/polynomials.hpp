// Orthogonal polynomials on a GPU.
#pragma once

#include "backend/webgpu/wgsl/render.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu {

void render_orthogonal_polynomial(const kernel::CallKernel& kernel, const Target& target, Scratch& scratch,
                                  Rendered& rendered);

}  // namespace weft::webgpu
