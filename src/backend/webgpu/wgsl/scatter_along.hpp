// Sums along an axis by index, as WGSL.
#pragma once

#include "backend/webgpu/wgsl/render.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu {

/// Appends the dispatches of `scatter_add_along_axis`. A thread takes a line along the axis and adds its updates in order;
/// neighbouring threads take neighbouring lines. Updates of long rows, up to 8192 of each, are sorted in workgroup memory instead:
/// then threads share a row, and still add in order. Columns of this length are turned to rows. Updates of longer rows, and of few
/// longer columns, are sorted in memory.
void render_scatter_along(const kernel::CallKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered);

}  // namespace weft::webgpu
