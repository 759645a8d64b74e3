// Whether ops of this thread record gradients, and the wrapping of their results.
#pragma once

#include "graph/node.hpp"

namespace weft::graph {

/// Depth of NoGrad scopes on this thread.
int& no_grad_depth();

/// A public op's result: detached while a NoGrad exists.
inline Tensor wrap(const NodeRef& node) { return Tensor(no_grad_depth() > 0 ? detach(node) : node); }

}  // namespace weft::graph
