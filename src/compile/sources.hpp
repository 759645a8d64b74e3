// What nodes read, through views.
#pragma once

#include <unordered_map>
#include <vector>

#include "graph/node.hpp"

namespace weft::compiler {

/// True for values that exist in memory before any kernel runs.
bool is_leaf(const graph::Node& node);
bool is_compute(const graph::Node& node);
/// The node below a chain of views.
const graph::Node* base_of(const graph::Node* node);
/// The inputs of a node, followed through views: compute nodes and leaves (without constants and iotas).
std::vector<const graph::Node*> sources_of(const graph::Node& node);
/// For each compute node, the compute nodes that read it (inlined ones included).
std::unordered_map<const graph::Node*, std::vector<const graph::Node*>> consumers_of(
    const std::vector<const graph::Node*>& compute);

}  // namespace weft::compiler
