// What a function that is being traced does to Variables. It runs once and its plan many times, so it sees stand-ins for
// their values, and its assignments and gradients stay in the scope: neither this thread nor another meets them outside.
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
  /// That of this thread, or null.
  static TraceScope* current() { return current_; }

  struct Entry {
    std::shared_ptr<Cell> cell;
    NodeRef stand_in;  // a data node without elements; null until the value was read
    NodeRef next;      // what was assigned, or null
    bool has_grad = false;
    Tensor grad;
  };
  Entry& entry(const std::shared_ptr<Cell>& cell);
  NodeRef value_of(const std::shared_ptr<Cell>& cell);
  void assign(const std::shared_ptr<Cell>& cell, NodeRef next);
  /// In the order in which the function met the Variables.
  const std::deque<Entry>& entries() const { return entries_; }
  /// Cells with assigned values, in the order of their first assignment.
  const std::vector<std::size_t>& assigned() const { return assigned_; }

  /// A switch that the function read, such as whether a module trains, and what it was.
  using Switch = std::shared_ptr<const std::atomic<bool>>;
  void note(const Switch& read, bool value);
  const std::vector<std::pair<Switch, bool>>& switches() const { return switches_; }

 private:
  static inline constinit thread_local TraceScope* current_ = nullptr;
  TraceScope* before_;
  std::deque<Entry> entries_;  // gradients are handed out by reference, so entries stay where they are
  std::unordered_map<const Cell*, std::size_t> index_;
  std::vector<std::size_t> assigned_;
  std::vector<std::pair<Switch, bool>> switches_;
};

}  // namespace weft::graph
