// Pairs of ops that are one instruction.
#include "backend/cpu/loop/nodes.hpp"

namespace weft::cpu {

using kernel::StepKind;
using scalar::Op;

void join_pairs(LoopNodes& nodes) {
  for (const LoopNode& node : nodes.nodes)
    for (const int a : node.args) ++nodes[a].uses;
  for (const StoreNode& store : nodes.stores) ++nodes[store.value].uses;
  // Comparing twice costs less than a tile of truth values that two choices read.
  std::vector<int> conditions(nodes.nodes.size(), 0);
  for (const LoopNode& node : nodes.nodes)
    if (node.kind == StepKind::map && node.op == Op::select) ++conditions[static_cast<std::size_t>(node.args[0])];
  for (LoopNode& node : nodes.nodes) {
    if (node.kind != StepKind::map || node.joined != Joined::none || !is_float(node.type)) continue;
    const auto joins = [&](int index, auto wanted) {
      const LoopNode& arg = nodes[index];
      return arg.kind == StepKind::map && arg.joined == Joined::none &&
             (arg.uses == 1 || arg.uses == conditions[static_cast<std::size_t>(index)]) && arg.phase == node.phase &&
             arg.slow == node.slow && arg.fast == node.fast && wanted(arg);
    };
    const auto product = [](const LoopNode& arg) { return arg.op == Op::mul; };
    const auto take = [&](int index, int other, Joined joined) {
      const LoopNode& arg = nodes[index];
      node.joined = joined;
      node.args = {arg.args[0], arg.args[1], other};
    };
    if (node.op == Op::add && node.args[0] != node.args[1]) {
      const int a = node.args[0], b = node.args[1];
      if (joins(a, product))
        take(a, b, Joined::mul_add);
      else if (joins(b, product))
        take(b, a, Joined::mul_add);
    } else if (node.op == Op::sub && node.args[0] != node.args[1]) {
      const int a = node.args[0], b = node.args[1];
      if (joins(a, product))
        take(a, b, Joined::mul_sub);
      else if (joins(b, product))
        take(b, a, Joined::sub_mul);
    } else if (node.op == Op::select) {
      const int condition = node.args[0];
      if (joins(condition,
                [&](const LoopNode& arg) { return is_comparison(arg.op) && nodes[arg.args[0]].type == node.type; })) {
        const LoopNode& compare = nodes[condition];
        node.joined = Joined::compare_select;
        node.op = compare.op;
        node.args = {compare.args[0], compare.args[1], node.args[1], node.args[2]};
      }
    }
  }
}

}  // namespace weft::cpu
