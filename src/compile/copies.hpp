// Copies where a kernel needs a value in memory of its own.
#pragma once

#include "compile/rewrite.hpp"

namespace weft::compiler {

/// The graph with copies of results that are views or leaves, of parts of a concat, of operands that no strides describe,
/// and of whatever else is in the way of a kernel's views. Every node of it has a kernel by itself.
OrderedGraph with_copies(OrderedGraph graph);

bool is_copy(const graph::Node& node);

}  // namespace weft::compiler
