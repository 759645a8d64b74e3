// Whether ops of this thread record gradients, and the wrapping of results that follows from it.
#pragma once

#include "graph/node.hpp"

namespace weft::graph {

/// Depth of NoGrad scopes on this thread.
int& no_grad_depth();

/// A public op's result: detached while a NoGrad lives.
inline Tensor wrap(const NodeRef& node) { return Tensor(no_grad_depth() > 0 ? detach(node) : node); }

}  // namespace weft::graph
