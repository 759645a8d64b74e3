// Attention of a prompt over caches in f16, on subgroup matrices.
#pragma once

#include "backend/webgpu/wgsl/render.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu {

/// Appends the dispatches of cache_attention and returns true, if the kernel need not be exact, has enough queries and caches of
/// f16, and the device has matrices: one that rounds the queries and writes which rows each sees, then the attention. Else appends
/// nothing. The caches are operands of u32 words.
bool render_cache_attention_on_matrices(const kernel::CallKernel& kernel, const Target& target, Scratch& scratch,
                                        Rendered& rendered);

}  // namespace weft::webgpu
