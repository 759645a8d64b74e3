// Caches of keys and values as WGSL: rows written into them, and attention over them.
#pragma once

#include "backend/webgpu/wgsl_render.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu {

/// Appends the dispatches of ops::Routine::write_rows: one, and a copy before it unless the cache is written in place.
void render_write_rows(const kernel::RoutineKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered);

/// An elementwise kernel and the write of what it makes into a cache of f32 that is written in place, as one dispatch.
/// False where they are none.
bool render_written_loop(const kernel::LoopKernel& loop, const kernel::RoutineKernel& write, const Target& target,
                         Rendered& rendered);

/// Appends the dispatches of ops::Routine::cache_attention: one, or two where long caches are split over workgroups. How
/// many keys are visited is known when it runs.
void render_cache_attention(const kernel::RoutineKernel& kernel, const Target& target, Scratch& scratch,
                            Rendered& rendered);

}  // namespace weft::webgpu
