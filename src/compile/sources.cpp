#include "compile/sources.hpp"

#include <algorithm>

namespace weft::compiler {

using graph::Kind;
using graph::Node;

bool is_leaf(const Node& node) {
  return node.kind == Kind::data || node.kind == Kind::input || node.storage != nullptr;
}

bool is_compute(const Node& node) {
  if (is_leaf(node) || graph::is_view(node.kind)) return false;
  return node.kind != Kind::constant && node.kind != Kind::iota;
}

const Node* base_of(const Node* node) {
  while (graph::is_view(node->kind) && !is_leaf(*node)) node = node->inputs[0].get();
  return node;
}

std::vector<const Node*> sources_of(const Node& node) {
  std::vector<const Node*> sources;
  for (const auto& input : node.inputs) {
    const Node* base = base_of(input.get());
    if ((is_leaf(*base) || is_compute(*base)) && std::find(sources.begin(), sources.end(), base) == sources.end())
      sources.push_back(base);
  }
  return sources;
}

std::unordered_map<const Node*, std::vector<const Node*>> consumers_of(const std::vector<const Node*>& compute) {
  std::unordered_map<const Node*, std::vector<const Node*>> consumers;
  for (const Node* node : compute)
    for (const Node* source : sources_of(*node)) consumers[source].push_back(node);
  return consumers;
}

}  // namespace weft::compiler
