// Attention over caches of keys and values as WGSL.
#pragma once

#include "backend/webgpu/wgsl/render.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu {

/// Appends the dispatches of cache_attention: one, or two if long caches are split over workgroups. The number of visited keys
/// is known only at run time.
void render_cache_attention(const kernel::CallKernel& kernel, const Target& target, Scratch& scratch,
                            Rendered& rendered);

}  // namespace weft::webgpu
