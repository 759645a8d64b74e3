// What the target has no kernel for becomes primitives.
#pragma once

#include "compile/compile.hpp"
#include "compile/rewrite.hpp"

namespace weft::compiler {

/// The graph with attention and routines taken apart where the target has no kernel for them, or where primitives are
/// faster. Throws DeviceError for a node that has neither a kernel nor a form in primitives.
OrderedGraph with_composites_split(const OrderedGraph& graph, const Target& target, const Settings& settings);

/// Throws DTypeError that names a node of a type that the target does not compute.
void check_dtypes(const OrderedGraph& graph, const Target& target);

}  // namespace weft::compiler
