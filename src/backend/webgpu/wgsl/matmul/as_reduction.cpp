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

kernel::View with_inner_dims(const kernel::View& batch, std::initializer_list<std::pair<Extent, Extent>> dims) {
  kernel::View view = batch;
  for (const auto& [extent, stride] : dims) {
    view.extents.push_back(extent);
    view.strides.push_back(stride);
    if (!batch.bounds.empty()) view.bounds.push_back({0, extent});
  }
  return view;
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
  const DType type = kernel.a.type;
  loop.steps.push_back(load_step(
      type, 0, with_inner_dims(kernel.a_batch, {{kernel.m, kernel.a_row}, {kernel.n, 0}, {kernel.k, kernel.a_col}})));
  loop.steps.push_back(load_step(
      type, 1, with_inner_dims(kernel.b_batch, {{kernel.m, 0}, {kernel.n, kernel.b_col}, {kernel.k, kernel.b_row}})));
  Step multiply{StepKind::map, type, Level::inner};
  multiply.op = scalar::Op::mul;
  multiply.a = 0;
  multiply.b = 1;
  loop.steps.push_back(multiply);
  loop.steps.push_back(sum_step(type, 2));
  append_epilogue(loop, kernel.epilogue, 3);
  render(loop, target, scratch, rendered);
}

}  // namespace weft::webgpu
