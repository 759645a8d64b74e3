// Loop kernels that tests put together over buffers.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "backend/webgpu/render.hpp"
#include "backend/webgpu/render_support.hpp"

#if WEFT_HAS_WEBGPU
namespace weft::webgpu {

/// Puts a kernel together over test buffers.
struct LoopBuilder {
  kernel::LoopKernel loop;
  std::vector<TestBuffer> buffers;

  explicit LoopBuilder(Extent outer, Extent inner = 1) {
    loop.name = "test";
    loop.outer = outer;
    loop.inner = inner;
  }
  Extent space(kernel::Level level) const {
    return level == kernel::Level::outer ? loop.outer : loop.outer * loop.inner;
  }
  int step(kernel::Step s) {
    loop.steps.push_back(std::move(s));
    return static_cast<int>(loop.steps.size()) - 1;
  }
  /// A new buffer of `guard` elements, the operand, and `guard` elements.
  kernel::Operand operand(TestBuffer buffer, Extent guard = 0) {
    const Extent count = static_cast<Extent>(buffer.values.size());
    buffer.values.insert(buffer.values.begin(), static_cast<std::size_t>(guard), 7);
    buffer.values.insert(buffer.values.end(), static_cast<std::size_t>(guard), 7);
    buffers.push_back(std::move(buffer));
    return {static_cast<int>(buffers.size()) - 1, buffers.back().type, guard, count};
  }
  int load(kernel::Level level, TestBuffer buffer, kernel::View view, Extent guard = 0) {
    kernel::Step s{kernel::StepKind::load, buffer.type, level};
    loop.inputs.push_back(operand(std::move(buffer), guard));
    s.operand = static_cast<int>(loop.inputs.size()) - 1;
    s.view = std::move(view);
    return step(s);
  }
  int map(scalar::Op op, DType type, int a, int b = -1, int c = -1) {
    kernel::Level level = loop.steps[static_cast<std::size_t>(a)].level;
    for (int other : {b, c})
      if (other >= 0 && loop.steps[static_cast<std::size_t>(other)].level == kernel::Level::inner)
        level = kernel::Level::inner;
    kernel::Step s{kernel::StepKind::map, type, level};
    s.op = op;
    s.a = a;
    s.b = b;
    s.c = c;
    return step(s);
  }
  int constant(double value, DType type = DType::f32) {
    kernel::Step s{kernel::StepKind::constant, type};
    s.value = value;
    return step(s);
  }
  int reduce(scalar::Reduction reduction, int a, DType type = DType::f32) {
    kernel::Step s{kernel::StepKind::reduce, type, kernel::Level::outer};
    s.reduction = reduction;
    s.a = a;
    return step(s);
  }
  void store(int value, DType type, kernel::View view, Extent count, Extent guard = 0) {
    loop.outputs.push_back(operand({type, reference::Values(static_cast<std::size_t>(count), 0.0)}, guard));
    loop.stores.push_back({value, static_cast<int>(loop.outputs.size()) - 1, std::move(view)});
  }
  void store(int value, DType type = DType::f32, Extent guard = 0) {
    const Extent n = space(loop.steps[static_cast<std::size_t>(value)].level);
    store(value, type, contiguous({n}), n, guard);
  }
  /// Dispatches that it is rendered to for a software adapter.
  std::size_t dispatches() const {
    Target target{{.storage_buffers = 16, .workgroup_bytes = 32768, .workgroup_invocations = 1024}, 8};
    target.unroll = false;
    target.profile.compute_units = 16;
    return render(kernel::Kernel(loop), static_cast<int>(buffers.size()), target).dispatches.size();
  }
  void check(double tolerance = 1e-5) const {
    kernel::Plan plan;
    plan.kernels.emplace_back(loop);
    expect_same(plan, buffers, tolerance);
  }
};

}  // namespace weft::webgpu
#endif
