// Copies for kernels that need a value in separate memory.
#pragma once

#include "compile/compile.hpp"
#include "compile/rewrite.hpp"

namespace weft::compiler {

/// The graph with copies of results that are views or leaves, of parts of a concat, of operands that no strides describe, and
/// of other values that a kernel's views cannot read. Every node of the result has a kernel alone.
OrderedGraph with_copies(OrderedGraph graph, const Target& target);

bool is_copy(const graph::Node& node);

}  // namespace weft::compiler
