#include "graph/no_grad.hpp"

#include <utility>

#include "weft/grad.hpp"

namespace weft {

int& graph::no_grad_depth() {
  thread_local int depth = 0;
  return depth;
}

NoGrad::NoGrad() { ++graph::no_grad_depth(); }
NoGrad::~NoGrad() { --graph::no_grad_depth(); }
EnableGrad::EnableGrad() : before_(std::exchange(graph::no_grad_depth(), 0)) {}
EnableGrad::~EnableGrad() { graph::no_grad_depth() = before_; }
bool grad_enabled() { return graph::no_grad_depth() == 0; }
Tensor detach(const Tensor& x) {
  if (!x.defined()) throw UsageError("detach: the tensor has no value");
  return Tensor(graph::detach(x.node()));
}

}  // namespace weft
