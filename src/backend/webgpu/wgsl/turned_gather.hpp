// Gathers along columns, from transposed copies.
#pragma once

#include <optional>

#include "backend/webgpu/wgsl/render.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu {

/// If the flat loop has one gather along columns, whose indices are numbers in memory, and the columns fit workgroup memory one
/// by one: appends dispatches that turn the columns and the indices to rows and pick within these. Returns the loop with a load of
/// what they have picked, turned back, instead of the gather. A pick from a column reads a sector of memory for one element;
/// three transposes read and write whole lines.
std::optional<kernel::LoopKernel> with_turned_gather(const kernel::LoopKernel& loop, const Target& target,
                                                     Scratch& scratch, Rendered& rendered);

}  // namespace weft::webgpu
