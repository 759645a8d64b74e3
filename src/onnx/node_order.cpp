#include "onnx/node_order.hpp"

#include <algorithm>
#include <functional>
#include <queue>
#include <unordered_map>
#include <unordered_set>

namespace weft::onnx {
namespace {

// Calls f with each name that a node reads, also in graphs inside of it, where names of their own may be among them.
template <class F>
void each_name_read(const NodeProto& node, const F& f) {
  for (const std::string_view name : node.inputs)
    if (!name.empty()) f(name);
  for (const AttributeProto& a : node.attributes) {
    if (!a.graph) continue;
    for (const NodeProto& inner : a.graph->nodes) each_name_read(inner, f);
    for (const ValueInfo& output : a.graph->outputs) f(output.name);
  }
}

void order_list(std::vector<NodeProto>& nodes) {
  std::unordered_map<std::string_view, std::size_t> maker;
  for (std::size_t i = 0; i < nodes.size(); ++i)
    for (const std::string_view output : nodes[i].outputs)
      if (!output.empty()) maker.emplace(output, i);
  std::vector<std::size_t> waits(nodes.size(), 0);
  std::vector<std::vector<std::size_t>> readers(nodes.size());
  bool in_order = true;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    std::unordered_set<std::size_t> makers;
    each_name_read(nodes[i], [&](std::string_view name) {
      if (const auto found = maker.find(name); found != maker.end() && found->second != i) makers.insert(found->second);
    });
    for (const std::size_t m : makers) {
      in_order = in_order && m < i;
      ++waits[i];
      readers[m].push_back(i);
    }
  }
  if (!in_order) {
    // Of the nodes that can be next the first one is: what is in order stays so.
    std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> ready;
    for (std::size_t i = 0; i < nodes.size(); ++i)
      if (waits[i] == 0) ready.push(i);
    std::vector<std::size_t> order;
    while (!ready.empty()) {
      const std::size_t i = ready.top();
      ready.pop();
      order.push_back(i);
      for (const std::size_t reader : readers[i])
        if (--waits[reader] == 0) ready.push(reader);
    }
    if (order.size() == nodes.size()) {
      std::vector<NodeProto> sorted;
      sorted.reserve(nodes.size());
      for (const std::size_t i : order) sorted.push_back(std::move(nodes[i]));
      nodes = std::move(sorted);
    }
  }
  for (NodeProto& node : nodes)
    for (AttributeProto& a : node.attributes)
      if (a.graph) order_list(a.graph->nodes);
}

}  // namespace

void order_nodes(ModelProto& model) {
  for (FunctionProto& f : model.functions) order_list(f.nodes);
  order_list(model.graph.nodes);
}

}  // namespace weft::onnx
