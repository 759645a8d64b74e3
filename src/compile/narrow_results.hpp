// Attention that writes f16 or bf16 itself, where its results are only read behind casts.
#pragma once

#include "compile/compile.hpp"
#include "compile/rewrite.hpp"

namespace weft::compiler {

/// Results of attention that the graph reads only as the same narrow type (cast directly, behind views, or as parts of a
/// concat) take that type, if Capabilities::attention_writes has it; the casts go. The gradient of an attention then reads
/// the rounded result, as it would after a cast. Rule "narrow_results".
OrderedGraph with_narrow_results(OrderedGraph graph, const Target& target, const Settings& settings);

}  // namespace weft::compiler
