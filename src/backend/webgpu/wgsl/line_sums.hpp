// Sums of numbers by index, along lines.
#pragma once

#include <optional>
#include <string>

#include "backend/webgpu/wgsl/line_block.hpp"
#include "backend/webgpu/wgsl/render.hpp"

namespace weft::webgpu {

/// Sums by index: the indices and updates are [outer, taken, inner], the result is [outer, extent, inner]. There is at least one
/// update and one result, of 32 bits.
struct LineSums {
  std::string name;
  kernel::Operand indices, updates, out;
  AxisLines along;
};

// Updates are added up by integer atomics, so their order does not matter, and results repeat bit for bit. An update of f32
// becomes an integer in units of 2^-30 of the greatest power of two among those of its place, and their sum has 64 bits
// (functions/fixed_point.cpp). Errors are at most 2^-31 of that power for each update, and one rounding of the sum: less than
// where f32 is added one by one.

/// The block of workgroup memory for sums of a type, or none.
std::optional<LineBlock> sums_block(const AxisLines& along, DType type, const Target& target);
/// Whether columns are turned to rows first.
bool turns_sums(const AxisLines& along, DType type, const Target& target);

/// The dispatch that keeps sums in workgroup memory until they are complete. The kernel reads indices and updates.
RenderedDispatch sums_in_workgroup_memory(const kernel::CallKernel& kernel, const AxisLines& along,
                                          const LineBlock& block, const Target& target);
/// Appends the dispatches that keep sums in memory: of f32 the scales, the sums and their values, of some lines at a time, so
/// that a cache holds them; of integers the sums alone.
void render_sums_in_memory(const LineSums& sums, const Target& target, Scratch& scratch, Rendered& rendered);

}  // namespace weft::webgpu
