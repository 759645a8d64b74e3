#include "compile/composites.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "compile/emit.hpp"
#include "graph/op.hpp"

namespace weft::compiler {
namespace {

using graph::Kind;
using graph::Node;
using graph::NodeRef;

bool has_kernel(const Target& target, const Node& call) {
  return target.has_kernel && target.has_kernel(graph::Call(call));
}

// Whether the call stays a call. Without a kernel it is replaced by its parts; with composite fusion off it is too, if it has
// parts.
bool stays(const Node& call, const Target& target, const Settings& settings) {
  const bool has_parts = call.op->decompose != nullptr;
  if (has_kernel(target, call)) {
    return !has_parts || settings.fused_composites || graph::decompose(call).empty();
  }
  if (!has_parts || graph::decompose(call).empty())
    throw DeviceError(fmt::format("{}: {} has no kernel for it, and it has no form in other ops; {}", title(call),
                                  target.name, call.op->no_kernel));
  return false;
}

}  // namespace

OrderedGraph with_composites_split(const OrderedGraph& graph, const Target& target, const Settings& settings) {
  const auto parts_or_none = [&](const Node& call) {
    return stays(call, target, settings) ? std::vector<NodeRef>() : graph::decompose(call);
  };
  const Transform split = [&](const Node&, const NodeRef& node) -> NodeRef {
    const bool is_result = node->kind == Kind::project;
    const Node& call = is_result ? *node->inputs[0] : *node;
    if (call.kind != Kind::call || (!is_result && graph::has_several_results(call))) return node;
    const std::vector<NodeRef> parts = parts_or_none(call);
    return parts.empty() ? node : parts[is_result ? static_cast<std::size_t>(node->ints[0]) : 0];
  };
  const auto all_stay = [&](const OrderedGraph& g) {
    for (const Node* node : graph::topological_order(g.outputs, [](const Node& n) { return is_leaf(n); }))
      if (node->kind == Kind::call && !is_leaf(*node) && !stays(*node, target, settings)) return false;
    return true;
  };
  OrderedGraph result = rebuild(graph, split);
  while (!all_stay(result)) result = rebuild(result, split);  // parts may be calls themselves
  return result;
}

void check_dtypes(const OrderedGraph& graph, const Target& target) {
  for (const Node* node : graph::topological_order(graph.outputs, [](const Node& n) { return is_leaf(n); }))
    if (std::find(target.dtypes.begin(), target.dtypes.end(), node->type) == target.dtypes.end())
      throw DTypeError(fmt::format("{}: {} does not compute {}; cast to f32, or use the CPU", title(*node), target.name,
                                   name_of(node->type)));
}

}  // namespace weft::compiler
