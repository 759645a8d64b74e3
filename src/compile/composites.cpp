#include "compile/composites.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "compile/emit.hpp"

namespace weft::compiler {
namespace {

using graph::Kind;
using graph::Node;
using graph::NodeRef;

bool runs_routine(const Target& target, const Node& node) {
  return target.has_routine && target.has_routine(graph::routine_of(node));
}

NodeRef routine_or_parts(const NodeRef& node, const Target& target, const Settings& settings) {
  if (settings.fused_composites && runs_routine(target, *node)) return node;
  if (NodeRef parts = graph::decompose_routine(*node)) return parts;
  if (runs_routine(target, *node)) return node;
  throw DeviceError(fmt::format("{}: {} has no kernel for it, and it has no form in other ops; use the CPU",
                                title(*node), target.name));
}

bool runs_attention(const Target& target, const Node& attention) {
  const Shape &q = attention.inputs[0]->shape, &k = attention.inputs[1]->shape;
  if (!target.has_attention || graph::attention_mask_of(attention).window != 0 || attention.type != DType::f32 ||
      q.numel() == 0 || k.numel() == 0 || q[3] > target.attention_width_max)
    return false;
  const Extent keys = k[1];
  const auto score_bytes = static_cast<std::size_t>(q[0] * q[2] * q[1] * keys) * sizeof(float);
  return target.attention_keys_fused == 0 || keys <= target.attention_keys_fused ||
         score_bytes > target.attention_score_bytes_max;
}

}  // namespace

OrderedGraph with_composites_split(const OrderedGraph& graph, const Target& target, const Settings& settings) {
  return rebuild(graph, [&](const Node&, const NodeRef& node) -> NodeRef {
    if (node->kind == Kind::packed_matmul && !target.packed_products)
      throw DeviceError(fmt::format("{}: {} has no products with packed weights; load them as f32, or use the CPU",
                                    title(*node), target.name));
    if (node->kind == Kind::routine) return routine_or_parts(node, target, settings);
    if (node->kind != Kind::project) return node;
    const Node& tuple = *node->inputs[0];
    if (settings.fused_composites && runs_attention(target, tuple)) return node;
    return graph::decompose(tuple)[static_cast<std::size_t>(node->ints[0])];
  });
}

void check_dtypes(const OrderedGraph& graph, const Target& target) {
  for (const Node* node : graph::topological_order(graph.outputs, [](const Node& n) { return is_leaf(n); }))
    if (std::find(target.dtypes.begin(), target.dtypes.end(), node->type) == target.dtypes.end())
      throw DTypeError(fmt::format("{}: {} does not compute {}; cast to f32, or use the CPU", title(*node), target.name,
                                   name_of(node->type)));
}

}  // namespace weft::compiler
