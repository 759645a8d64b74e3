// A session's part of the graph: its nodes, its Variables and what is pending on them, its generators of random numbers.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "base/session_state.hpp"
#include "graph/node.hpp"

namespace weft::graph {

/// The table of nodes by their fields. Nodes refer to it, so it is freed after the last node.
class NodeTable {
 public:
  /// `owner` is kept alive while there are nodes.
  explicit NodeTable(std::weak_ptr<void> owner, SessionState* session) : session(session), owner_(std::move(owner)) {}
  ~NodeTable();

  NodeRef make(NodeFields&& fields, Where where);
  /// The living node with these fields, or null.
  NodeRef find(const NodeFields& fields) const;
  std::size_t live() const;
  /// Number of nodes made so far.
  std::uint64_t made() const { return next_id_.load(std::memory_order_relaxed) - 1; }
  /// Living nodes with larger ids, in ascending order.
  std::vector<NodeRef> nodes_after(std::uint64_t id) const;

  /// The table that this thread makes nodes in: its session's, or that of a PrivateGraph.
  static NodeTable& current();

  SessionState* const session;

 private:
  friend class Node;
  NodeRef find_locked(const NodeFields& fields, std::uint64_t hash) const;
  void forget(Node& node, std::shared_ptr<void>& last);
  void grow();

  mutable std::mutex mutex_;
  std::vector<const Node*> buckets_ = std::vector<const Node*>(1024, nullptr);
  std::size_t hashed_ = 0;
  const Node* newest_ = nullptr;
  std::atomic<std::uint64_t> next_id_ = 1;
  std::size_t live_ = 0;
  std::weak_ptr<void> owner_;
  std::shared_ptr<void> kept_;  // the owner, while there are nodes
};

/// While this object exists, nodes that its thread makes belong to a private table, so no other thread sees the nodes that the
/// compiler makes. All of them must be freed before this object.
class PrivateGraph {
 public:
  PrivateGraph();
  ~PrivateGraph();
  PrivateGraph(const PrivateGraph&) = delete;

 private:
  NodeTable table_;
  NodeTable* before_;
};

struct GraphState final : SessionState::Part {
  static constexpr auto kSlot = SessionState::Slot::graph;
  explicit GraphState(SessionState& session) : table(session.weak_from_this(), &session) {}
  void close() override;
  static GraphState& current() { return SessionState::current().part<GraphState>(); }

  NodeTable table;
  /// Node counts: at the last evaluation, and at the last one that computed every held value.
  std::atomic<std::uint64_t> evaluated_up_to = 0, held_up_to = 0;

  std::mutex cells_mutex;            // fields of cells, and the lists
  std::condition_variable released;  // signals that a compiled function released a cell
  std::vector<std::shared_ptr<Cell>> pending;
  std::vector<std::weak_ptr<const Node>> outlived;  // pending nodes that are computed, and may be held
  std::vector<std::weak_ptr<Cell>> known;
  std::size_t sweep_at = 64;

  std::recursive_mutex random_mutex;  // reading a generator and advancing it is one step
  std::vector<std::pair<Device, Variable>> generators;
};

/// Sets the function that computes the held values of this thread's session up to a node; called by the runtime.
void set_evaluator(void (*evaluate_held)(std::uint64_t last_id));
/// Called before each assignment. An assignment that replaces a value which was never computed is a sign of a loop that never
/// asks for values. If many nodes have been made, everything up to the last assignment is computed, so that neither graphs nor
/// plans grow with the loop. The nodes of the current turn stay together for a later plan.
void evaluate_if_much_waits(Cell& cell);

}  // namespace weft::graph
