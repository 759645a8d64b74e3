// Gradients as nodes, for the folder's own use.
#pragma once

#include <span>
#include <vector>

#include "graph/node.hpp"

namespace weft::autograd {

/// d sum(seed * output) / d end for every end, as if ends did not depend on each other or on anything else: gradients stop
/// at them. Null where nothing flows.
std::vector<graph::NodeRef> gradients_up_to(std::span<const graph::NodeRef> ends, const graph::NodeRef& output,
                                            const graph::NodeRef& seed);

}  // namespace weft::autograd
