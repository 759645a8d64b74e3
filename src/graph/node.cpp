#include "graph/node.hpp"

#include <fmt/format.h>

#include <mutex>
#include <unordered_map>

#include "base/hash.hpp"

namespace weft::graph {
namespace {

std::uint64_t hash_of(const NodeFields& fields) {
  Hasher h;
  h.add(static_cast<std::uint64_t>(fields.kind));
  h.add(static_cast<std::uint64_t>(fields.type));
  h.add(static_cast<std::uint64_t>(fields.device.kind) << 32 | static_cast<std::uint32_t>(fields.device.index));
  for (Extent e : fields.shape) h.add(static_cast<std::uint64_t>(e));
  h.add(fields.inputs.size());
  for (const NodeRef& input : fields.inputs) h.add(input->id);
  for (Extent e : fields.ints) h.add(static_cast<std::uint64_t>(e));
  h.add_double(fields.value);
  h.add(static_cast<std::uint64_t>(fields.reduction));
  h.add(reinterpret_cast<std::uintptr_t>(fields.expression.get()));
  h.add(reinterpret_cast<std::uintptr_t>(fields.row));
  return h.digest();
}

bool same(const NodeFields& a, const NodeFields& b) {
  return a.kind == b.kind && a.type == b.type && a.shape == b.shape && a.device == b.device && a.inputs == b.inputs &&
         a.ints == b.ints && std::bit_cast<std::uint64_t>(a.value) == std::bit_cast<std::uint64_t>(b.value) &&
         a.reduction == b.reduction && a.expression == b.expression && a.row == b.row;
}

struct Table {
  std::mutex mutex;
  std::unordered_multimap<std::uint64_t, std::weak_ptr<const Node>> nodes;
  std::uint64_t next_id = 1;
  std::size_t live = 0;
};
// Never destroyed: nodes held by globals of the user's program die after it otherwise.
Table& table() {
  static Table* t = new Table;
  return *t;
}

}  // namespace

std::string_view name_of(Kind kind) {
  constexpr std::string_view names[] = {
      "constant", "data",    "input",        "iota",   "reshape",   "permute",
      "expand",   "slice",   "pad",          "detach", "map",       "reduce",
      "matmul",   "gather",  "scatter_add",  "concat", "attention", "attention_backward",
      "project",  "routine", "packed_matmul"};
  return names[static_cast<int>(kind)];
}

bool is_view(Kind kind) { return kind >= Kind::reshape && kind <= Kind::detach; }

NodeRef make_node(NodeFields fields, Where where) {
  Table& t = table();
  const std::uint64_t hash = hash_of(fields);
  const bool unique = fields.kind == Kind::data || fields.kind == Kind::input;
  std::lock_guard lock(t.mutex);
  if (!unique) {
    auto [first, last] = t.nodes.equal_range(hash);
    for (auto it = first; it != last; ++it)
      if (NodeRef existing = it->second.lock(); existing && same(*existing, fields)) return existing;
  }
  auto node = std::make_shared<const Node>(std::move(fields), t.next_id++, hash);
  node->where = where;
  ++t.live;
  if (!unique) t.nodes.emplace(hash, node);
  return node;
}

Node::~Node() {
  {
    Table& t = table();
    std::lock_guard lock(t.mutex);
    --t.live;
    auto [first, last] = t.nodes.equal_range(hash);
    for (auto it = first; it != last;) it = it->second.expired() ? t.nodes.erase(it) : std::next(it);
  }
  // A long chain must not be destroyed by recursion: the outermost destructor works off a list.
  thread_local std::vector<NodeRef>* worklist = nullptr;
  if (worklist) {
    for (NodeRef& input : inputs) worklist->push_back(std::move(input));
    return;
  }
  std::vector<NodeRef> list = std::move(inputs);
  worklist = &list;
  while (!list.empty()) {
    NodeRef last = std::move(list.back());
    list.pop_back();
    last.reset();
  }
  worklist = nullptr;
}

std::vector<const Node*> topological_order(std::span<const NodeRef> roots) {
  return topological_order(roots, [](const Node&) { return false; });
}

std::size_t live_node_count() {
  Table& t = table();
  std::lock_guard lock(t.mutex);
  return t.live;
}

std::string to_string(std::span<const NodeRef> roots) {
  std::string text;
  std::unordered_map<const Node*, int> numbers;
  for (const Node* node : topological_order(roots)) {
    const int number = static_cast<int>(numbers.size());
    numbers[node] = number;
    text += fmt::format("%{} = {} {} {}", number, node->name.empty() ? std::string(name_of(node->kind)) : node->name,
                        weft::name_of(node->type), node->shape.to_string());
    if (node->kind == Kind::constant) text += fmt::format(" {}", node->value);
    if (!node->ints.empty()) text += fmt::format(" <{}>", fmt::join(node->ints, ", "));
    if (node->kind == Kind::reduce) text += fmt::format(" {}", scalar::name_of(node->reduction));
    if (!node->inputs.empty()) {
      text += " (";
      for (std::size_t i = 0; i < node->inputs.size(); ++i)
        text += fmt::format("{}%{}", i ? ", " : "", numbers.at(node->inputs[i].get()));
      text += ")";
    }
    if (!node->label.empty()) text += fmt::format("  \"{}\"", node->label);
    text += "\n";
  }
  return text;
}

}  // namespace weft::graph
