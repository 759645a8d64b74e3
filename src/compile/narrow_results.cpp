#include "compile/narrow_results.hpp"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "compile/sources.hpp"
#include "graph/attention.hpp"
#include "graph/op.hpp"

namespace weft::compiler {
namespace {

using graph::Kind;
using graph::Node;
using graph::NodeRef;

bool is_attention(const Node& node) { return graph::has_form(node, graph::KernelForm::attention); }

/// A result of attention that may be narrow; the logsumexp may not.
bool is_result(const Node& node) {
  if (node.kind != Kind::project || is_leaf(node) || !is_attention(*node.inputs[0])) return false;
  return node.type == DType::f32 &&
         (graph::is_call_of(*node.inputs[0], graph::attention_backward_row()) || node.ints[0] == 0);
}

constexpr std::size_t kO = 3;  // input of the backward attention

bool passes_on(const Node& node) { return graph::is_view(node.kind) || node.kind == Kind::concat; }

class Results {
 public:
  Results(const OrderedGraph& graph, const std::vector<DType>& types) : types_(types) {
    std::vector<const Node*> results;
    for (const Node* node : graph::topological_order(graph.outputs, [](const Node& n) { return is_leaf(n); })) {
      if (is_leaf(*node)) continue;
      for (const NodeRef& input : node->inputs) readers_[input.get()].push_back(node);
      if (is_result(*node)) results.push_back(node);
    }
    for (const NodeRef& output : graph.outputs) readers_[output.get()].push_back(nullptr);
    for (const Node* result : results) {
      std::optional<DType> type;
      if (read_only_as(*result, type) && type) narrow_.emplace(result, *type);
    }
  }

  bool any() const { return !narrow_.empty(); }

  /// Whether the value holds a result that becomes narrow.
  bool holds_narrow(const Node& node) const {
    if (is_leaf(node)) return false;
    if (passes_on(node))
      return std::any_of(node.inputs.begin(), node.inputs.end(),
                         [&](const NodeRef& input) { return holds_narrow(*input); });
    return narrow_.contains(&node);
  }

  /// The type that results in the value take; one of them must.
  DType type_in(const Node& node) const {
    if (!passes_on(node)) return narrow_.at(&node);
    for (const NodeRef& input : node.inputs)
      if (holds_narrow(*input)) return type_in(*input);
    throw InternalError("compile: no result of attention becomes narrow here");
  }

  /// The value in the narrow type. `rebuilt` has the form of the original.
  NodeRef narrow(const Node& original, const NodeRef& rebuilt, DType type) const {
    if (narrow_.contains(&original)) {
      graph::NodeFields fields = *rebuilt;
      fields.type = type;
      return graph::make_node(std::move(fields), rebuilt->where);
    }
    if (!holds_narrow(original)) return graph::cast(rebuilt, type);
    std::vector<NodeRef> inputs;
    for (std::size_t i = 0; i < original.inputs.size(); ++i)
      inputs.push_back(narrow(*original.inputs[i], rebuilt->inputs[i], type));
    graph::NodeFields fields = *rebuilt;
    fields.type = type;
    fields.inputs = std::move(inputs);
    return graph::make_node(std::move(fields), rebuilt->where);
  }

 private:
  bool read_only_as(const Node& node, std::optional<DType>& type) const {
    const auto found = readers_.find(&node);
    if (found == readers_.end()) return true;
    for (const Node* reader : found->second) {
      if (!reader) return false;  // an output of the graph
      if (passes_on(*reader)) {
        if (!read_only_as(*reader, type)) return false;
      } else if (is_cast(*reader)) {
        if (std::find(types_.begin(), types_.end(), reader->type) == types_.end()) return false;
        if (type && *type != reader->type) return false;
        type = reader->type;
      } else if (graph::is_call_of(*reader, graph::attention_backward_row())) {
        for (std::size_t i = 0; i < reader->inputs.size(); ++i)
          if (i != kO && reader->inputs[i].get() == &node) return false;
      } else {
        return false;
      }
    }
    return true;
  }

  const std::vector<DType>& types_;
  std::unordered_map<const Node*, std::vector<const Node*>> readers_;  // null: an output of the graph
  std::unordered_map<const Node*, DType> narrow_;
};

}  // namespace

OrderedGraph with_narrow_results(OrderedGraph graph, const Target& target, const Settings& settings) {
  const auto& disabled = settings.disabled_rewrites;
  if (target.attention_writes.empty() ||
      std::find(disabled.begin(), disabled.end(), "narrow_results") != disabled.end())
    return graph;
  const Results results(graph, target.attention_writes);
  if (!results.any()) return graph;
  return rebuild(graph, [&](const Node& original, const NodeRef& rebuilt) -> NodeRef {
    if (is_leaf(original)) return rebuilt;
    if (is_cast(original) && is_narrow(original.type) && results.holds_narrow(*original.inputs[0]))
      return results.narrow(*original.inputs[0], rebuilt->inputs[0], original.type);
    if (!graph::is_call_of(original, graph::attention_backward_row()) || !results.holds_narrow(*original.inputs[kO]))
      return rebuilt;
    const Node& o = *original.inputs[kO];
    std::vector<NodeRef> inputs = rebuilt->inputs;
    inputs[kO] = results.narrow(o, inputs[kO], results.type_in(o));
    return with_inputs(*rebuilt, std::move(inputs));
  });
}

}  // namespace weft::compiler
