// Scans of the gated delta rule.
#pragma once

#include "backend/webgpu/wgsl/render.hpp"
#include "compile/kernel.hpp"
#include "graph/op.hpp"

namespace weft::webgpu {

bool accepts_delta_scan(const graph::Call& call);
/// Operands as graph/delta_scan.hpp lists them, of f32.
void render_delta_scan(const kernel::CallKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered);

}  // namespace weft::webgpu
