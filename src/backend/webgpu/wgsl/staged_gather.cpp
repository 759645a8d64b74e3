#include "backend/webgpu/wgsl/staged_gather.hpp"

#include <algorithm>

#include "tensor/element.hpp"

namespace weft::webgpu {

using kernel::Step;
using kernel::StepKind;

namespace {

constexpr Extent kRowLeast = 512;        // elements: a shorter row lies in few lines, which are read directly
constexpr Extent kRowBytesMost = 32768;  // several workgroups then share a compute unit
constexpr Extent kRowsForEachPick = 4;   // copying so many elements costs as much as picking one directly
constexpr Extent kPartLeast = 4096;      // elements of a run for a workgroup
constexpr int kManyThreads = 512;        // of a workgroup, if the device allows this many

bool row_fits(Extent extent, const Target& target) {
  return extent >= kRowLeast && extent <= std::min<Extent>(kRowBytesMost, target.limits.workgroup_bytes) / 4;
}

/// The view as runs of neighbouring indices that share a place, or nothing.
std::optional<StagedGather> runs_of(const Step& step, Extent total) {
  const kernel::View& view = step.view;
  if (!view.bounds.empty()) return {};
  StagedGather gather{.steps = {}, .operand = step.operand, .rows = view, .extent = step.axis_extent};
  Extent points = 1;
  for (const Extent extent : view.extents) points *= extent;
  if (points != total) return {};
  while (!gather.rows.extents.empty() && (gather.rows.strides.back() == 0 || gather.rows.extents.back() == 1)) {
    gather.run *= gather.rows.extents.back();
    gather.rows.extents.pop_back();
    gather.rows.strides.pop_back();
  }
  return gather;
}

}  // namespace

bool can_stage(Extent rows, Extent extent, Extent run, const Target& target) {
  return row_fits(extent, target) && run * kRowsForEachPick >= extent && rows >= Extent{target.profile.compute_units};
}

std::optional<StagedGather> staged_gather(const kernel::LoopKernel& kernel, const std::vector<bool>& needed,
                                          Extent total, const Target& target) {
  std::optional<StagedGather> found;
  for (std::size_t s = 0; s < kernel.steps.size(); ++s) {
    const Step& step = kernel.steps[s];
    if (!needed[s] || step.kind != StepKind::gather || step.axis_stride != 1 || !row_fits(step.axis_extent, target))
      continue;
    const kernel::Operand& operand = kernel.inputs[static_cast<std::size_t>(step.operand)];
    const bool is_word = operand.type == DType::f32 || operand.type == DType::i32 || operand.type == DType::u32;
    if (!is_word) continue;
    if (found) {
      const Step& first = kernel.steps[static_cast<std::size_t>(found->steps.front())];
      if (step.operand == first.operand && step.view == first.view && step.axis_extent == first.axis_extent)
        found->steps.push_back(static_cast<int>(s));
      continue;
    }
    auto gather = runs_of(step, total);
    if (!gather || gather->run * kRowsForEachPick < gather->extent) continue;
    gather->part = std::min(gather->run, std::max(gather->extent, kPartLeast));
    gather->part = divide_up(divide_up(gather->run, gather->parts()), 4) * 4;
    // Fewer workgroups would leave compute units without work.
    if (total / gather->run * gather->parts() < Extent{target.profile.compute_units}) continue;
    if (target.limits.workgroup_invocations >= kManyThreads) gather->threads = kManyThreads;
    gather->steps.push_back(static_cast<int>(s));
    found = std::move(gather);
  }
  return found;
}

}  // namespace weft::webgpu
