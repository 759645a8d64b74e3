// The effects of a traced function on Variables. The function runs once and its plan many times, so it sees placeholders for
// their values, and its assignments and gradients stay in the scope: nobody sees them outside.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "graph/node.hpp"

namespace weft::graph {

class TraceScope {
 public:
  TraceScope();
  ~TraceScope();
  TraceScope(const TraceScope&) = delete;
  /// The scope of this thread, or null.
  static TraceScope* current() { return current_; }
  /// While this object exists, the thread is outside of its scope: what it makes and evaluates is not part of the function.
  class Outside {
   public:
    Outside() : scope_(std::exchange(current_, nullptr)) {}
    ~Outside() { current_ = scope_; }
    Outside(const Outside&) = delete;

   private:
    TraceScope* scope_;
  };

  struct Entry {
    std::shared_ptr<Cell> cell;
    NodeRef stand_in;  // a data node without elements; null until the value was read
    NodeRef next;      // the assigned value, or null
    bool has_grad = false;
    Tensor grad;
  };
  Entry& entry(const std::shared_ptr<Cell>& cell);
  NodeRef value_of(const std::shared_ptr<Cell>& cell);
  void assign(const std::shared_ptr<Cell>& cell, NodeRef next);
  /// In the order in which the function first used the Variables.
  const std::deque<Entry>& entries() const { return entries_; }
  /// Cells with assigned values, in the order of their first assignment.
  const std::vector<std::size_t>& assigned() const { return assigned_; }

  /// A switch that the function read, such as whether a module trains, and its value.
  using Switch = std::shared_ptr<const std::atomic<bool>>;
  void note(const Switch& read, bool value);
  const std::vector<std::pair<Switch, bool>>& switches() const { return switches_; }

 private:
  static inline constinit thread_local TraceScope* current_ = nullptr;
  TraceScope* before_;
  std::deque<Entry> entries_;  // callers hold references to gradients, so entries must not move
  std::unordered_map<const Cell*, std::size_t> index_;
  std::vector<std::size_t> assigned_;
  std::vector<std::pair<Switch, bool>> switches_;
};

}  // namespace weft::graph
