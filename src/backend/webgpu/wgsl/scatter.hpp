// Scatter-add as WGSL.
#pragma once

#include "backend/webgpu/wgsl/render.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu {

/// Appends the dispatches of `kernel`. Each workgroup owns some rows and columns of the result and looks through the indices,
/// so nothing is added atomically and results repeat bit for bit. If that leaves the device idle (few rows, as in the gradient
/// of a character embedding), the updates are divided into parts of at least 256, which are summed separately and then joined
/// in order. Sums then associate by part, not strictly from first to last.
///
/// Many rows (the gradient of a large vocabulary) have the places of their updates listed first: scatter_lists.hpp.
void render(const kernel::ScatterAddKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered);

}  // namespace weft::webgpu
