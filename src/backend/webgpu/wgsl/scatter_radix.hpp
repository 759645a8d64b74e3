// Scatter-add along lines of any length, by a sort in memory.
#pragma once

#include <string>

#include "backend/webgpu/wgsl/axis_lines.hpp"
#include "backend/webgpu/wgsl/render.hpp"

namespace weft::webgpu {

/// Sums by index: the indices and updates are [outer, taken, inner], the result is [outer, extent, inner].
struct LineSums {
  std::string name;
  kernel::Operand indices, updates, out;
  AxisLines along;
};

/// Appends the dispatches, of which there are about five for four bits of a place. They sort the updates of each line by their
/// places, and by their own order below that. Then the thread of the first update of a place adds up all of them, in order. If
/// there are many, threads add up parts, which are joined in order. The work does not depend on how many updates a place has,
/// except that one thread joins the parts of a place. There is at least one update and one result, of 32 bits.
void render_sorted_sums(const LineSums& sums, const Target& target, Scratch& scratch, Rendered& rendered);

}  // namespace weft::webgpu
