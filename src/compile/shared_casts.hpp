// Narrow copies of many slices of one value as one copy.
#pragma once

#include "compile/compile.hpp"
#include "compile/rewrite.hpp"

namespace weft::compiler {

/// Where slices of a leaf are cast to f16 or bf16, and together are at least half of it, the whole leaf is cast once and
/// the slices are taken of that. So the weights of a model, which an optimiser keeps in one flat Variable, become narrow in
/// one kernel a step. `shared_casts` in Settings::disabled_rewrites switches this off.
OrderedGraph with_shared_casts(OrderedGraph graph, const Settings& settings);

}  // namespace weft::compiler
