// Products of groups of rows with a matrix each.
#pragma once

#include "backend/webgpu/wgsl/render.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu {

/// A thread makes one column of several neighbouring rows.
void render_grouped_matmul(const kernel::CallKernel& kernel, const Target& target, Scratch& scratch,
                           Rendered& rendered);
/// A thread makes one column of several rows of a group's matrix.
void render_grouped_outer(const kernel::CallKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered);

}  // namespace weft::webgpu
