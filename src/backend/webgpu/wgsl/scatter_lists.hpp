// Scatter-add into many rows.
#pragma once

#include "backend/webgpu/wgsl/render.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu {

/// Appends five dispatches. The first four list the places of the updates of each row: they clear the counts of rows, count,
/// give each row a part of one array, and fill it. The lists then have no certain order, so the last dispatch sorts each list
/// before it adds up the updates, and results repeat bit for bit. There is at least one update and one result.
void render_scatter_lists(const kernel::ScatterAddKernel& kernel, const Target& target, Scratch& scratch,
                          Rendered& rendered);

}  // namespace weft::webgpu
