// Sorting as WGSL.
#pragma once

#include "backend/webgpu/wgsl/render.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu {

/// Appends the dispatches of `sort`. Lines that fit are sorted in workgroup memory (sort_lines.hpp). Others are sorted in memory by
/// radix: eight times the keys are counted by their lowest four bits, the counts are added up, and keys and positions move.
/// A move turns the key by those bits, so that every pass has the same shaders.
void render_sort(const kernel::CallKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered);

}  // namespace weft::webgpu
