// Scans as WGSL.
#pragma once

#include "backend/webgpu/wgsl/render.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu {

/// Appends the dispatch of a row of graph/scan.hpp. If elements of a scan are contiguous, a workgroup takes a scan: each thread
/// combines a few neighbours, the workgroup scans the threads' results by doubling, and the total carries over to the next
/// stretch. Otherwise neighbouring threads take neighbouring scans, one element after another.
void render_scan(const kernel::CallKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered);

}  // namespace weft::webgpu
