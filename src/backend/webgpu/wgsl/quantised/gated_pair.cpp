#include "backend/webgpu/wgsl/quantised/gated_pair.hpp"

#include <algorithm>
#include <vector>

#include "backend/webgpu/wgsl/loop.hpp"

namespace weft::webgpu {
using kernel::LoopKernel;
using kernel::Operand;
using kernel::PackedMatmulKernel;
using kernel::Step;
using kernel::StepKind;

namespace {

bool same_rows(const PackedMatmulKernel& x, const PackedMatmulKernel& y) {
  if (x.rows && y.rows)
    return x.rows->inputs == y.rows->inputs && x.rows->steps == y.rows->steps && x.rows->stores == y.rows->stores;
  return !x.rows && !y.rows && x.a == y.a && x.a_row == y.a_row;
}

/// Whether the second epilogue reads what the first one stores, and only element for element: else the value is not available.
bool reads_each_element(const LoopKernel& first, const LoopKernel& second) {
  if (first.outputs.size() != 1 || first.stores.size() != 1) return false;
  const Operand& made = first.outputs[0];
  bool is_read = false;
  for (const Step& step : second.steps) {
    if (step.operand < 0) continue;
    const Operand& input = second.inputs[static_cast<std::size_t>(step.operand)];
    if (input.buffer != made.buffer) continue;
    if (step.kind != StepKind::load || input != made || !(step.view == first.stores[0].view)) return false;
    is_read = true;
  }
  return is_read;
}

/// Whether the second product writes where other threads still read, or where the first writes.
bool overwrites(const PackedMatmulKernel& first, const LoopKernel& first_epilogue, const LoopKernel& second_epilogue) {
  const auto touches = [](const std::vector<Operand>& operands, int buffer) {
    return std::any_of(operands.begin(), operands.end(), [&](const Operand& o) { return o.buffer == buffer; });
  };
  for (const Operand& out : second_epilogue.outputs)
    if ((first.rows && touches(first.rows->inputs, out.buffer)) || touches(first_epilogue.inputs, out.buffer) ||
        out.buffer == first_epilogue.outputs[0].buffer)
      return true;
  return false;
}

}  // namespace

std::optional<GatedPair> gated_pair(const PackedMatmulKernel& first, const PackedMatmulKernel& second,
                                    bool keeps_first) {
  if (first.block_type != second.block_type || first.m != second.m || first.experts != second.experts ||
      first.n != second.n || first.k != second.k || first.m * first.n == 0 || !same_rows(first, second))
    return {};
  LoopKernel both = without_inner(first.epilogue), after = without_inner(second.epilogue);
  if (!reads_each_element(both, after) || overwrites(first, both, after)) return {};
  const Operand made = both.outputs[0];
  const int value = both.stores[0].value;
  if (!keeps_first) both.outputs.clear(), both.stores.clear();
  const auto steps = static_cast<int>(both.steps.size()), inputs = static_cast<int>(both.inputs.size()),
             outputs = static_cast<int>(both.outputs.size());
  for (Step step : after.steps) {
    for (int* operand : {&step.a, &step.b, &step.c})
      if (*operand >= 0) *operand += steps;
    if (step.operand >= 0) {
      if (after.inputs[static_cast<std::size_t>(step.operand)] == made) {
        step = {StepKind::map, step.type, step.level};
        step.op = scalar::Op::cast;
        step.a = value;
      } else {
        step.operand += inputs;
      }
    }
    both.steps.push_back(step);
  }
  both.inputs.insert(both.inputs.end(), after.inputs.begin(), after.inputs.end());
  both.outputs.insert(both.outputs.end(), after.outputs.begin(), after.outputs.end());
  for (kernel::Store store : after.stores) {
    store.value += steps;
    store.output += outputs;
    both.stores.push_back(store);
  }
  return GatedPair{std::move(both), static_cast<std::size_t>(steps)};
}

}  // namespace weft::webgpu
