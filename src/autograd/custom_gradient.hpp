// Calls of functions with gradients of their own, for the folder's own use.
#pragma once

#include <vector>

#include "graph/node.hpp"

namespace weft::autograd {

bool is_custom_gradient(const graph::Node& call);
/// The call for a batch: its inputs and results have the examples as axis 0, and so do its gradients.
std::vector<graph::NodeRef> batched_custom_gradient(const graph::Node& call, std::vector<graph::NodeRef> inputs,
                                                    std::vector<graph::NodeRef> results, Extent examples);

}  // namespace weft::autograd
