// Recurrent cells along a sequence as WGSL.
#pragma once

#include "backend/webgpu/wgsl/render.hpp"
#include "compile/kernel.hpp"
#include "graph/op.hpp"

namespace weft::webgpu {

/// Whether the calls of graph/recurrence.hpp have kernels for these operands: those of f32, with fewer than 2^32 elements.
bool accepts_recurrence(const graph::Call& call);

/// Appends the dispatches of a row of graph/recurrence.hpp. Each step is a product with the results of the one before, and the cell,
/// in one pass (step_product.hpp). Their number depends on the steps only where a device repeats a dispatch (recurrence_steps.hpp).
void render_recurrence(const kernel::CallKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered);
/// The same backwards. The weight is transposed first, so that both products read rows.
void render_recurrence_backward(const kernel::CallKernel& kernel, const Target& target, Scratch& scratch,
                                Rendered& rendered);

}  // namespace weft::webgpu
