#include "backend/webgpu/wgsl/passes.hpp"

#include <algorithm>

#include "backend/webgpu/wgsl/steps.hpp"

namespace weft::webgpu {

using kernel::Level;
using kernel::Step;
using kernel::StepKind;

Passes plan_passes(const kernel::LoopKernel& kernel) {
  Passes passes;
  const std::size_t n = kernel.steps.size();
  const std::vector<bool> needed = needed_steps(kernel);
  passes.ready.assign(n, 0);
  passes.first.assign(n, -1);
  passes.last.assign(n, -1);
  for (std::size_t s = 0; s < n; ++s) {
    const Step& step = kernel.steps[s];
    for (int operand : operands_of(step))
      passes.ready[s] = std::max(passes.ready[s], passes.ready[static_cast<std::size_t>(operand)]);
    if (step.kind != StepKind::reduce || !needed[s]) continue;
    passes.count = std::max(passes.count, passes.ready[s] + 1);
    ++passes.ready[s];
  }
  for (const kernel::Store& store : kernel.stores)
    if (kernel.steps[static_cast<std::size_t>(store.value)].level == Level::inner)
      passes.count = std::max(passes.count, passes.ready[static_cast<std::size_t>(store.value)] + 1);
  const auto use = [&](int step, int pass) {
    const auto s = static_cast<std::size_t>(step);
    if (kernel.steps[s].level != Level::inner) return;
    passes.first[s] = passes.first[s] < 0 ? pass : std::min(passes.first[s], pass);
    passes.last[s] = std::max(passes.last[s], pass);
  };
  for (const kernel::Store& store : kernel.stores) {
    const auto value = static_cast<std::size_t>(store.value);
    if (kernel.steps[value].level != Level::inner) {
      passes.store.push_back(-1);
      continue;
    }
    // An update in place waits until nothing reads the old values.
    const kernel::Operand& output = kernel.outputs[static_cast<std::size_t>(store.output)];
    const bool in_place = std::any_of(kernel.inputs.begin(), kernel.inputs.end(),
                                      [&](const kernel::Operand& input) { return input.buffer == output.buffer; });
    passes.store.push_back(in_place ? passes.count - 1 : passes.ready[value]);
    use(store.value, passes.store.back());
  }
  for (std::size_t s = n; s-- > 0;) {
    const Step& step = kernel.steps[s];
    if (!needed[s]) continue;
    if (step.kind == StepKind::reduce) use(step.a, passes.ready[s] - 1);
    if (step.level == Level::inner && passes.first[s] >= 0)
      for (int operand : operands_of(step)) use(operand, passes.first[s]);
  }
  return passes;
}

}  // namespace weft::webgpu
