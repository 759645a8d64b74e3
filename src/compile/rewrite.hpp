// Rewrites: small named rules that turn a graph into an equal one that compiles better.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "graph/node.hpp"

namespace weft::compiler {

/// A graph, and the place of each node in the order of the original graph (nodes run in that order).
struct OrderedGraph {
  std::vector<graph::NodeRef> outputs;
  std::unordered_map<const graph::Node*, int> rank;
};

/// The node's place in that order; 0 if it has none.
int rank_of(const OrderedGraph& graph, const graph::Node* node);

/// Rebuilds the graph below `outputs` (leaves stay): `transform` gets each node with its inputs already rebuilt, and returns
/// its replacement. The replacement must have the same type and shape (verified: InternalError).
using Transform = std::function<graph::NodeRef(const graph::Node& original, const graph::NodeRef& rebuilt)>;
OrderedGraph rebuild(const OrderedGraph& graph, const Transform& transform);
/// The graph below the outputs in the order in which it was written, composite calls replaced by their parts.
OrderedGraph ordered(std::span<const graph::NodeRef> outputs);

/// The node with other inputs.
graph::NodeRef with_inputs(const graph::Node& node, std::vector<graph::NodeRef> inputs);
/// Whether the node only casts its input.
bool is_cast(const graph::Node& node);
/// The chain of views from `node` down to `below` (exclusive), applied to `source` instead, whose type they take.
graph::NodeRef views_over(const graph::NodeRef& node, const graph::Node* below, const graph::NodeRef& source);
/// A contiguous copy in separate memory.
graph::NodeRef copy_of(const graph::NodeRef& node);

struct Rewrite {
  std::string_view name, doc;
  graph::NodeRef (*apply)(const graph::NodeRef& node);  // the node itself if the rule does not match
};
std::span<const Rewrite> rewrites();
/// Applies all rules whose names are not in `disabled` once to the graph.
OrderedGraph rewrite(const OrderedGraph& graph, std::span<const std::string> disabled);

}  // namespace weft::compiler
