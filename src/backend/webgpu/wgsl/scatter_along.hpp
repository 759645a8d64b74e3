// Sums along an axis by index, as WGSL.
#pragma once

#include "backend/webgpu/wgsl/render.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu {

/// Appends the dispatches of `scatter_add_along_axis`. Workgroups keep the sums of some lines in their memory (line_sums.hpp). Columns
/// are turned to rows if only rows fit. Sums of longer lines stay in memory, or a thread adds the updates of a line, if they are few.
void render_scatter_along(const kernel::CallKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered);

}  // namespace weft::webgpu
