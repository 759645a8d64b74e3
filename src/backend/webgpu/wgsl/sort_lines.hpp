// Sorts of lines that fit workgroup memory, as WGSL.
#pragma once

#include <optional>

#include "backend/webgpu/wgsl/render.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu {

/// One dispatch that sorts each line in workgroup memory, or nothing if lines are too long for that. Lines of up to 1024 elements
/// are sorted by exchanges, several lines a workgroup. Longer ones are sorted by radix: eight times, a workgroup counts the
/// digits of each thread's neighbouring elements, adds up the counts digit by digit, and moves keys and positions.
std::optional<RenderedDispatch> sort_lines(const kernel::CallKernel& kernel, const Target& target);

}  // namespace weft::webgpu
