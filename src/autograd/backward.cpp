// backward(): gradients into the Variables that a value was made from.
#include <unordered_set>

#include "graph/node.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"

namespace weft {

void backward(const Tensor& output, const Tensor& seed, Where where) {
  if (!output.defined()) throw UsageError("backward: the output has no value");
  std::unordered_set<const graph::Node*> below;
  const graph::NodeRef roots[] = {output.node()};
  // No gradient flows through a detached value, and assigned values are detached. So the walk ends there, however many
  // assignments are pending below.
  const auto ends = [](const graph::Node& node) { return node.kind == graph::Kind::detach; };
  for (const graph::Node* node : graph::topological_order(roots, ends)) below.insert(node);
  std::vector<std::shared_ptr<graph::Cell>> cells;
  std::vector<Tensor> values;
  for (const auto& cell : graph::all_cells()) {
    if (!cell->requires_grad) continue;
    const graph::NodeRef value = graph::value_of(cell);
    if (!below.contains(value.get())) continue;
    cells.push_back(cell);
    values.emplace_back(value);
  }
  const std::vector<Tensor> gradients = grad(output, values, seed, where);
  for (std::size_t i = 0; i < cells.size(); ++i) {
    Tensor& held = graph::gradient_of(cells[i]);
    held = held.defined() ? held + gradients[i] : gradients[i];
  }
}

}  // namespace weft
