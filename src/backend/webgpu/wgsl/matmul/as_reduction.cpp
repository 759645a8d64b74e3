#include "backend/webgpu/wgsl/matmul/as_reduction.hpp"

#include <utility>

#include "backend/webgpu/wgsl/loop.hpp"

namespace weft::webgpu {
using kernel::Level;
using kernel::LoopKernel;
using kernel::MatmulKernel;
using kernel::Step;
using kernel::StepKind;

namespace {

/// A view over [batch, m, n, k], made of parts that follow some of these axes.
kernel::View joined(const kernel::View& batch, std::initializer_list<kernel::View> axes) {
  kernel::View view = batch;
  for (const kernel::View& axis : axes) {
    view.extents.insert(view.extents.end(), axis.extents.begin(), axis.extents.end());
    view.strides.insert(view.strides.end(), axis.strides.begin(), axis.strides.end());
  }
  return view;
}

kernel::View view_of_a(const MatmulKernel& kernel, const kernel::MatrixView::Sum& sum) {
  return joined(sum.batch, {sum.rows, {{kernel.n}, {0}, 0, {}}, sum.columns});
}
kernel::View view_of_b(const MatmulKernel& kernel, const kernel::MatrixView::Sum& sum) {
  return joined(sum.batch, {{{kernel.m}, {0}, 0, {}}, sum.columns, sum.rows});
}

/// Appends the steps that read an operand; the last one gives the element.
template <class ViewOf>
int append_read(LoopKernel& loop, int input, const kernel::MatrixView& view, ViewOf view_of) {
  const DType stored = loop.inputs[static_cast<std::size_t>(input)].type;
  const DType type = compute_type(stored);
  const auto add = [&](Step step) {
    step.level = Level::inner;
    loop.steps.push_back(std::move(step));
    return static_cast<int>(loop.steps.size()) - 1;
  };
  if (view.edges.empty()) return add(load_step(type, input, view_of(view.at)));
  // With edges the place is computed, and a gather outside of the operand reads 0.
  const auto number = [&](Extent value) {
    Step step{StepKind::constant, DType::i32};
    step.value = static_cast<double>(value);
    return add(step);
  };
  const auto map = [&](scalar::Op op, DType result, int a, int b, int c = -1) {
    Step step{StepKind::map, result};
    step.op = op, step.a = a, step.b = b, step.c = c;
    return add(step);
  };
  const auto index = [&](const kernel::MatrixView::Sum& sum) {
    Step step{StepKind::index, DType::i32};
    step.view = view_of(sum);
    return add(step);
  };
  int place = index(view.at);
  const int outside = number(-1);
  for (const kernel::MatrixView::Edge& edge : view.edges) {
    const int value = index(edge.value);
    const int lo = number(edge.lo), hi = number(edge.hi);
    const int after = map(scalar::Op::ge, DType::boolean, value, lo);
    const int before = map(scalar::Op::lt, DType::boolean, value, hi);
    const int inside = map(scalar::Op::logical_and, DType::boolean, after, before);
    place = map(scalar::Op::select, DType::i32, inside, place, outside);
  }
  Step gather{StepKind::gather, type};
  gather.operand = input;
  gather.a = place;
  gather.axis_stride = 1;
  gather.axis_extent = loop.inputs[static_cast<std::size_t>(input)].count;
  gather.view = {{loop.outer * loop.inner}, {0}, 0, {}};
  return add(gather);
}

}  // namespace

void append_epilogue(LoopKernel& loop, const LoopKernel& given, int product) {
  const LoopKernel epilogue = without_inner(given);
  const int input_shift = static_cast<int>(loop.inputs.size());
  loop.inputs.insert(loop.inputs.end(), epilogue.inputs.begin(), epilogue.inputs.end());
  loop.outputs = epilogue.outputs;
  const int step_shift = static_cast<int>(loop.steps.size());
  for (Step step : epilogue.steps) {
    for (int* operand : {&step.a, &step.b, &step.c})
      if (*operand >= 0) *operand += step_shift;
    if (step.operand >= 0) step.operand += input_shift;
    if (step.kind == StepKind::accumulator) {
      step.kind = StepKind::map;
      step.op = scalar::Op::cast;
      step.a = product;
    }
    loop.steps.push_back(step);
  }
  for (kernel::Store store : epilogue.stores) {
    store.value += step_shift;
    loop.stores.push_back(store);
  }
}

Step load_step(DType type, int operand, kernel::View view) {
  Step step{StepKind::load, type, Level::inner};
  step.operand = operand;
  step.view = std::move(view);
  return step;
}

Step sum_step(DType type, int of) {
  Step step{StepKind::reduce, type, Level::outer};
  step.a = of;
  return step;
}

void render_as_reduction(const MatmulKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered) {
  LoopKernel loop;
  loop.name = kernel.name;
  loop.outer = kernel.batch * kernel.m * kernel.n;
  loop.inner = kernel.k;
  loop.inputs = {kernel.a, kernel.b};
  const DType type = kernel.type();
  Step multiply{StepKind::map, type, Level::inner};
  multiply.op = scalar::Op::mul;
  multiply.a = append_read(loop, 0, kernel.a_view, [&](const auto& sum) { return view_of_a(kernel, sum); });
  multiply.b = append_read(loop, 1, kernel.b_view, [&](const auto& sum) { return view_of_b(kernel, sum); });
  loop.steps.push_back(multiply);
  loop.steps.push_back(sum_step(type, static_cast<int>(loop.steps.size()) - 1));
  append_epilogue(loop, kernel.epilogue, static_cast<int>(loop.steps.size()) - 1);
  render(loop, target, scratch, rendered);
}

}  // namespace weft::webgpu
