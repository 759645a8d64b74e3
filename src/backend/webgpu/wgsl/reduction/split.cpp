// Splits long rows over two kernels.
#include "backend/webgpu/wgsl/reduction/writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "backend/webgpu/wgsl/loop.hpp"

namespace weft::webgpu {
using kernel::Level;
using kernel::LoopKernel;
using kernel::Step;
using kernel::StepKind;
using scalar::Reduction;

// Splits the rows: this kernel reduces chunks to scratch buffers, laid out [chunk][outer]; a second one reduces these and does
// the rest. If values need the results, inner ones or those of further reductions, a third kernel computes them. For argmax the
// first keeps the extreme's key and position, the second takes the position of the best key.
void ReductionWriter::render_split() {
  LoopKernel rest;
  rest.name = kernel_.name + ".join";
  rest.outer = kernel_.outer;
  rest.inner = layout_.chunks;
  rest.inputs = kernel_.inputs;
  rest.outputs = kernel_.outputs;
  std::map<int, int> maximum_of;                            // by the step of a sum of exponentials
  std::map<std::pair<int, int>, kernel::Operand> partials;  // by step and part
  std::vector<int> place(kernel_.steps.size(), -1);
  const Extent count = kernel_.outer * layout_.chunks;
  const kernel::View across{{kernel_.outer, layout_.chunks}, {1, kernel_.outer}, 0, {}};
  const auto push = [&](Step step) {
    rest.steps.push_back(std::move(step));
    return static_cast<int>(rest.steps.size()) - 1;
  };
  const auto load_partial = [&](DType type, int s, int part) {
    rest.inputs.push_back(partials[{s, part}] = scratch_.add(type, count));
    Step load{StepKind::load, type, Level::inner};
    load.operand = static_cast<int>(rest.inputs.size()) - 1;
    load.view = across;
    return push(load);
  };
  for (std::size_t s = 0; s < kernel_.steps.size(); ++s) {
    const Step& step = kernel_.steps[s];
    if (!needed_[s] || is_later(static_cast<int>(s))) continue;
    if (step.kind != StepKind::reduce) {
      Step copy = step;
      for (int* operand : {&copy.a, &copy.b, &copy.c})
        if (*operand >= 0) *operand = place[static_cast<std::size_t>(*operand)];
      place[s] = push(copy);
      continue;
    }
    const int beside = sum_beside(static_cast<int>(s)), sum = beside < 0 ? static_cast<int>(s) : beside;
    if (const Joint kind = joint(sum); kind != Joint::none) {
      if (place[static_cast<std::size_t>(sum)] < 0) {
        const auto load = [&](int part) { return load_partial(DType::f32, sum, part); };
        int& maximum = maximum_of[sum];
        place[static_cast<std::size_t>(sum)] = push_joined(kind, rest, load, &maximum);
      }
      if (beside >= 0) place[s] = maximum_of[sum];
      continue;
    }
    const DType from = kernel_.steps[static_cast<std::size_t>(step.a)].type;
    const bool arg = gives_position(step.reduction);
    Step reduce{StepKind::reduce, arg ? DType::i32 : step.type, Level::outer};
    reduce.reduction = arg ? Reduction::argmax : step.reduction;
    reduce.a = load_partial(arg ? DType::u32 : from, static_cast<int>(s), 0);
    place[s] = push(reduce);
    if (!arg) continue;
    rest.inputs.push_back(partials[{static_cast<int>(s), 1}] = scratch_.add(DType::i32, count));
    Step gather{StepKind::gather, step.type, Level::outer};
    gather.operand = static_cast<int>(rest.inputs.size()) - 1;
    gather.a = place[s];
    gather.axis_extent = layout_.chunks;
    gather.axis_stride = kernel_.outer;
    gather.view = {{kernel_.outer}, {1}, 0, {}};
    place[s] = push(gather);
  }
  for (kernel::Store store : kernel_.stores) {
    if (is_later(store.value)) continue;
    store.value = place[static_cast<std::size_t>(store.value)];
    rest.stores.push_back(store);
  }
  const std::vector<int> crossing = crossing_steps();
  std::vector<kernel::Operand> crossed;
  for (const int s : crossing) {
    crossed.push_back(scratch_.add(kernel_.steps[static_cast<std::size_t>(s)].type, kernel_.outer));
    rest.outputs.push_back(crossed.back());
    rest.stores.push_back(
        {place[static_cast<std::size_t>(s)], static_cast<int>(rest.outputs.size()) - 1, {{kernel_.outer}, {1}, 0, {}}});
  }
  std::vector<kernel::Operand> written;  // in the order of steps and parts, as write_kernel stores them
  for (const auto& [at, operand] : partials) written.push_back(operand);
  write_kernel(&written);
  webgpu::render(rest, target_, scratch_, rendered_);
  if (stores_later_values()) render_backwards(later_kernel(crossing, crossed), target_, scratch_, rendered_);
}

}  // namespace weft::webgpu
