// Attention over caches of keys and values as WGSL.
#pragma once

#include <functional>
#include <optional>

#include "backend/webgpu/wgsl/render.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu {

/// Appends the dispatches of cache_attention: one, or two if long caches are split over workgroups. The number of visited keys
/// is known only at run time.
void render_cache_attention(const kernel::CallKernel& kernel, const Target& target, Scratch& scratch,
                            Rendered& rendered);

/// The result of attention in parts, which each saw some keys: [rows, heads, splits] records of `pitch` elements, `width`
/// channels, then the largest score and the sum of exponentials.
struct AttentionParts {
  kernel::Operand operand;
  Extent heads = 0, width = 0, splits = 0, pitch = 0;
};

/// Appends only the first of two dispatches. Nothing is appended or returned unless there are two, and `suits` accepts the
/// parts; their operand is then still empty.
std::optional<AttentionParts> render_attention_parts(const kernel::CallKernel& kernel, const Target& target,
                                                     Scratch& scratch, Rendered& rendered,
                                                     const std::function<bool(const AttentionParts&)>& suits);

}  // namespace weft::webgpu
