#include "graph/history.hpp"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "base/scope_depth.hpp"
#include "graph/graph_state.hpp"
#include "weft/grad.hpp"

namespace weft {

KeepHistory::KeepHistory() { ++scope_depth<KeepHistory>(); }
KeepHistory::~KeepHistory() { --scope_depth<KeepHistory>(); }

namespace graph {

namespace {

std::mutex& past_mutex() {
  static auto& mutex = *new std::mutex;
  return mutex;
}

// The node of an evaluated value without its inputs: the one that it has already, or a new one.
NodeRef leaf_of(const NodeRef& node) {
  std::mutex& mutex = session_of(*node).part<GraphState>().cells_mutex;
  NodeRef value;
  {
    const std::lock_guard lock(mutex);
    value = node->twin.lock();
  }
  if (value && value->kind == Kind::data && value->storage) return value;
  value = make_node(
      {.kind = Kind::data, .type = node->type, .shape = node->shape, .device = node->device, .packed = node->packed});
  value->storage.set(node->storage.get()->shared());
  value->label = node->label;
  value->where = node->where;
  // Values that were made before from the node itself still have gradients to it.
  const std::lock_guard lock(mutex);
  value->twin = node;
  node->twin = value;
  return value;
}

}  // namespace

void let_go_of_inputs(NodeRef& node) {
  if (!node->storage || node->inputs.empty() || node->requires_grad || scope_depth<KeepHistory>() > 0) return;
  if (&node->table != &NodeTable::current()) return;  // a value of another session stays as it is
  // Another handle of the same node may have let go of the inputs before.
  NodeRef value = leaf_of(node);
  if (is_float(node->type) && !past_of(*value)) {
    const std::shared_ptr<Past> past = Past::of(*node);
    const std::lock_guard lock(past_mutex());
    if (!value->past) value->past = past;
  }
  node = std::move(value);
  // Most values of its past were freed with the old node.
  if (const std::shared_ptr<Past> past = past_of(*node)) past->prune();
}

NodeRef without_history(const NodeRef& root) {
  const auto has_history = [](const Node& node) { return node.storage && !node.inputs.empty(); };
  const NodeRef roots[] = {root};
  const auto sources = [](const Node& node) {
    std::vector<NodeRef> all;
    if (node.storage) return all;
    all = node.inputs;
    all.insert(all.end(), node.parts.begin(), node.parts.end());
    return all;
  };
  std::unordered_map<const Node*, NodeRef> made;  // in place of those nodes
  const auto replace = [&](std::vector<NodeRef>& nodes) {
    bool any = false;
    for (NodeRef& node : nodes)
      if (const auto found = made.find(node.get()); found != made.end()) node = found->second, any = true;
    return any;
  };
  for (const Node* node : topological_order_along(roots, sources)) {
    if (has_history(*node)) {
      made.emplace(node, leaf_of(node->shared_from_this()));
      continue;
    }
    if (node->storage || node->inputs.empty()) continue;
    NodeFields fields = *node;
    const bool inputs_differ = replace(fields.inputs), parts_differ = replace(fields.parts);
    if (!inputs_differ && !parts_differ) continue;
    NodeRef again = make_node(std::move(fields), node->where);
    if (again->label.empty()) again->label = node->label;
    made.emplace(node, std::move(again));
  }
  const auto found = made.find(root.get());
  return found == made.end() ? root : found->second;
}

std::shared_ptr<Past> past_of(const Node& node) {
  const std::lock_guard lock(past_mutex());
  return node.past;
}

void Past::walk(const Node& value, std::vector<Source>& sources) {
  std::unordered_set<const Node*> seen;
  std::vector<const Node*> stack{&value};
  while (!stack.empty()) {
    const Node* node = stack.back();
    stack.pop_back();
    if (node != &value) {
      sources.push_back({node->weak_from_this(), past_of(*node)});
      if (sources.back().past) continue;
    }
    if (node->kind == Kind::detach) continue;
    for (const std::vector<NodeRef>* inputs : {&node->inputs, &node->parts})
      for (const NodeRef& input : *inputs)
        if (is_float(input->type) && seen.insert(input.get()).second) stack.push_back(input.get());
  }
}

std::shared_ptr<Past> Past::of(const Node& value) {
  // Evaluated values that have kept their inputs get a past too, so that no value is walked twice. Ids ascend from inputs on.
  std::vector<Source> below;
  walk(value, below);
  std::vector<NodeRef> values{value.shared_from_this()};
  for (const Source& source : below)
    if (NodeRef node = source.value.lock(); node && !source.past && node->storage && !node->inputs.empty())
      values.push_back(std::move(node));
  std::sort(values.begin(), values.end(), [](const NodeRef& a, const NodeRef& b) { return a->id < b->id; });
  for (const NodeRef& node : values) {
    const auto past = std::make_shared<Past>();
    if (values.size() == 1)
      past->sources_ = std::move(below);
    else
      walk(*node, past->sources_);
    for (const Source& source : past->sources_)
      if (source.past) source.past->prune();
    const std::lock_guard lock(past_mutex());
    if (!node->past) node->past = past;
  }
  return past_of(value);
}

// Without recursion, because chains can be long.
Past::~Past() {
  std::vector<Source> list = std::move(sources_);
  while (!list.empty()) {
    const std::shared_ptr<Past> past = std::move(list.back().past);
    list.pop_back();
    if (past && past.use_count() == 1)
      for (Source& source : past->sources_) list.push_back(std::move(source));
  }
}

std::vector<Past::Source> Past::sources() const {
  const std::lock_guard lock(mutex_);
  return sources_;
}

void Past::each_source(const auto& visit) const {
  std::unordered_set<const Past*> seen{this};
  std::vector<Source> list = sources();
  while (!list.empty()) {
    const Source source = std::move(list.back());
    list.pop_back();
    if (!visit(source) || !source.past || !seen.insert(source.past.get()).second) continue;
    for (Source& each : source.past->sources()) list.push_back(std::move(each));
  }
}

const Node* Past::find(const std::unordered_set<const Node*>& nodes) const {
  const Node* found = nullptr;
  each_source([&](const Source& source) {
    if (const NodeRef value = source.value.lock(); !found && value && nodes.contains(value.get())) found = value.get();
    return found == nullptr;
  });
  return found;
}

std::size_t Past::size_with_pasts() const {
  std::size_t count = 0;
  each_source([&](const Source&) { return ++count > 0; });
  return count;
}

void Past::prune() {
  std::vector<Source> kept;
  std::set<std::weak_ptr<const Node>, std::owner_less<>> known;
  each_source([&](const Source& source) {
    if (source.value.expired()) return true;  // its own sources take its place
    if (known.insert(source.value).second) kept.push_back(source);
    return false;
  });
  {
    const std::lock_guard lock(mutex_);
    sources_.swap(kept);
  }
  // What the old list alone held is freed here, after the lock.
}

}  // namespace graph
}  // namespace weft
