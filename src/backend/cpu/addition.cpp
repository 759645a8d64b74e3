#include "backend/cpu/addition.hpp"

#include <algorithm>
#include <variant>

#include "backend/cpu/loop/loop.hpp"

namespace weft::cpu {
namespace {

/// Whether the view is all of `count` elements in order.
bool is_whole(const kernel::View& view, Extent count) {
  Extent product = 1;
  for (std::size_t d = view.extents.size(); d-- > 0; product *= view.extents[d])
    if (view.extents[d] != 1 && view.strides[d] != product) return false;
  return product == count && view.offset == 0 && view.bounds.empty();
}

/// Kernel `k` as an addition to `result`.
std::optional<Addition> addition_of(const kernel::LoopKernel& k, const kernel::Operand& result, Extent count) {
  if (k.steps.size() != 3 || k.stores.size() != 1 || k.stores[0].value != 2 || k.inner != 1 || k.inputs.size() != 2 ||
      k.outputs.size() != 1 || k.outer != count)
    return std::nullopt;
  const kernel::Step& sum = k.steps[2];
  if (sum.kind != kernel::StepKind::map || sum.op != scalar::Op::add || std::min(sum.a, sum.b) != 0 ||
      std::max(sum.a, sum.b) != 1 || sum.type != result.type || k.outputs[0].type != sum.type)
    return std::nullopt;
  for (int i = 0; i < 2; ++i) {
    const kernel::Step& load = k.steps[static_cast<std::size_t>(i)];
    if (load.kind != kernel::StepKind::load || load.level != kernel::Level::outer || load.type != sum.type ||
        k.inputs[static_cast<std::size_t>(load.operand)].type != sum.type || !is_whole(load.view, k.outer))
      return std::nullopt;
  }
  if (!is_whole(k.stores[0].view, k.outer)) return std::nullopt;
  const auto operand = [&](std::size_t load) { return k.inputs[static_cast<std::size_t>(k.steps[load].operand)]; };
  const std::size_t mine = operand(0) == result ? 0 : 1;
  if (operand(mine) != result || overlap(operand(1 - mine), result)) return std::nullopt;
  return Addition{operand(1 - mine), k.outputs[0], k};
}

}  // namespace

std::optional<Addition> addition_after(const kernel::Plan& plan, std::size_t first, const kernel::Operand& result,
                                       Extent count) {
  if (first + 1 >= plan.kernels.size()) return std::nullopt;
  const auto* loop = std::get_if<kernel::LoopKernel>(&plan.kernels[first + 1]);
  if (loop == nullptr) return std::nullopt;
  std::optional<Addition> addition = addition_of(*loop, result, count);
  if (!addition || plan.buffers[static_cast<std::size_t>(result.buffer)].external >= 0) return std::nullopt;
  // The sums may have the memory of operands that the first kernel alone would have read by then.
  bool stands_alone = true;
  kernel::visit_operands(plan.kernels[first], [&](const kernel::Operand& operand, bool is_written) {
    stands_alone = stands_alone && (is_written || operand.buffer < 0 || !overlap(operand, addition->out));
  });
  for (std::size_t i = first + 2; i < plan.kernels.size(); ++i)
    kernel::visit_operands(plan.kernels[i], [&](const kernel::Operand& operand, bool is_written) {
      stands_alone = stands_alone && (is_written || operand.buffer < 0 || !overlap(operand, result));
    });
  if (!stands_alone) return std::nullopt;
  return addition;
}

}  // namespace weft::cpu
