#include "compile/copies.hpp"

#include <fmt/format.h>

#include "compile/cluster.hpp"
#include "compile/sources.hpp"
#include "compile/strided.hpp"
#include "graph/attention.hpp"
#include "graph/op.hpp"

namespace weft::compiler {
namespace {

using graph::Kind;
using graph::Node;
using graph::NodeRef;

bool is_viewed(const Node& node) { return graph::is_view(node.kind) && !is_leaf(node); }

// True if the node alone has a form as a kernel, with its inputs in memory; else `blame` is the node that prevents it.
bool has_kernel(const Node& node, const Node** blame) {
  const NodeSet members{&node};
  return node.shape.numel() == 0 ||
         build_loop({&node, {&node}}, {&node}, {&members, nullptr, nullptr, contiguous_place}, blame);
}
bool has_kernel(const Node& node) {
  const Node* blame = nullptr;
  return has_kernel(node, &blame);
}

// A chain of views without a form, with a copy below as few of its last views as possible.
NodeRef shortened(const NodeRef& view) {
  std::vector<NodeRef> above{view};
  NodeRef below = view->inputs[0];
  while (is_viewed(*below) && !has_kernel(*copy_of(below))) {
    above.push_back(below);
    below = below->inputs[0];
  }
  if (is_compute(*below) || is_leaf(*below))
    throw InternalError(fmt::format("compile: {} of {} has no form", title(*above.back()), title(*below)));
  NodeRef result = copy_of(below);
  for (; !above.empty(); above.pop_back()) result = with_inputs(*above.back(), {result});
  return result;
}

// The loop node, with copies below it where the views between it and memory have no form together. Each step puts more of its
// inputs into memory. Once all are there, contiguous, every loop has a kernel.
NodeRef readable(NodeRef node) {
  const Node* blame = nullptr;
  while (!has_kernel(*node, &blame)) {
    auto replaced = [&](std::size_t i, NodeRef with) {
      std::vector<NodeRef> inputs = node->inputs;
      inputs[i] = std::move(with);
      return with_inputs(*node, std::move(inputs));
    };
    NodeRef next = node;
    // A gather reads its rows at computed places, so they must be in memory, with strides.
    if (node->kind == Kind::gather && blame == node->inputs[0].get())
      next = replaced(0, readable(copy_of(node->inputs[0])));
    // An operand that has no form even alone.
    for (std::size_t i = 0; next == node && i < node->inputs.size(); ++i)
      if (!has_kernel(*copy_of(node->inputs[i]))) next = replaced(i, shortened(node->inputs[i]));
    // Operands whose forms exclude each other.
    for (std::size_t i = 0; next == node && i < node->inputs.size(); ++i)
      if (is_viewed(*node->inputs[i])) next = replaced(i, readable(copy_of(node->inputs[i])));
    if (next == node)
      throw InternalError(
          fmt::format("compile: no kernel for {} (blocked by {})", title(*node), blame ? title(*blame) : "nothing"));
    node = std::move(next);
  }
  return node;
}

// A copy of the value, or of the value that it repeats along some axes.
NodeRef copy_once(const NodeRef& x) {
  if (x->kind == Kind::expand && x->inputs[0]->shape.numel() < x->shape.numel())
    return with_inputs(*x, {copy_once(x->inputs[0])});
  return readable(copy_of(x));
}

template <class NeedsCopy>
NodeRef with_copied_inputs(const NodeRef& node, NeedsCopy needs_copy) {
  std::vector<NodeRef> inputs = node->inputs;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (needs_copy(i, *inputs[i])) inputs[i] = readable(copy_of(inputs[i]));
  return with_inputs(*node, std::move(inputs));
}

bool packed_product_needs_copy(std::size_t input, const Node& x) {
  if (x.shape.numel() == 0) return false;
  if (input > 0) return !contiguous_operand(&x, contiguous_place);
  const auto operand = matmul_operand(&x, contiguous_place);
  return !operand || operand->column != 1;
}

/// Which inputs of a call need a copy in memory depends on the kernel's form.
std::function<bool(std::size_t input, const Node& x)> needs_copy_of(const graph::OpRow& op) {
  switch (op.form) {
    case graph::KernelForm::packed_product: return packed_product_needs_copy;
    case graph::KernelForm::attention:
      return [&op](std::size_t input, const Node& x) {
        return graph::is_read_by_rows(op, input) ? !attention_operand(&x, contiguous_place)
                                                 : !contiguous_operand(&x, contiguous_place);
      };
    case graph::KernelForm::none:
    case graph::KernelForm::routine:
    case graph::KernelForm::scatter_add: break;
  }
  return [](std::size_t, const Node& x) { return x.shape.numel() > 0 && !contiguous_operand(&x, contiguous_place); };
}

}  // namespace

bool is_copy(const Node& node) { return node.kind == Kind::map && node.name == "copy"; }

OrderedGraph with_copies(OrderedGraph graph, const Target& target) {
  for (NodeRef& output : graph.outputs) {
    if (is_compute(*output)) continue;
    const NodeRef copy = copy_of(output);
    graph.rank.try_emplace(copy.get(), rank_of(graph, output.get()));
    output = copy;
  }
  const PlaceOf place = contiguous_place;
  return rebuild(graph, [&](const Node&, const NodeRef& node) -> NodeRef {
    switch (node->kind) {
      case Kind::map:
      case Kind::reduce:
      case Kind::gather: return readable(node);
      case Kind::concat: return with_copied_inputs(node, [](std::size_t, const Node& part) { return !is_copy(part); });
      case Kind::matmul: {
        const bool windows = target.reads_turned_weights && reads_windows(node->inputs[1].get());
        const auto is_read = [&](const NodeRef& x) {
          if (x->shape.numel() == 0) return true;
          const auto operand = matrix_operand(x.get(), place);
          return operand && (is_read_well(x.get(), *operand) || (windows && is_dense(operand->view)));
        };
        std::vector<NodeRef> inputs = node->inputs;
        for (NodeRef& x : inputs) {
          if (is_read(x)) continue;
          const NodeRef copy = copy_once(x);  // products share a matrix that they repeat
          x = is_read(copy) ? copy : readable(copy_of(x));
        }
        return with_inputs(*node, std::move(inputs));
      }
      case Kind::call: return with_copied_inputs(node, needs_copy_of(*node->op));
      default: return node;
    }
  });
}

}  // namespace weft::compiler
