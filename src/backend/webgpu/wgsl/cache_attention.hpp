// Attention over caches of keys and values as WGSL.
#pragma once

#include "backend/webgpu/wgsl/render.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu {

/// Appends the dispatches of cache_attention: one, or two where long caches are split over workgroups. How
/// many keys are visited is known when it runs.
void render_cache_attention(const kernel::CallKernel& kernel, const Target& target, Scratch& scratch,
                            Rendered& rendered);

}  // namespace weft::webgpu
