// Loop kernels as WGSL: elementwise work and reductions.
#pragma once

#include "backend/webgpu/wgsl/render.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu {

/// Appends the dispatches of `kernel`: one, or two if a long reduction is split over workgroups. None if there is nothing to
/// do. The order of additions depends only on shapes and the target, so results repeat bit for bit.
///
/// Without reductions each thread takes elements, four at a time where views allow. With them a workgroup takes rows
/// (outer indices): along inner if that is where memory is contiguous ("rows": several lanes share a row and join by
/// subgroup shuffles or workgroup memory), else along outer ("columns": neighbouring threads take neighbouring rows). Rows
/// that fit are kept in registers between the passes of a softmax or a norm; others are read again.
void render(const kernel::LoopKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered);

/// The same, but elements that are not reduced are taken from the last to the first: a cache may still have those that the
/// dispatch before has read last.
void render_backwards(const kernel::LoopKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered);

/// The same kernel without an inner space, for inner = 0 (reductions are those of no elements, inner-level stores are dropped)
/// and inner = 1 (reductions are their only element).
kernel::LoopKernel without_inner(kernel::LoopKernel kernel);

}  // namespace weft::webgpu
