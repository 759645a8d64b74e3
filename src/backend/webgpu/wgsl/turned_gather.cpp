#include "backend/webgpu/wgsl/turned_gather.hpp"

#include <algorithm>
#include <vector>

#include "backend/webgpu/wgsl/loop.hpp"
#include "backend/webgpu/wgsl/staged_gather.hpp"
#include "backend/webgpu/wgsl/steps.hpp"
#include "backend/webgpu/wgsl/strips.hpp"
#include "backend/webgpu/wgsl/turned_lines.hpp"

namespace weft::webgpu {

using kernel::Step;
using kernel::StepKind;

namespace {

bool is_word(DType type) { return type == DType::f32 || type == DType::i32 || type == DType::u32; }

/// Whether a view over `total` elements has them in the order of memory.
bool is_contiguous(const kernel::View& view, Extent total) {
  if (!view.bounds.empty()) return false;
  Extent stride = 1;
  for (std::size_t d = view.extents.size(); d-- > 0; stride *= view.extents[d])
    if (view.extents[d] != 1 && view.strides[d] != stride) return false;
  return stride == total;
}

}  // namespace

std::optional<kernel::LoopKernel> with_turned_gather(const kernel::LoopKernel& loop, const Target& target,
                                                     Scratch& scratch, Rendered& rendered) {
  const Extent total = loop.outer;
  const std::vector<bool> needed = needed_steps(loop);
  const std::vector<ColumnGather> gathers = column_gathers(loop, needed, total);
  if (gathers.empty()) return {};
  Extent all_gathers = 0;
  for (std::size_t s = 0; s < loop.steps.size(); ++s)
    all_gathers += needed[s] && loop.steps[s].kind == StepKind::gather ? 1 : 0;
  if (all_gathers > 1) return {};
  const auto [number, taken, inner, bytes] = gathers.front();
  const Step& gather = loop.steps[static_cast<std::size_t>(number)];
  const Step& index = loop.steps[static_cast<std::size_t>(gather.a)];
  if (index.kind != StepKind::load || !is_contiguous(index.view, total)) return {};
  const kernel::Operand &x = loop.inputs[static_cast<std::size_t>(gather.operand)],
                        &indices = loop.inputs[static_cast<std::size_t>(index.operand)];
  const Extent outer = total / (taken * inner), lines = outer * inner, extent = gather.axis_extent;
  if (!is_word(x.type) || !is_word(indices.type) || !is_integer(indices.type) ||
      !can_stage(lines, extent, taken, target))
    return {};

  const kernel::Operand rows = scratch.add(x.type, lines * extent), places = scratch.add(indices.type, total),
                        picked = scratch.add(x.type, total);
  kernel::View columns{{}, {}, gather.view.offset, {}};  // [outer .., inner, extent]
  std::size_t axes = gather.view.extents.size() - 1;
  while (axes > 0 && gather.view.strides[axes - 1] == 0) --axes;
  for (std::size_t d = 0; d < axes; ++d) {
    columns.extents.push_back(gather.view.extents[d]);
    columns.strides.push_back(gather.view.strides[d]);
  }
  columns.extents.insert(columns.extents.end(), {inner, extent});
  columns.strides.insert(columns.strides.end(), {1, gather.axis_stride});
  render_copy(loop.name + ".turn", x, columns, rows, target, scratch, rendered);
  kernel::View of_indices = turned_view(outer, taken, inner);
  of_indices.offset = index.view.offset;
  render_copy(loop.name + ".turn_indices", indices, of_indices, places, target, scratch, rendered);

  kernel::LoopKernel picks;
  picks.name = loop.name + ".pick";
  picks.outer = total;
  picks.inputs = {rows, places};
  picks.outputs = {picked};
  Step load{StepKind::load, indices.type, kernel::Level::outer};
  load.operand = 1;
  load.view = {{total}, {1}, 0, {}};
  Step pick{StepKind::gather, x.type, kernel::Level::outer};
  pick.a = 0;
  pick.operand = 0;
  pick.axis_stride = 1;
  pick.axis_extent = extent;
  pick.view = {{lines, taken}, {extent, 0}, 0, {}};
  picks.steps = {load, pick};
  picks.stores = {{1, 0, {{total}, {1}, 0, {}}}};
  render(picks, target, scratch, rendered);

  kernel::LoopKernel rest = loop;
  Step& back = rest.steps[static_cast<std::size_t>(number)];
  back = Step{StepKind::load, gather.type, gather.level};
  back.operand = static_cast<int>(rest.inputs.size());
  back.view = turned_view(outer, inner, taken);
  rest.inputs.push_back(picked);
  return rest;
}

}  // namespace weft::webgpu
