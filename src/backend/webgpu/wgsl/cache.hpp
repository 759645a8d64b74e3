// Writes of rows into caches of keys and values as WGSL.
#pragma once

#include "backend/webgpu/wgsl/render.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu {

/// Appends a copy of all elements.
void render_copy(const kernel::Operand& from, const kernel::Operand& to, const Target& target, Scratch& scratch,
                 Rendered& rendered);

/// Appends the dispatches of write_rows: one, and a copy before it unless the cache is written in place.
void render_write_rows(const kernel::CallKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered);

/// An elementwise kernel, and the write of its result into a cache of f32 or f16 in place, as one dispatch. False if the two kernels do
/// not fit this form.
bool render_written_loop(const kernel::LoopKernel& loop, const kernel::CallKernel& write, const Target& target,
                         Rendered& rendered);

}  // namespace weft::webgpu
