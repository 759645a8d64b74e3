// Gradients of scans of states as WGSL.
#pragma once

#include "backend/webgpu/wgsl/render.hpp"
#include "compile/kernel.hpp"
#include "graph/op.hpp"

namespace weft::webgpu {

/// Whether state_scan_backward has kernels for these operands: those of f32, at most 256 states a channel, and sequences whose states
/// between stretches fit a buffer.
bool accepts_state_scan_backward(const graph::Call& call);

/// Appends the dispatches of state_scan_backward. The first keeps the states of every eighth step. The second goes back from stretch
/// to stretch, computes the states of each again, and adds up what a workgroup's channels give to b and c. The others add up the sums
/// of workgroups, each in a fixed order. Sequences that would need much memory between them run one after another.
void render_state_scan_backward(const kernel::CallKernel& kernel, const Target& target, Scratch& scratch,
                                Rendered& rendered);

}  // namespace weft::webgpu
