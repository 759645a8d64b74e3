#include "compile/shared_casts.hpp"

#include <algorithm>
#include <map>

#include "compile/sources.hpp"

namespace weft::compiler {
namespace {

using graph::Node;
using graph::NodeRef;

/// The leaf that the node casts views of to a narrower float, or null.
const Node* leaf_cast_by(const Node& node) {
  if (is_leaf(node) || !is_cast(node) || !is_float(node.type) || !is_narrow(node.type)) return nullptr;
  if (node.inputs[0]->type != DType::f32) return nullptr;
  const Node* base = base_of(node.inputs[0].get());
  return is_leaf(*base) ? base : nullptr;
}

}  // namespace

OrderedGraph with_shared_casts(OrderedGraph graph, const Settings& settings) {
  const auto& disabled = settings.disabled_rewrites;
  if (std::find(disabled.begin(), disabled.end(), "shared_casts") != disabled.end()) return graph;
  struct Casts {
    int count = 0;
    Extent elements = 0;
  };
  std::map<std::pair<const Node*, DType>, Casts> casts;
  for (const Node* node : graph::topological_order(graph.outputs, [](const Node& n) { return is_leaf(n); }))
    if (const Node* leaf = leaf_cast_by(*node)) {
      Casts& of_leaf = casts[{leaf, node->type}];
      ++of_leaf.count;
      of_leaf.elements += node->shape.numel();
    }
  std::erase_if(casts, [](const auto& each) {
    return each.second.count < 2 || 2 * each.second.elements < each.first.first->shape.numel();
  });
  if (casts.empty()) return graph;
  return rebuild(graph, [&](const Node&, const NodeRef& node) -> NodeRef {
    const Node* leaf = leaf_cast_by(*node);
    if (!leaf || !casts.contains({leaf, node->type})) return node;
    return views_over(node->inputs[0], leaf, graph::cast(leaf->shared_from_this(), node->type));
  });
}

}  // namespace weft::compiler
