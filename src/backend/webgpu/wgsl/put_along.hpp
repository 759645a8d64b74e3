// Writes along an axis where the last one to a place stays, as WGSL.
#pragma once

#include "backend/webgpu/wgsl/render.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu {

/// Appends the dispatches of `last_along_axis`, or of `scatter_along_axis`. A workgroup owns places of some lines, and keeps the
/// largest position of an index of each place in workgroup memory, by atomics, so results do not depend on the order of threads.
/// Lines that are too long for that, or too few, keep the positions in memory: a dispatch clears them, and one goes through all
/// indices. Many long columns are turned to rows before, and their result is turned back.
void render_last_along(const kernel::CallKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered);
void render_put_along(const kernel::CallKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered);

}  // namespace weft::webgpu
