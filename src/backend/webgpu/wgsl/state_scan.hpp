// Scans of states and short convolutions as WGSL.
#pragma once

#include "backend/webgpu/wgsl/render.hpp"
#include "compile/kernel.hpp"
#include "graph/op.hpp"

namespace weft::webgpu {

/// Whether there is a kernel: f32, and states of a channel that a workgroup can hold.
bool accepts_state_scan(const graph::Call& call);
/// Appends the dispatches, for operands as graph/state_scan.hpp lists them. A cache is changed in place, after a copy if it must
/// stay.
void render_state_scan(const kernel::CallKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered);
void render_state_convolution(const kernel::CallKernel& kernel, const Target& target, Scratch& scratch,
                              Rendered& rendered);

}  // namespace weft::webgpu
