// Splits long rows over two kernels.
#include "backend/webgpu/wgsl/reduction/writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "backend/webgpu/wgsl/loop.hpp"

namespace weft::webgpu {
using kernel::Level;
using kernel::LoopKernel;
using kernel::Step;
using kernel::StepKind;
using scalar::Reduction;

// Splits the rows: this kernel reduces chunks to scratch buffers, laid out [chunk][outer]; a second one reduces these and does
// the rest. For argmax the first keeps the extreme's key and position, the second takes the position of the best key.
void ReductionWriter::render_split() {
  LoopKernel rest;
  rest.name = kernel_.name + ".join";
  rest.outer = kernel_.outer;
  rest.inner = layout_.chunks;
  rest.inputs = kernel_.inputs;
  rest.outputs = kernel_.outputs;
  std::vector<kernel::Operand> partials;
  std::vector<int> place(kernel_.steps.size(), -1);
  const Extent count = kernel_.outer * layout_.chunks;
  const kernel::View across{{kernel_.outer, layout_.chunks}, {1, kernel_.outer}, 0, {}};
  const auto push = [&](Step step) {
    rest.steps.push_back(std::move(step));
    return static_cast<int>(rest.steps.size()) - 1;
  };
  const auto load_partial = [&](DType type) {
    partials.push_back(scratch_.add(type, count));
    rest.inputs.push_back(partials.back());
    Step load{StepKind::load, type, Level::inner};
    load.operand = static_cast<int>(rest.inputs.size()) - 1;
    load.view = across;
    return push(load);
  };
  for (std::size_t s = 0; s < kernel_.steps.size(); ++s) {
    const Step& step = kernel_.steps[s];
    if (!needed_[s] || step.level == Level::inner) continue;
    if (step.kind != StepKind::reduce) {
      Step copy = step;
      for (int* operand : {&copy.a, &copy.b, &copy.c})
        if (*operand >= 0) *operand = place[static_cast<std::size_t>(*operand)];
      place[s] = push(copy);
      continue;
    }
    const DType from = kernel_.steps[static_cast<std::size_t>(step.a)].type;
    const bool arg = gives_position(step.reduction);
    Step reduce{StepKind::reduce, arg ? DType::i32 : step.type, Level::outer};
    reduce.reduction = arg ? Reduction::argmax : step.reduction;
    reduce.a = load_partial(arg ? DType::u32 : from);
    place[s] = push(reduce);
    if (!arg) continue;
    partials.push_back(scratch_.add(DType::i32, count));
    rest.inputs.push_back(partials.back());
    Step gather{StepKind::gather, step.type, Level::outer};
    gather.operand = static_cast<int>(rest.inputs.size()) - 1;
    gather.a = place[s];
    gather.axis_extent = layout_.chunks;
    gather.axis_stride = kernel_.outer;
    gather.view = {{kernel_.outer}, {1}, 0, {}};
    place[s] = push(gather);
  }
  for (kernel::Store store : kernel_.stores) {
    store.value = place[static_cast<std::size_t>(store.value)];
    rest.stores.push_back(store);
  }
  write_kernel(&partials);
  webgpu::render(rest, target_, scratch_, rendered_);
}

}  // namespace weft::webgpu
