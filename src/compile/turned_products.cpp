#include "compile/turned_products.hpp"

#include <algorithm>
#include <unordered_map>

#include "compile/sources.hpp"

namespace weft::compiler {
namespace {

using graph::Kind;
using graph::Node;
using graph::NodeRef;

const std::vector<Extent> kTransposed2 = {1, 0}, kTransposed3 = {0, 2, 1};

/// The product below a transposition, perhaps with its batch axis of one dropped in between; else null.
const Node* turned_product(const Node& node) {
  if (is_leaf(node) || node.kind != Kind::permute) return nullptr;
  const Node& below = *node.inputs[0];
  if (is_leaf(below)) return nullptr;
  if (below.kind == Kind::matmul) return node.ints == kTransposed3 ? &below : nullptr;
  if (below.kind != Kind::reshape || node.ints != kTransposed2) return nullptr;
  const Node& product = *below.inputs[0];
  if (is_leaf(product) || product.kind != Kind::matmul || product.shape[0] != 1) return nullptr;
  return below.shape == Shape{product.shape[1], product.shape[2]} ? &product : nullptr;
}

}  // namespace

OrderedGraph with_turned_products(OrderedGraph graph, const Target& target, const Settings& settings) {
  const auto& disabled = settings.disabled_rewrites;
  if (!target.prefers_separate_buffers ||
      std::find(disabled.begin(), disabled.end(), "turned_products") != disabled.end())
    return graph;
  std::unordered_map<const Node*, int> readers;
  for (const Node* node : graph::topological_order(graph.outputs, [](const Node& n) { return is_leaf(n); }))
    if (!is_leaf(*node))
      for (const NodeRef& input : node->inputs) ++readers[input.get()];
  for (const NodeRef& output : graph.outputs) ++readers[output.get()];
  const auto is_read_once = [&](const Node* node, const Node* product) {
    for (const Node* at = node->inputs[0].get();; at = at->inputs[0].get()) {
      if (readers.at(at) != 1) return false;
      if (at == product) return true;
    }
  };
  return rebuild(graph, [&](const Node& original, const NodeRef& rebuilt) -> NodeRef {
    const Node* product = turned_product(original);
    if (!product || !is_read_once(&original, product) || !turned_product(*rebuilt)) return rebuilt;
    const Node& same = *turned_product(*rebuilt);
    graph::NodeFields fields = same;
    fields.shape = {same.shape[0], same.shape[2], same.shape[1]};
    fields.inputs = {graph::permute(same.inputs[1], {0, 2, 1}), graph::permute(same.inputs[0], {0, 2, 1})};
    const NodeRef turned = graph::make_node(std::move(fields), same.where);
    return turned->shape == original.shape ? turned : graph::reshape(turned, original.shape);
  });
}

}  // namespace weft::compiler
