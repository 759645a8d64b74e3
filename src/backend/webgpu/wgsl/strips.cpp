#include "backend/webgpu/wgsl/strips.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "backend/webgpu/wgsl/render.hpp"
#include "backend/webgpu/wgsl/steps.hpp"
#include "tensor/element.hpp"

namespace weft::webgpu {

using kernel::Step;
using kernel::StepKind;

namespace {

constexpr Extent kStripsLoopLeast = Extent{1} << 20;  // elements of the loop
constexpr Extent kStripsBytes = Extent{4} << 20;      // of the lines of a strip, so that a few strips stay in a cache
// Elements: whole lines of the cache, for the other operands too.
constexpr Extent kStripsWidthLeast = 32, kStripsWidthMost = 128;

/// Of each step: whether neighbouring elements have values of their own.
std::vector<bool> varying_steps(const kernel::LoopKernel& kernel) {
  std::vector<bool> varies;
  for (const Step& step : kernel.steps) {
    const bool own = !step.view.extents.empty() && step.view.strides.back() != 0;
    varies.push_back(own || std::ranges::any_of(operands_of(step), [&](int operand) {
                       return varies[static_cast<std::size_t>(operand)];
                     }));
  }
  return varies;
}

}  // namespace

std::vector<ColumnGather> column_gathers(const kernel::LoopKernel& kernel, const std::vector<bool>& needed,
                                         Extent total) {
  std::vector<ColumnGather> gathers;
  if (total < kStripsLoopLeast) return gathers;
  const std::vector<bool> varies = varying_steps(kernel);
  for (std::size_t s = 0; s < kernel.steps.size(); ++s) {
    const Step& step = kernel.steps[s];
    const kernel::View& view = step.view;
    if (!needed[s] || step.kind != StepKind::gather || !view.bounds.empty() || view.extents.size() < 2) continue;
    if (view.strides.back() != 1 || step.axis_stride < view.extents.back() || !varies[static_cast<std::size_t>(step.a)])
      continue;
    Extent points = 1, taken = 1;
    for (const Extent extent : view.extents) points *= extent;
    for (std::size_t d = view.extents.size() - 1; d-- > 0 && view.strides[d] == 0;) taken *= view.extents[d];
    const Extent inner = view.extents.back();
    const Extent bytes =
        step.axis_extent * element(kernel.inputs[static_cast<std::size_t>(step.operand)].type).bits / 8;
    if (points != total || taken < kStripsWidthLeast || inner < 2 * kStripsWidthLeast || bytes * inner <= kStripsBytes)
      continue;
    gathers.push_back({static_cast<int>(s), taken, inner, bytes});
  }
  return gathers;
}

std::optional<Strips> column_strips(const kernel::LoopKernel& kernel, const std::vector<bool>& needed, Extent total) {
  for (const ColumnGather& gather : column_gathers(kernel, needed, total)) {
    if (gather.bytes * kStripsWidthLeast > kStripsBytes) continue;
    const auto width = static_cast<Extent>(std::bit_floor(static_cast<std::uint64_t>(kStripsBytes / gather.bytes)));
    return Strips{gather.taken, gather.inner, std::clamp(width, kStripsWidthLeast, kStripsWidthMost)};
  }
  return {};
}

PlaceInBlock place_in_strips(const Strips& strips, int neighbours) {
  const Extent across = strips.width / neighbours, count = divide_up(strips.inner, strips.width);
  const std::string rows = divided("item", across), blocks = divided(rows, strips.taken);
  const std::string column =
      fmt::format("({} * {}u + {} * {}u)", modulo(blocks, count), strips.width, modulo("item", across), neighbours);
  return {fmt::format("({} * {}u + {}) * {}u + {}", divided(blocks, count), strips.taken, modulo(rows, strips.taken),
                      strips.inner, column),
          strips.inner % strips.width == 0 ? "" : fmt::format("{} < {}u", column, strips.inner)};
}

}  // namespace weft::webgpu
