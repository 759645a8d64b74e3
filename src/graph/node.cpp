#include "graph/node.hpp"

#include <fmt/format.h>

#include <mutex>
#include <unordered_map>

#include "base/checked.hpp"
#include "base/hash.hpp"
#include "graph/caller.hpp"
#include "graph/describe.hpp"
#include "graph/graph_state.hpp"
#include "graph/op.hpp"

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
  h.add(reinterpret_cast<std::uintptr_t>(fields.op));
  return h.digest();
}

bool same(const NodeFields& a, const NodeFields& b) {
  return a.kind == b.kind && a.type == b.type && a.shape == b.shape && a.device == b.device && a.inputs == b.inputs &&
         a.ints == b.ints && std::bit_cast<std::uint64_t>(a.value) == std::bit_cast<std::uint64_t>(b.value) &&
         a.reduction == b.reduction && a.expression == b.expression && a.row == b.row && a.op == b.op;
}

thread_local NodeTable* private_table = nullptr;
thread_local Origin within;

}  // namespace

std::string_view name_of(Kind kind) {
  constexpr std::string_view names[] = {"constant", "data",   "input",  "iota",   "reshape", "permute",
                                        "expand",   "slice",  "pad",    "window", "detach",  "map",
                                        "reduce",   "matmul", "gather", "concat", "call",    "project"};
  return names[static_cast<int>(kind)];
}

const std::vector<NodeRef>& made_of(const Node& node) { return node.parts.empty() ? node.inputs : node.parts; }

const Node* written_out(const Node* node) {
  for (;;) {
    const Node* call = node->kind == Kind::project ? node->inputs[0].get() : node;
    if (call->parts.empty()) return node;
    node = call->parts[call == node ? 0 : static_cast<std::size_t>(node->ints[0])].get();
  }
}

void set_storage(const Node& node, std::unique_ptr<Storage> storage) {
  if (const Node* part = written_out(&node); part != &node) part->storage.set(storage->shared());
  node.storage.set(std::move(storage));
}

bool is_view(Kind kind) { return kind >= Kind::reshape && kind <= Kind::detach; }

NodeTable& NodeTable::current() { return private_table ? *private_table : GraphState::current().table; }

NodeTable::~NodeTable() {
  // Nodes that outlive their table would write to it. Only a bug leaves such nodes.
  if (live_ > 0) std::terminate();
}

namespace {

// A type that a device does not support is refused when a node is made, so that no plan fails later.
bool holds(Device::Kind kind, const Element& row) { return kind == Device::Kind::webgpu ? row.on_gpu : row.on_cpu; }
void check_type(DType type, Device device) {
  if (holds(device.kind, element(type))) return;
  const bool gpu = device.kind == Device::Kind::webgpu;
  throw DTypeError(
      fmt::format("{} does not hold {}, but {}; cast{}", device.to_string(), name_of(type),
                  dtype_list(gpu ? [](const Element& e) { return holds(Device::Kind::webgpu, e); }
                                 : [](const Element& e) { return holds(Device::Kind::cpu, e); }),
                  gpu && holds(Device::Kind::cpu, element(type)) ? ", or compute on the CPU" : " to one of these"));
}

std::string name_of_maker(const NodeFields& fields) {
  if (fields.within.op) return fields.within.op->name;
  if (fields.kind == Kind::call) return fields.op->name;
  return fields.name.empty() ? std::string(graph::name_of(fields.kind)) : fields.name;
}

// Sizes are refused here, where every shape passes: strides, numbers of elements and of bytes then fit 64 bits. Extents of 0
// are left out of the product, as strides leave them out.
void check_size(const NodeFields& fields, Where where) {
  Extent bytes = std::max<Extent>(element(fields.type).bits / 8, 1);
  for (const Extent extent : fields.shape) {
    if (extent == 0) continue;
    const auto next = extent < 0 ? std::nullopt : try_multiply(bytes, extent);
    if (!next) {
      const std::string fact = fmt::format(
          "the result would be {} {}, {}", weft::name_of(fields.type), fields.shape.to_string(),
          extent < 0 ? "and an extent is negative" : "and its size in bytes exceeds 64 bits; use smaller extents");
      // Other nodes are made by ops, at places of ours.
      throw ShapeError(fields.kind == Kind::call ? describe(name_of_maker(fields), fact, {}, where)
                                                 : fmt::format("{}: {}", name_of_maker(fields), fact));
    }
    bytes = *next;
  }
}

// Elements of blocks cannot be read one by one, so only ops that know of blocks take them; also a transpose that a product
// reads.
void check_reads_packed(const NodeFields& reader, const NodeRef& input, Where where) {
  if (reader.kind == Kind::call && reader.op->reads_packed) return;
  if (reader.kind == Kind::detach && !input->packed) return;  // the next value of a Variable
  if (reader.kind == Kind::permute && input->kind != Kind::permute && reader.shape.rank() == 2 && !input->packed)
    return;
  const std::string name = reader.kind == Kind::call ? reader.op->name
                           : reader.name.empty()     ? std::string(graph::name_of(reader.kind))
                                                     : reader.name;
  throw DTypeError(describe(name,
                            "takes no weights in blocks, which linear, matmul with transpose, and embedding read; "
                            "cast them to f32 first",
                            {{"x", Tensor(input)}}, where));
}

void check_makes_blocks(const NodeFields& fields) {
  constexpr Kind kinds[] = {Kind::data, Kind::input, Kind::permute, Kind::detach, Kind::call};
  if (std::find(std::begin(kinds), std::end(kinds), fields.kind) == std::end(kinds))
    throw DTypeError(fmt::format("{} does not make blocks of {}; make f32, and cast that with weft::cast",
                                 fields.name.empty() ? std::string(graph::name_of(fields.kind)) : fields.name,
                                 weft::name_of(fields.type)));
}

}  // namespace

NodeRef NodeTable::find_locked(const NodeFields& fields, std::uint64_t hash) const {
  for (const Node* node = buckets_[hash & (buckets_.size() - 1)]; node; node = node->next_in_bucket)
    if (node->hash == hash && same(*node, fields))
      if (NodeRef existing = node->weak_from_this().lock()) return existing;
  return nullptr;
}

NodeRef NodeTable::find(const NodeFields& fields) const {
  const std::uint64_t hash = hash_of(fields);
  std::lock_guard lock(mutex_);
  return find_locked(fields, hash);
}

NodeRef find_node(const NodeFields& fields) { return NodeTable::current().find(fields); }

NodeRef NodeTable::make(NodeFields&& fields, Where where) {
  check_size(fields, where);
  check_type(fields.type, fields.device);
  if (fields.kind == Kind::map && fields.device.kind == Device::Kind::webgpu)
    for (const scalar::Instruction& in : fields.expression->code) check_type(in.type, fields.device);
  for (const NodeRef& input : fields.inputs)
    if (&input->table != this)
      throw UsageError(fmt::format(
          "{}: an operand, {} {}{}, belongs to another session; use it where that session is entered, or give a copy "
          "to "
          "this one with Session::copy",
          fields.name.empty() ? std::string(graph::name_of(fields.kind)) : fields.name, weft::name_of(input->type),
          input->shape.to_string(), input->label.empty() ? "" : fmt::format(" \"{}\"", input->label)));
  for (const NodeRef& input : fields.inputs)
    if (has_packed_layout(*input)) check_reads_packed(fields, input, where);
  if (is_block(fields.type)) check_makes_blocks(fields);
  const bool unique = fields.kind == Kind::data || fields.kind == Kind::input;
  const std::uint64_t hash = unique ? 0 : hash_of(fields);
  std::lock_guard lock(mutex_);
  if (!unique)
    if (NodeRef known = find_locked(fields, hash)) return known;
  const std::uint64_t id = next_id_.load(std::memory_order_relaxed);
  auto node = std::make_shared<const Node>(std::move(fields), id, hash, *this);
  node->where = where;
  const auto requires_grad = [](const NodeRef& source) {
    return source->requires_grad.load(std::memory_order_relaxed);
  };
  node->requires_grad =
      is_float(node->type) && node->kind != Kind::detach &&
      (node->kind == Kind::input || std::any_of(node->inputs.begin(), node->inputs.end(), requires_grad) ||
       std::any_of(node->parts.begin(), node->parts.end(), requires_grad));
  next_id_.store(id + 1, std::memory_order_relaxed);
  if (live_++ == 0) kept_ = owner_.lock();
  node->older = newest_;
  if (newest_) newest_->newer = node.get();
  newest_ = node.get();
  if (!unique) {
    if (hashed_++ >= buckets_.size()) grow();
    const Node*& bucket = buckets_[hash & (buckets_.size() - 1)];
    node->next_in_bucket = std::exchange(bucket, node.get());
  }
  return node;
}

void NodeTable::grow() {
  std::vector<const Node*> larger(buckets_.size() * 2, nullptr);
  for (const Node* node : buckets_)
    while (node) {
      const Node*& bucket = larger[node->hash & (larger.size() - 1)];
      const Node* next = node->next_in_bucket;
      node->next_in_bucket = std::exchange(bucket, node);
      node = next;
    }
  buckets_.swap(larger);
}

// `last` receives what must be released once the lock is open.
void NodeTable::forget(Node& node, std::shared_ptr<void>& last) {
  std::lock_guard lock(mutex_);
  if (node.kind != Kind::data && node.kind != Kind::input) {
    const Node** at = &buckets_[node.hash & (buckets_.size() - 1)];
    while (*at != &node) at = &(*at)->next_in_bucket;
    *at = node.next_in_bucket;
    --hashed_;
  }
  if (node.older) node.older->newer = node.newer;
  (node.newer ? node.newer->older : newest_) = node.older;
  if (--live_ == 0) last = std::move(kept_);
}

std::size_t NodeTable::live() const {
  std::lock_guard lock(mutex_);
  return live_;
}

std::vector<NodeRef> NodeTable::nodes_after(std::uint64_t id) const {
  std::vector<NodeRef> nodes;
  {
    std::lock_guard lock(mutex_);
    for (const Node* node = newest_; node && node->id > id; node = node->older)
      if (NodeRef ref = node->weak_from_this().lock()) nodes.push_back(std::move(ref));
  }
  std::reverse(nodes.begin(), nodes.end());
  return nodes;
}

PrivateGraph::PrivateGraph() : table_({}, &SessionState::current()), before_(std::exchange(private_table, &table_)) {}
PrivateGraph::~PrivateGraph() { private_table = before_; }

SessionState& session_of(const Node& node) { return *node.table.session; }

Within::Within(Origin origin) : before_(std::exchange(within, origin)) {}
Within::~Within() { within = before_; }
Origin Within::current() { return within; }

NodeRef make_node(NodeFields fields, Where where) {
  if (!fields.within.op) fields.within = within;
  const Where* caller = CallerLine::current();
  return NodeTable::current().make(std::move(fields), caller ? *caller : where);
}

Node::~Node() {
  std::shared_ptr<void> last;  // the session, if this was its last node
  table.forget(*this, last);
  // Recursion over a long chain would overflow the stack, so the outermost destructor works through a list.
  thread_local std::vector<NodeRef>* worklist = nullptr;
  if (worklist) {
    for (NodeRef& input : inputs) worklist->push_back(std::move(input));
    for (NodeRef& part : parts) worklist->push_back(std::move(part));
    return;
  }
  std::vector<NodeRef> list = std::move(inputs);
  for (NodeRef& part : parts) list.push_back(std::move(part));
  worklist = &list;
  while (!list.empty()) {
    NodeRef node = std::move(list.back());
    list.pop_back();
    node.reset();
  }
  worklist = nullptr;
}

std::vector<const Node*> topological_order(std::span<const NodeRef> roots) {
  return topological_order(roots, [](const Node&) { return false; });
}

std::size_t live_node_count() { return GraphState::current().table.live(); }

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
