#include "backend/webgpu/wgsl/scatter_along.hpp"

#include <fmt/format.h>

#include <optional>

#include "backend/webgpu/wgsl/axis_lines.hpp"
#include "backend/webgpu/wgsl/line_sums.hpp"
#include "backend/webgpu/wgsl/routine_shader.hpp"
#include "backend/webgpu/wgsl/scalar.hpp"
#include "backend/webgpu/wgsl/turned_lines.hpp"
#include "backend/webgpu/wgsl/zeros.hpp"
#include "compile/call_attributes.hpp"
#include "graph/scatter.hpp"

namespace weft::webgpu {
namespace {

constexpr Extent kAddedLeast = 32;  // updates of a line that are added up as integers

/// A thread takes a line, and adds its few updates in order. Neighbouring threads take neighbouring lines.
RenderedDispatch add_by_lines(const kernel::CallKernel& kernel, const AxisLines& along, const Target& target) {
  constexpr int kThreads = 64;
  const auto [outer, extent, inner, taken] = along;
  const Extent lines = outer * inner;
  RoutineShader s(target, kernel.name);
  const int indices = s.read(kernel.reads[0]), updates = s.read(kernel.reads[1]), out = s.write(kernel.out());
  s.resolve();
  s.pieces.threads = kThreads;
  s.line(fmt::format("let number = group * {}u + thread;", kThreads));
  s.line(fmt::format("if (number >= {}u) {{ return; }}", lines));
  s.line(fmt::format("let before = {};", divided("number", inner)));
  s.line(fmt::format("let after = {};", modulo("number", inner)));
  s.line(fmt::format("for (var t = 0u; t < {}u; t++) {{", taken));
  s.line(fmt::format("  let source = (before * {}u + t) * {}u + after;", taken, inner));
  s.line(fmt::format("  let r = {};", as_place(kernel.reads[0], s.at(indices, "source"))));
  s.line(fmt::format("  let to = (before * {}u + r) * {}u + after;", extent, inner));
  s.line(fmt::format("  if (r < {}u) {{ {} }}", extent,
                     s.put(out, "to", fmt::format("{} + {}", s.at(out, "to"), s.at(updates, "source")))));
  s.line("}");
  return s.dispatch(kernel.name, divide_up(lines, kThreads));
}

}  // namespace

void render_scatter_along(const kernel::CallKernel& kernel, const Target& target, Scratch& scratch,
                          Rendered& rendered) {
  if (kernel.shape().numel() == 0) return;
  const auto a = kernel::attributes_of<graph::ScatterAlongAttributes>(kernel);
  const AxisLines along = axis_lines(kernel.shape(), a.axis, kernel.shapes[0]);
  const DType type = kernel.out().type;
  const auto [outer, extent, inner, taken] = along;
  if (outer * taken * inner == 0) return render_zeros(kernel.name, kernel.out(), target, scratch, rendered);
  if (turns_sums(along, type, target))
    return render_turned_lines(kernel, along, target, scratch, rendered, render_scatter_along);
  if (const std::optional<LineBlock> block = sums_block(along, type, target)) {
    rendered.dispatches.push_back(sums_in_workgroup_memory(kernel, along, *block, target));
    return;
  }
  if (taken >= kAddedLeast)
    return render_sums_in_memory({kernel.name, kernel.reads[0], kernel.reads[1], kernel.out(), along}, target, scratch,
                                 rendered);
  render_zeros(kernel.name + ".clear", kernel.out(), target, scratch, rendered);
  rendered.dispatches.push_back(add_by_lines(kernel, along, target));
}

}  // namespace weft::webgpu
