// Nodes: the one graph of values. A node is immutable and hash-consed: the same op on the same inputs is the same node.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ops/scalar.hpp"
#include "weft/device.hpp"
#include "weft/dtype.hpp"
#include "weft/error.hpp"
#include "weft/shape.hpp"
#include "weft/tensor.hpp"

namespace weft {
class SessionState;
}
namespace weft::ops {
struct ElementwiseRow;
}

namespace weft::graph {

enum class Kind : std::uint8_t {
  // leaves
  constant,  // `value` everywhere
  data,      // elements in a device buffer
  input,     // argument of a function being traced; ints = {ordinal}
  iota,      // coordinate along axis ints[0]
  // views
  reshape,
  permute,
  expand,
  slice,
  pad,     // ints: -, order, -, (start, step) an axis, (before, after) an axis
  window,  // axis ints[0] becomes a number of windows, ints[1] apart; a last axis of their elements, ints[2] apart
  detach,  // the same value, no gradient
  // compute
  map,      // `expression` on inputs of one shape
  reduce,   // `reduction` over axes ints (ascending), which are dropped
  matmul,   // [B, m, k] x [B, k, n], rank 3 both
  gather,   // (x, indices): x's coordinate along axis ints[0] is the index; indices has the result's shape
  concat,   // along axis ints[0]
  call,     // `op` on the inputs; ints: its attributes (graph/op.hpp)
  project,  // result ints[0] of a call with several
};
std::string_view name_of(Kind kind);
bool is_view(Kind kind);

class Node;
class NodeTable;
class Past;
struct OpRow;
using NodeRef = std::shared_ptr<const Node>;

/// The storage of an evaluated value, made by the runtime.
struct Storage {
  virtual ~Storage() = default;
  /// Another handle to the same memory, for another node.
  virtual std::unique_ptr<Storage> shared() const = 0;
};

/// A node's storage, which is set at most once and then stays: several threads may compute a node, and the first one sets it.
class StorageSlot {
 public:
  StorageSlot() = default;
  ~StorageSlot() { delete storage_.load(std::memory_order_relaxed); }
  StorageSlot(const StorageSlot&) = delete;
  const Storage* get() const { return storage_.load(std::memory_order_acquire); }
  explicit operator bool() const { return get() != nullptr; }
  bool operator==(std::nullptr_t) const { return get() == nullptr; }
  void set(std::unique_ptr<Storage> storage) {
    Storage* none = nullptr;
    if (storage_.compare_exchange_strong(none, storage.get(), std::memory_order_acq_rel)) storage.release();
  }

 private:
  std::atomic<Storage*> storage_ = nullptr;
};

/// The composite op that a node is a part of, if any, and whether the node computes a gradient of that op.
struct Origin {
  const OpRow* op = nullptr;
  bool gradient = false;
};

/// The fields that define a node, without its identity.
struct NodeFields {
  Kind kind;
  DType type = DType::f32;
  Shape shape;
  Device device;
  std::vector<NodeRef> inputs = {};
  std::vector<Extent> ints = {};
  double value = 0;
  scalar::Reduction reduction = scalar::Reduction::sum;
  std::shared_ptr<const scalar::Expression> expression = nullptr;  // map, typed for the inputs
  const ops::ElementwiseRow* row = nullptr;                        // map: the row that it came from, if any
  std::string name = "";                                           // for printing: row name, "tanh.grad"
  const OpRow* op = nullptr;                                       // call
  /// For a composite call: its results in terms of other ops. The other fields determine them, so they do not count when nodes
  /// are compared. Ids of parts are smaller than the call's.
  std::vector<NodeRef> parts = {};
  Origin within = {};  // for printing
  /// For a leaf of a type without blocks: whether it is a matrix in the layout that products with weights read. Tensors of
  /// blocks always are (`has_packed_layout`).
  bool packed = false;
};

/// Whether the value is in the layout of the device's products with weights (backend::WeightPacking). Only products and
/// `unpack_rows` take such values; the transpose of one can be used only in a product.
inline bool has_packed_layout(const NodeFields& node) { return node.packed || is_block(node.type); }
/// Such a value as a matrix: the last axis is columns, all others together are rows.
inline Extent columns_of(const Shape& shape) { return shape.dim(-1); }
Extent rows_of(const Shape& shape);

/// While this object exists, nodes that its thread makes without a `within` get this one.
class Within {
 public:
  explicit Within(Origin origin);
  ~Within();
  Within(const Within&) = delete;
  static Origin current();

 private:
  Origin before_;
};

// Of const Node, because libstdc++ locks and releases the node when it converts a weak_ptr<Node> to a weak_ptr<const Node>; a
// last release under the table's lock would then wait for that lock.
class Node : public std::enable_shared_from_this<const Node>, public NodeFields {
 public:
  Node(NodeFields&& fields, std::uint64_t id, std::uint64_t hash, NodeTable& table)
      : NodeFields(std::move(fields)), id(id), hash(hash), table(table) {}
  ~Node();
  Node(const Node&) = delete;

  /// Grows with creation: a node's inputs have smaller ids, so ascending ids are a topological order.
  const std::uint64_t id;
  const std::uint64_t hash;
  /// The table of the node; a node and its inputs are in the same table.
  NodeTable& table;
  /// The value, once computed (always for `data`). Set by the runtime only.
  mutable StorageSlot storage;
  mutable std::string label;
  mutable Where where;
  /// For the value of a Variable: the node of the same value from before, or from after, it was computed. For a value that has
  /// let go of its inputs: the node from before, and for that node the one from after. Under the lock of the session's cells.
  mutable std::weak_ptr<const Node> twin;
  /// Whether a gradient to a Variable that requires one may be wanted of this value. An evaluated value that does not require a
  /// gradient lets its inputs go.
  mutable std::atomic<bool> requires_grad = false;
  /// For a value that has let go of its inputs, and for evaluated ones below it: what it was made from (graph/history.hpp).
  mutable std::shared_ptr<Past> past;

 private:
  friend class NodeTable;
  mutable const Node* next_in_bucket = nullptr;
  mutable const Node *older = nullptr, *newer = nullptr;  // living nodes of the table by age
};
/// The session of a node.
SessionState& session_of(const Node& node);

/// The node with these fields: an existing one or a new one. `data` nodes are always new.
/// Errors  UsageError: an input belongs to another session.
NodeRef make_node(NodeFields fields, Where where = Where::current());

/// The live node with these fields, or null.
NodeRef find_node(const NodeFields& fields);

/// What a value is made of: the parts of a composite call, else the inputs.
const std::vector<NodeRef>& made_of(const Node& node);
/// The node with the same value in terms of other ops: the part for a composite call, or for a result of one. The node itself
/// if there is none.
const Node* written_out(const Node* node);
/// Stores the value of an evaluated node, also for the part with the same value.
void set_storage(const Node& node, std::unique_ptr<Storage> storage);

/// Nodes that `roots` need, in topological order. Stops below nodes for which `is_leaf` holds (they are included).
template <class IsLeaf>
std::vector<const Node*> topological_order(std::span<const NodeRef> roots, IsLeaf is_leaf);
std::vector<const Node*> topological_order(std::span<const NodeRef> roots);
/// The same along `sources(node)`, a vector of nodes whose ids are smaller.
template <class Sources>
std::vector<const Node*> topological_order_along(std::span<const NodeRef> roots, Sources sources);

/// Number of live nodes of this thread's session, for leak tests.
std::size_t live_node_count();

/// The graph below `roots` as text, one line for each node: "%5 = add f32 [2, 3] (%3, %4)".
std::string to_string(std::span<const NodeRef> roots);

// ---- Typed construction; all validation of what users may do wrong is done by the callers in ops.cpp --------------------

NodeRef constant(double value, DType type, const Shape& shape, Device device);
NodeRef iota(const Shape& shape, int axis, DType type, Device device);
NodeRef reshape(const NodeRef& x, const Shape& shape);
NodeRef permute(const NodeRef& x, const std::vector<Extent>& order);
NodeRef expand(const NodeRef& x, const Shape& shape);  // right-aligned
NodeRef slice(const NodeRef& x, const std::vector<Extent>& starts, const std::vector<Extent>& steps,
              const Shape& shape);
NodeRef pad(const NodeRef& x, const std::vector<Extent>& before_after);
NodeRef window(const NodeRef& x, int axis, Extent size, Extent step, Extent dilation);
NodeRef detach(const NodeRef& x);
/// Untyped expression on inputs of any dtypes and broadcastable shapes.
NodeRef map(const scalar::Expression& expression, std::vector<NodeRef> inputs, std::string_view name,
            const ops::ElementwiseRow* row = nullptr, Where where = Where::current());
/// The same for an expression that `scalar::typed` has already typed for these inputs.
NodeRef map_typed(scalar::Expression expression, std::vector<NodeRef> inputs, std::string_view name,
                  const ops::ElementwiseRow* row = nullptr, Where where = Where::current());
NodeRef cast(const NodeRef& x, DType type);
NodeRef reduce(scalar::Reduction reduction, const NodeRef& x, std::vector<int> axes);  // axes dropped
NodeRef matmul(const NodeRef& a, const NodeRef& b);                                    // rank 3 both
NodeRef gather(const NodeRef& x, const NodeRef& indices, int axis);
/// Integers as i32 or u32, for indices: a value beyond i32 becomes its largest number, or -1, and so stays out of range.
NodeRef index_type(const NodeRef& indices);
NodeRef concat(std::vector<NodeRef> parts, int axis);
NodeRef project(const NodeRef& call, int index);

/// The shape that both broadcast to, if they do.
bool broadcast_shapes(const Shape& a, const Shape& b, Shape& out);

/// State behind a Variable: the stored value (`data`, or a slice of a shared cell) and the pending next one. Values are
/// read and written under the session's lock, by the functions below.
struct Cell {
  std::shared_ptr<SessionState> session;
  NodeRef committed;      // a data node; null for a slice, and before the first value was computed
  NodeRef pending;        // next value, or null
  bool updating = false;  // a compiled function may be writing over the value; others wait
  bool assigned = false;  // assigned since the value was last computed
  bool made_in_trace = false;
  std::string name;
  std::atomic<bool> requires_grad = true;
  Tensor grad;
  DType type;
  Shape shape;
  Device device;
  // A slice of a shared cell: elements [offset, offset + numel).
  std::shared_ptr<Cell> shared;
  Extent offset = 0;
};
/// Every cell of this thread's session that a Variable still holds.
std::vector<std::shared_ptr<Cell>> all_cells();
/// A cell of this thread's session, which other threads do not see before `make_known`.
std::shared_ptr<Cell> make_cell();
/// From now on `all_cells` has the cell.
void make_known(const std::shared_ptr<Cell>& cell);
/// The session's cells with a pending value.
std::vector<std::shared_ptr<Cell>> pending_cells();
/// A cell and its pending value at one moment, for evaluation.
struct PendingUpdate {
  std::shared_ptr<Cell> cell;
  NodeRef next;
};
std::vector<PendingUpdate> pending_updates();
void set_pending(const std::shared_ptr<Cell>& cell, NodeRef next);
void clear_pending(const std::shared_ptr<Cell>& cell);
/// Gives the cell the value of `computed`, its pending node. If the cell has been assigned again since then, the newer value
/// stays pending.
void commit(const std::shared_ptr<Cell>& cell, const NodeRef& computed, NodeRef value);
/// Makes the cell a slice of `whole`, which holds its value.
void make_slice(const std::shared_ptr<Cell>& cell, const std::shared_ptr<Cell>& whole, Extent offset);
/// The current value's node.
NodeRef value_of(const std::shared_ptr<Cell>& cell);
/// For the value of a Variable, or a view of one, and for a value that has let go of its inputs: the live node of the same value
/// from before, or from after; or null. Gradients are identified by nodes, so a gradient to one of them includes that to the other.
NodeRef twin_of(const Node& node);
/// The gradient that `backward` left; while a function is traced, the trace's own.
Tensor& gradient_of(const std::shared_ptr<Cell>& cell);

/// While this object exists, only this thread reads and writes the values of the cells, so that a plan may overwrite them. The
/// cells have committed values then, unless nothing was ever assigned.
class CellUpdate {
 public:
  explicit CellUpdate(std::span<const std::shared_ptr<Cell>> cells);
  ~CellUpdate();
  CellUpdate(const CellUpdate&) = delete;

 private:
  std::span<const std::shared_ptr<Cell>> cells_;
};
/// The value in memory; null before the first one was computed.
NodeRef committed_of(const Cell& cell);
void set_committed(Cell& cell, NodeRef value);

template <class IsLeaf>
std::vector<const Node*> topological_order(std::span<const NodeRef> roots, IsLeaf is_leaf) {
  static const std::vector<NodeRef> kNone;
  return topological_order_along(
      roots, [&](const Node& node) -> const std::vector<NodeRef>& { return is_leaf(node) ? kNone : node.inputs; });
}

template <class Sources>
std::vector<const Node*> topological_order_along(std::span<const NodeRef> roots, Sources sources) {
  std::vector<const Node*> order;
  std::vector<const Node*> stack;
  // Marks are a sorted-by-id vector at the end: ids order the result, a hash set finds repeats.
  struct Set {
    std::vector<std::uint64_t> slots = std::vector<std::uint64_t>(1024, 0);
    std::size_t used = 0;
    bool insert(std::uint64_t id) {  // ids start at 1
      if (used * 2 >= slots.size()) {
        std::vector<std::uint64_t> old(slots.size() * 2, 0);
        old.swap(slots);
        for (std::uint64_t value : old)
          if (value) place(value);
      }
      return place(id) ? (++used, true) : false;
    }
    bool place(std::uint64_t id) {
      std::size_t i = (id * 0x9e3779b97f4a7c15ull) & (slots.size() - 1);
      while (slots[i] != 0 && slots[i] != id) i = (i + 1) & (slots.size() - 1);
      if (slots[i] == id) return false;
      slots[i] = id;
      return true;
    }
  } seen;
  for (const NodeRef& root : roots) stack.push_back(root.get());
  while (!stack.empty()) {
    const Node* node = stack.back();
    stack.pop_back();
    if (!seen.insert(node->id)) continue;
    order.push_back(node);
    for (const NodeRef& source : sources(*node)) stack.push_back(source.get());
  }
  std::sort(order.begin(), order.end(), [](const Node* a, const Node* b) { return a->id < b->id; });
  return order;
}

}  // namespace weft::graph
