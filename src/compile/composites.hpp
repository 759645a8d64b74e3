// Replaces calls that the target has no kernel for by primitives.
#pragma once

#include "compile/compile.hpp"
#include "compile/rewrite.hpp"

namespace weft::compiler {

/// The graph with attention and routines replaced by primitives if the target has no kernel for them, or if primitives are
/// faster. Throws DeviceError for a node that has neither a kernel nor a form in primitives.
OrderedGraph with_composites_split(const OrderedGraph& graph, const Target& target, const Settings& settings);

/// Throws a DTypeError that names a node whose type the target does not support.
void check_dtypes(const OrderedGraph& graph, const Target& target);

}  // namespace weft::compiler
