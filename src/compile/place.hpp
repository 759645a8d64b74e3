// Where values are written: in memory of their own, or where they belong in a concat.
#pragma once

#include <unordered_map>
#include <utility>
#include <vector>

#include "compile/emit.hpp"
#include "compile/rewrite.hpp"

namespace weft::compiler {

/// Nodes to compute, in the order in which the user wrote them as far as what they read allows.
std::vector<const graph::Node*> in_order(const OrderedGraph& graph);

struct Placement {
  NodeSet stored;             // results: they must be in memory at the end
  NodeSet written_elsewhere;  // copies that have no kernel: what they read is written at their place
  std::unordered_map<const graph::Node*, Place> places;
  std::vector<std::pair<const graph::Node*, Place>> extra_parts;  // parts of a concat that also live elsewhere

  Place of(const graph::Node* node) const;
};

/// Parts of a concat are written where they belong in it.
Placement place_parts(const OrderedGraph& graph, const std::vector<const graph::Node*>& compute);

}  // namespace weft::compiler
