#include "graph/no_grad.hpp"

#include <utility>

#include "base/scope_depth.hpp"
#include "graph/node.hpp"
#include "weft/grad.hpp"

namespace weft {

int& graph::no_grad_depth() { return scope_depth<NoGrad>(); }

NoGrad::NoGrad() { ++graph::no_grad_depth(); }
NoGrad::~NoGrad() { --graph::no_grad_depth(); }
EnableGrad::EnableGrad() : before_(std::exchange(graph::no_grad_depth(), 0)) {}
EnableGrad::~EnableGrad() { graph::no_grad_depth() = before_; }
bool grad_enabled() { return graph::no_grad_depth() == 0; }
Tensor detach(const Tensor& x) {
  if (!x.defined()) throw UsageError("detach: the tensor has no value");
  const graph::Node& node = *x.node();
  const graph::Storage* storage = node.storage.get();
  if (!storage || node.kind == graph::Kind::data || graph::has_packed_layout(node))
    return Tensor(graph::detach(x.node()));
  // A computed value becomes one without inputs, so that what it was made from can be freed.
  const graph::NodeRef value =
      graph::make_node({.kind = graph::Kind::data, .type = node.type, .shape = node.shape, .device = node.device});
  value->storage.set(storage->shared());
  return Tensor(value);
}

}  // namespace weft
