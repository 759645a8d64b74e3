// Nodes as kernels of the forms other than loops. Their inputs have been copied where needed (copies.hpp).
#pragma once

#include <optional>

#include "compile/draft.hpp"
#include "compile/emit.hpp"
#include "compile/place.hpp"

namespace weft::compiler {

/// The product with its epilogue. A product over no elements is the epilogue alone, applied to zeros.
DraftKernel draft_of_product(const graph::Node& product, BuiltLoop epilogue, const Placement& placement);
DraftKernel draft_of_scatter(const graph::Node& node, const Placement& placement);
/// A call whose kernel reads and writes whole contiguous values. `results` receives the projections that the kernel writes,
/// here and below; the draft refers to them.
DraftKernel draft_of_call(const graph::Node& node, const Placement& placement, std::vector<graph::NodeRef>& results);
DraftKernel draft_of_attention(const graph::Node& node, const Placement& placement,
                               std::vector<graph::NodeRef>& results);

}  // namespace weft::compiler
