#include "compile/rewrite.hpp"

#include <fmt/format.h>

#include "compile/emit.hpp"
#include "ops/table.hpp"

namespace weft::compiler {

using graph::Kind;
using graph::Node;
using graph::NodeRef;

OrderedGraph ordered(std::span<const NodeRef> outputs) {
  static const std::vector<NodeRef> kNone;
  const auto sources = [](const Node& node) -> const std::vector<NodeRef>& {
    return is_leaf(node) ? kNone : graph::made_of(node);
  };
  // Composite calls are replaced by their parts, which have their own places in the order.
  std::unordered_map<const Node*, NodeRef> replacement;
  const auto replaced = [&](const NodeRef& node) {
    const auto found = replacement.find(node.get());
    return found == replacement.end() ? node : found->second;
  };
  OrderedGraph result;
  int rank = 0;
  for (const Node* node : graph::topological_order_along(outputs, sources)) {
    if (!is_leaf(*node) && !replacement.empty()) {
      const Node* tuple = node->kind == Kind::project ? node->inputs[0].get() : nullptr;
      if (tuple && !tuple->parts.empty()) {
        replacement[node] = replaced(tuple->parts[static_cast<std::size_t>(node->ints[0])]);
        continue;
      }
    }
    if (!is_leaf(*node) && !node->parts.empty()) {
      replacement[node] = replaced(node->parts[0]);
      continue;
    }
    const NodeRef self = node->shared_from_this();
    NodeRef rebuilt = self;
    if (!is_leaf(*node) && !replacement.empty()) {
      std::vector<NodeRef> inputs;
      for (const NodeRef& input : node->inputs) inputs.push_back(replaced(input));
      rebuilt = with_inputs(*node, std::move(inputs));
      if (rebuilt != self) replacement[node] = rebuilt;
    }
    result.rank.try_emplace(rebuilt.get(), rank++);
  }
  for (const NodeRef& output : outputs) result.outputs.push_back(replaced(output));
  return result;
}

int rank_of(const OrderedGraph& graph, const Node* node) {
  const auto found = graph.rank.find(node);
  return found == graph.rank.end() ? 0 : found->second;
}

NodeRef with_inputs(const Node& node, std::vector<NodeRef> inputs) {
  bool same = inputs.size() == node.inputs.size();
  for (std::size_t i = 0; same && i < inputs.size(); ++i) same = inputs[i] == node.inputs[i];
  if (same) return node.shared_from_this();
  graph::NodeFields fields = node;
  fields.inputs = std::move(inputs);
  NodeRef made = graph::make_node(std::move(fields), node.where);
  if (made->label.empty()) made->label = node.label;
  return made;
}

bool is_cast(const Node& node) {
  return node.kind == Kind::map && node.inputs.size() == 1 && node.expression->code.size() == 2 &&
         node.expression->code[1].op == scalar::Op::cast;
}

NodeRef views_over(const NodeRef& node, const Node* below, const NodeRef& source) {
  std::vector<const Node*> views;
  for (const Node* view = node.get(); view != below; view = view->inputs[0].get()) views.push_back(view);
  NodeRef result = source;
  for (; !views.empty(); views.pop_back()) {
    graph::NodeFields fields = *views.back();
    fields.type = source->type;
    fields.inputs = {result};
    result = graph::make_node(std::move(fields), views.back()->where);
  }
  return result;
}

NodeRef copy_of(const NodeRef& node) {
  scalar::Expression identity{1, {{.op = scalar::Op::input, .type = node->type, .slot = 0}}};
  return graph::map_typed(identity, {node}, "copy");
}

OrderedGraph rebuild(const OrderedGraph& graph, const Transform& transform) {
  std::vector<const Node*> order = graph::topological_order(graph.outputs, [](const Node& n) { return is_leaf(n); });
  // Once nodes have been rebuilt, the rank gives the order of execution, not the id. Inputs come first in both.
  std::unordered_map<const Node*, NodeRef> replacement;
  OrderedGraph result;
  replacement.reserve(order.size());
  result.rank.reserve(order.size());
  std::vector<std::pair<const Node*, std::size_t>> stack;
  std::vector<const Node*> fresh;
  auto rank_of = [&](const Node* node) {
    auto it = graph.rank.find(node);
    return it == graph.rank.end() ? 0 : it->second;
  };
  for (const Node* root : order) {
    if (replacement.contains(root)) continue;
    stack.emplace_back(root, 0);
    while (!stack.empty()) {
      auto& [node, next] = stack.back();
      if (!is_leaf(*node) && next < node->inputs.size()) {
        const Node* input = node->inputs[next++].get();
        if (!replacement.contains(input)) stack.emplace_back(input, 0);
        continue;
      }
      const Node* done = node;
      stack.pop_back();
      NodeRef rebuilt = done->shared_from_this();
      if (!is_leaf(*done)) {
        const graph::Within same(done->within);
        std::vector<NodeRef> inputs;
        inputs.reserve(done->inputs.size());
        for (const NodeRef& input : done->inputs) inputs.push_back(replacement.at(input.get()));
        rebuilt = transform(*done, with_inputs(*done, std::move(inputs)));
      }
      if (rebuilt->shape != done->shape || rebuilt->type != done->type)
        throw InternalError(fmt::format("rewrite: {} became {}", title(*done), title(*rebuilt)));
      // New nodes below the replacement take its place in the order.
      fresh.push_back(rebuilt.get());
      while (!fresh.empty()) {
        const Node* made = fresh.back();
        fresh.pop_back();
        if (!result.rank.try_emplace(made, rank_of(done)).second || is_leaf(*made)) continue;
        for (const NodeRef& input : made->inputs)
          if (!result.rank.contains(input.get())) fresh.push_back(input.get());
      }
      replacement[done] = std::move(rebuilt);
    }
  }
  for (const NodeRef& output : graph.outputs) result.outputs.push_back(replacement.at(output.get()));
  // Replaced nodes are freed when this call ends, and other nodes may get their addresses.
  std::unordered_map<const Node*, int> rank;
  for (const Node* node : graph::topological_order(result.outputs, [](const Node& n) { return is_leaf(n); }))
    rank.emplace(node, result.rank.at(node));
  result.rank = std::move(rank);
  return result;
}

namespace {

bool is_row(const Node& node, std::string_view name) {
  return node.kind == Kind::map && node.row && node.row->name == name;
}
bool is_constant(const Node& node, double value) { return node.kind == Kind::constant && node.value == value; }

// Detached nodes and placeholders for operands matter only to gradients, which have been made by now.
NodeRef drop_detach(const NodeRef& node) {
  const bool stand_in = node->kind == Kind::reshape && node->shape == node->inputs[0]->shape;
  return node->kind == Kind::detach || stand_in ? node->inputs[0] : node;
}

// permute(concat(a, b)) = concat(permute(a), permute(b)): the parts are written directly in their final order.
NodeRef permuted_concat(const NodeRef& node) {
  if (node->kind != Kind::permute || node->inputs[0]->kind != Kind::concat || is_leaf(*node->inputs[0])) return node;
  const Node& concat = *node->inputs[0];
  int axis = 0;
  while (node->ints[static_cast<std::size_t>(axis)] != concat.ints[0]) ++axis;
  std::vector<NodeRef> parts;
  for (const NodeRef& part : concat.inputs) parts.push_back(graph::permute(part, node->ints));
  return graph::concat(std::move(parts), axis);
}

// Constant operands become constants of the expression, which is simplified: x + 1 * y is x + y, x * 1 is x.
NodeRef fold_constants(const NodeRef& node) {
  if (node->kind != Kind::map || node->name == "copy") return node;
  bool any = false;
  for (const NodeRef& input : node->inputs) any |= input->kind == Kind::constant;
  if (!any) return node;
  scalar::Expression e = *node->expression;
  std::vector<NodeRef> inputs;
  std::vector<int> slot(node->inputs.size(), -1);
  for (auto& i : e.code)
    if (i.op == scalar::Op::input) {
      const NodeRef& from = node->inputs[static_cast<std::size_t>(i.slot)];
      if (from->kind == Kind::constant) i = {.op = scalar::Op::constant, .type = i.type, .value = from->value};
    }
  e = scalar::simplified(e);
  for (auto& i : e.code)
    if (i.op == scalar::Op::input) {
      int& at = slot[static_cast<std::size_t>(i.slot)];
      if (at < 0) {
        at = static_cast<int>(inputs.size());
        inputs.push_back(node->inputs[static_cast<std::size_t>(i.slot)]);
      }
      i.slot = at;
    }
  e.inputs = static_cast<int>(inputs.size());
  if (e.code.back().op == scalar::Op::constant)
    return graph::constant(e.code.back().value, node->type, node->shape, node->device);
  if (e.code.back().op == scalar::Op::input) return inputs[static_cast<std::size_t>(e.code.back().slot)];
  if (inputs.empty()) return node;
  return graph::map_typed(std::move(e), std::move(inputs), node->name);
}

// A map that returns an operand unchanged: gradients of sums are such maps, x * 1.
NodeRef identity_map(const NodeRef& node) {
  constexpr std::size_t kLongest = 3;  // instructions
  if (node->kind != Kind::map || node->name == "copy" || node->expression->code.size() > kLongest) return node;
  std::vector<DType> types;  // typed, because the type matters: true * 1 is a number
  for (const NodeRef& input : node->inputs) {
    if (is_storage(input->type)) return node;  // a cast
    types.push_back(input->type);
  }
  const scalar::Expression e = scalar::typed(*node->expression, types);
  if (e.code.back().op != scalar::Op::input) return node;
  const NodeRef& operand = node->inputs[static_cast<std::size_t>(e.code.back().slot)];
  return operand->type == node->type && operand->shape == node->shape ? operand : node;
}

// A view of a view of the same kind is one view; a view of a splat is a splat (but not a pad, which adds zeros).
NodeRef joined_views(const NodeRef& node) {
  if (!graph::is_view(node->kind) || is_leaf(*node)) return node;
  const NodeRef& x = node->inputs[0];
  if (x->kind == Kind::constant && node->kind != Kind::pad)
    return graph::constant(x->value, x->type, node->shape, x->device);
  if (x->kind != node->kind || is_leaf(*x)) return node;
  switch (node->kind) {
    case Kind::reshape: return graph::reshape(x->inputs[0], node->shape);
    case Kind::expand: return graph::expand(x->inputs[0], node->shape);
    case Kind::permute: {
      std::vector<Extent> order;
      for (Extent axis : node->ints) order.push_back(x->ints[static_cast<std::size_t>(axis)]);
      return graph::permute(x->inputs[0], order);
    }
    default: return node;
  }
}

NodeRef cast_of_same_type(const NodeRef& node) {
  return node->kind == Kind::map && node->name == "cast" && node->inputs[0]->type == node->type ? node->inputs[0]
                                                                                                : node;
}

// cast(view(x)) = view(cast(x)): a cast to f16 or bf16 joins the kernel that makes x, whose order it has.
NodeRef cast_before_views(const NodeRef& node) {
  if (!is_cast(*node) || !is_float(node->type) || !is_narrow(node->type) || node->inputs[0]->type != DType::f32)
    return node;
  const NodeRef& view = node->inputs[0];
  const bool reorders = view->kind == Kind::reshape || view->kind == Kind::permute || view->kind == Kind::expand;
  if (!reorders || is_leaf(*view)) return node;
  const NodeRef cast = cast_before_views(graph::cast(view->inputs[0], node->type));
  return views_over(view, view->inputs[0].get(), cast);
}

// pad(a) + pad(b) whose places are neighbours along one axis: pad(concat(a, b)). Gradients of slices add up this way.
// Exact but for -0 + 0, which only a gradient of -0 meets.
NodeRef neighbouring_pads(const NodeRef& node) {
  if (!is_row(*node, "add") || node->inputs[0]->kind != Kind::pad || node->inputs[1]->kind != Kind::pad) return node;
  if (node->inputs.size() > 2 && !is_constant(*node->inputs[2], 1)) return node;
  const Node *p = node->inputs[0].get(), *q = node->inputs[1].get();
  if (p->type != node->type || q->type != node->type) return node;  // a cast has joined the sum
  int axis = -1;
  for (int d = 0; d < node->shape.rank(); ++d) {
    const auto i = static_cast<std::size_t>(2 * d);
    if (p->ints[i] == q->ints[i] && p->ints[i + 1] == q->ints[i + 1]) continue;
    if (axis >= 0) return node;
    axis = d;
  }
  if (axis < 0) return node;
  const auto i = static_cast<std::size_t>(2 * axis);
  if (p->ints[i] > q->ints[i]) std::swap(p, q);
  if (p->ints[i] + p->inputs[0]->shape[axis] != q->ints[i]) return node;
  std::vector<NodeRef> parts;
  auto append = [&](const NodeRef& part) {
    if (part->kind == Kind::concat && part->ints[0] == axis)
      parts.insert(parts.end(), part->inputs.begin(), part->inputs.end());
    else
      parts.push_back(part);
  };
  append(p->inputs[0]);
  append(q->inputs[0]);
  std::vector<Extent> padding = p->ints;
  padding[i + 1] = q->ints[i + 1];
  return graph::pad(graph::concat(std::move(parts), axis), padding);
}

constexpr Rewrite kRewrites[] = {
    {"drop_detach", "detach(x) = x once gradients are made", drop_detach},
    {"joined_views", "reshape(reshape(x)) = reshape(x), likewise permute and expand; a view of a splat is a splat",
     joined_views},
    {"cast_of_same_type", "cast(x) = x if x has that type", cast_of_same_type},
    {"identity_map", "x * 1 = x, and other maps that only copy an operand", identity_map},
    {"cast_before_views", "cast(view(x)) = view(cast(x)) for f16 and bf16, where the view keeps all elements",
     cast_before_views},
    {"neighbouring_pads", "pad(a) + pad(b) = pad(concat(a, b)) for neighbours", neighbouring_pads},
    {"permuted_concat", "permute(concat(a, b)) = concat(permute(a), permute(b))", permuted_concat},
    {"fold_constants", "constant operands join the expression, which is simplified", fold_constants},
};

}  // namespace

std::span<const Rewrite> rewrites() { return kRewrites; }

OrderedGraph rewrite(const OrderedGraph& graph, std::span<const std::string> disabled) {
  std::vector<const Rewrite*> active;
  for (const Rewrite& rule : kRewrites)
    if (std::find(disabled.begin(), disabled.end(), rule.name) == disabled.end()) active.push_back(&rule);
  return rebuild(graph, [&](const Node&, const NodeRef& rebuilt) {
    NodeRef node = rebuilt;
    for (bool changed = true; changed && !is_leaf(*node);) {
      changed = false;
      for (const Rewrite* rule : active) {
        NodeRef next = rule->apply(node);
        if (next != node) {
          node = std::move(next);
          changed = true;
          if (is_leaf(*node)) break;
        }
      }
    }
    return node;
  });
}

}  // namespace weft::compiler
