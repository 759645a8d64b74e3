#include "compile/narrow_operands.hpp"

#include <algorithm>

#include "compile/sources.hpp"
#include "compile/strided.hpp"
#include "graph/attention.hpp"
#include "graph/op.hpp"
#include "tensor/element.hpp"

namespace weft::compiler {
namespace {

using graph::Kind;
using graph::Node;
using graph::NodeRef;

/// Whether the node only converts its input, without loss.
bool is_exact_conversion(const Node& node) {
  if (node.kind != Kind::map || is_leaf(node) || node.inputs.size() != 1) return false;
  const auto& code = node.expression->code;
  const Node& input = *node.inputs[0];
  const bool is_integer = node.type == DType::i32 && compute_type(input.type) == DType::i32;
  return code.size() == 2 && code[0].op == scalar::Op::input && code[1].op == scalar::Op::cast && code[1].a == 0 &&
         code[1].type == node.type && input.shape == node.shape && input.type != node.type &&
         (compute_type(node.type) == DType::f32 || is_integer) && holds_all(node.type, input.type);
}

/// The input, or a narrower value before conversions that the kernel can read instead of it.
template <class CanRead>
NodeRef narrowest(const NodeRef& input, const std::vector<DType>& types, CanRead can_read) {
  NodeRef found = input, at = input;
  for (const Node* base = base_of(at.get()); is_exact_conversion(*base); base = base_of(at.get())) {
    at = views_over(at, base, base->inputs[0]);
    if (std::find(types.begin(), types.end(), at->type) != types.end() && can_read(*at)) found = at;
  }
  return found;
}

bool product_can_read(const Node& x) {
  const auto operand = matrix_operand(&x, contiguous_place);
  // A pad adds zeros, and binary numbers have no zero: only the result of their cast can be padded.
  return operand && is_read_well(&x, *operand) && (x.type != DType::binary || operand->view.edges.empty());
}

bool attention_can_read(const Node& x) {
  const auto operand = attention_operand(&x, contiguous_place);
  constexpr Extent kElements = 8;  // multiples of this begin at a whole byte
  return operand && (!is_packed(x.type) || operand->offset % kElements == 0);
}

}  // namespace

OrderedGraph with_narrow_operands(OrderedGraph graph, const Target& target, const Settings& settings) {
  const auto& disabled = settings.disabled_rewrites;
  if (target.product_reads.empty() && target.attention_reads.empty() && target.integer_product_reads.empty())
    return graph;
  if (std::find(disabled.begin(), disabled.end(), "narrow_operands") != disabled.end()) return graph;
  return rebuild(graph, [&](const Node&, const NodeRef& node) -> NodeRef {
    const bool is_attention = graph::has_form(*node, graph::KernelForm::attention);
    if (is_leaf(*node) || (node->kind != Kind::matmul && !is_attention)) return node;
    std::vector<NodeRef> inputs = node->inputs;
    if (node->kind == Kind::matmul && node->type == DType::i32) {
      bool both = true;
      for (NodeRef& input : inputs) {
        if (input->shape.numel() > 0) input = narrowest(input, target.integer_product_reads, product_can_read);
        both = both && input->type != DType::i32;
      }
      return both ? with_inputs(*node, std::move(inputs)) : node;
    }
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i]->shape.numel() == 0 || (is_attention && !graph::is_read_by_rows(*node->op, i))) continue;
      inputs[i] = is_attention ? narrowest(inputs[i], target.attention_reads, attention_can_read)
                               : narrowest(inputs[i], target.product_reads, product_can_read);
    }
    return with_inputs(*node, std::move(inputs));
  });
}

}  // namespace weft::compiler
