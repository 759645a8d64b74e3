#include "compile/in_place.hpp"

#include <algorithm>

#include "compile/emit.hpp"
#include "graph/op.hpp"

namespace weft::compiler {
namespace {

using graph::Node;

constexpr std::size_t kWorthReplacing = 256 << 10;  // bytes of a product that overwrites an input of its epilogue

bool fits(const Node* old_value, const Node* new_value) {
  return old_value->shape.numel() == new_value->shape.numel() && old_value->type == new_value->type;
}

int place_in(const std::vector<const Node*>& owners, const Node* owner) {
  const auto found = std::find(owners.rbegin(), owners.rend(), owner);
  return static_cast<int>(owners.rend() - found) - 1;
}

bool routine_can_overwrite(const kernel::CallKernel& routine, const DraftKernel& draft, const Node* leaf,
                           const Node* output) {
  const int taken = routine.op->in_place;
  return taken >= 0 && draft.writes[0] == output && draft.reads[static_cast<std::size_t>(taken)] == leaf &&
         std::count(draft.reads.begin(), draft.reads.end(), leaf) == 1;
}

bool loop_can_overwrite(const kernel::LoopKernel& loop, const DraftKernel& draft, const Node* leaf,
                        const Node* output) {
  const int input = place_in(draft.reads, leaf), out = place_in(draft.writes, output);
  const auto stores_output = [&](const kernel::Store& store) { return store.output == out; };
  if (std::count_if(loop.stores.begin(), loop.stores.end(), stores_output) != 1) return false;
  if (input < 0) return true;
  const kernel::Store& store = *std::find_if(loop.stores.begin(), loop.stores.end(), stores_output);
  const kernel::Level level = loop.steps[static_cast<std::size_t>(store.value)].level;
  return std::all_of(loop.steps.begin(), loop.steps.end(), [&](const kernel::Step& step) {
    return step.operand != input ||
           (step.kind == kernel::StepKind::load && step.view == store.view && step.level == level);
  });
}

}  // namespace

bool can_overwrite(const DraftKernel& draft, const Node* leaf, const Node* output) {
  if (!fits(leaf, output)) return false;
  if (const auto* routine = std::get_if<kernel::CallKernel>(&draft.kernel))
    return routine_can_overwrite(*routine, draft, leaf, output);
  const auto* loop = std::get_if<kernel::LoopKernel>(&draft.kernel);
  return loop && loop_can_overwrite(*loop, draft, leaf, output);
}

const Node* replaced_by_product(const DraftKernel& draft, const std::function<bool(const Node*)>& is_read_later,
                                const std::function<std::size_t(const Node*)>& bytes_of) {
  const auto* product = std::get_if<kernel::PackedMatmulKernel>(&draft.kernel);
  if (!product || product->rows || draft.writes.size() != 1 || product->epilogue.stores.size() != 1) return nullptr;
  const Node* written = draft.writes[0];
  const kernel::LoopKernel& epilogue = product->epilogue;
  if (bytes_of(written) < kWorthReplacing) return nullptr;
  for (std::size_t i = 0; i < epilogue.inputs.size(); ++i) {
    const Node* read = draft.reads[2 + i];
    if (is_read_later(read) || is_leaf(*read) || !fits(read, written) ||
        std::count(draft.reads.begin(), draft.reads.end(), read) != 1)
      continue;
    if (std::all_of(epilogue.steps.begin(), epilogue.steps.end(), [&](const kernel::Step& step) {
          return step.operand != static_cast<int>(i) ||
                 (step.kind == kernel::StepKind::load && step.view == epilogue.stores[0].view);
        }))
      return read;
  }
  return nullptr;
}

}  // namespace weft::compiler
