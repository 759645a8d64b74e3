// Calls along an axis, on transposed copies of their operands.
#pragma once

#include <string>

#include "backend/webgpu/wgsl/axis_lines.hpp"
#include "backend/webgpu/wgsl/render.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu {

/// Appends the dispatch that copies the elements of `from` in the order of `view` to all of `to`. Both are of one type of 32 bits,
/// and keep their bits.
void render_copy(std::string name, const kernel::Operand& from, kernel::View view, const kernel::Operand& to,
                 const Target& target, Scratch& scratch, Rendered& rendered);

/// A tensor [outer, rows, columns] in the order of [outer, columns, rows].
kernel::View turned_view(Extent outer, Extent rows, Extent columns);

/// Whether blocks of a transpose would be full.
constexpr bool can_turn(const AxisLines& along) { return along.inner >= 32 && along.extent >= 32 && along.taken >= 32; }

/// Appends the dispatches of a call whose operands are lines along the axis that its first attribute names. Columns that lie side
/// by side become rows in scratch memory, `render` appends the same call on these, and its result is turned back. A kernel that
/// reads whole rows reads whole lines of a cache, so its work and three or four transposes are much less than reading columns.
void render_turned_lines(const kernel::CallKernel& kernel, const AxisLines& along, const Target& target,
                         Scratch& scratch, Rendered& rendered,
                         void (*render)(const kernel::CallKernel&, const Target&, Scratch&, Rendered&));

}  // namespace weft::webgpu
