// Attention over caches of keys and values as WGSL.
#pragma once

#include <functional>
#include <optional>

#include "backend/webgpu/wgsl/attention_parts.hpp"
#include "backend/webgpu/wgsl/render.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu {

/// Appends the dispatches of cache_attention: one, or two if long caches are split over workgroups. The number of visited keys
/// is known only at run time.
void render_cache_attention(const kernel::CallKernel& kernel, const Target& target, Scratch& scratch,
                            Rendered& rendered);

/// Appends only the first of two dispatches. Nothing is appended or returned unless there are two, and `suits` accepts the
/// parts; their operand is then still empty.
std::optional<AttentionParts> render_attention_parts(const kernel::CallKernel& kernel, const Target& target,
                                                     Scratch& scratch, Rendered& rendered,
                                                     const std::function<bool(const AttentionParts&)>& suits);

}  // namespace weft::webgpu
