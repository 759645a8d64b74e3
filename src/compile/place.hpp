// The places where values are written: separate memory, or their place in a concat.
#pragma once

#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "compile/emit.hpp"
#include "compile/rewrite.hpp"

namespace weft::compiler {

/// Nodes to compute, in the order in which the user wrote them, as far as their inputs allow.
std::vector<const graph::Node*> in_order(const OrderedGraph& graph);

struct Placement {
  NodeSet stored;             // results: they must be in memory at the end
  NodeSet written_elsewhere;  // copies that have no kernel: their input is written in their place
  std::unordered_map<const graph::Node*, Place> places;
  std::vector<std::pair<const graph::Node*, Place>> extra_parts;  // parts of a concat that are also needed elsewhere

  /// Types of results (`project` nodes) of attention that differ from those of their calls.
  std::map<std::pair<const graph::Node*, int>, DType> result_types;

  Place of(const graph::Node* node) const;
};

/// Places the parts of a concat inside it.
Placement place_parts(const OrderedGraph& graph, const std::vector<const graph::Node*>& compute);

}  // namespace weft::compiler
