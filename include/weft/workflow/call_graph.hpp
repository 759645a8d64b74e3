// Calls as they happen: what triggered which, what waited for what, and how each ended.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/operations/envelope.hpp"
#include "weft/value.hpp"

namespace weft::workflow {

/// idle: its parent has not started. waiting: for what it depends on. ready: for a thread.
enum class Status : std::uint8_t { idle, waiting, ready, running, completed, failed, aborted };
/// "idle", ...
std::string_view name_of(Status status);
/// Whether it has not started.
constexpr bool is_pending(Status status) { return status <= Status::ready; }
/// Whether it has ended.
constexpr bool has_ended(Status status) { return status >= Status::completed; }

/// Nodes are calls, or elements of a running workflow. Thread safety: one thread at a time.
class CallGraph {
 public:
  struct Node {
    std::string id;         ///< of the request; in a workflow the place in the tree: "root.0", "root.1[7]"
    std::string operation;  ///< "" for an element that is not an operation
    std::string name;       ///< the element's id, if it has one
    std::string request_id;
    Status status = Status::idle;
    std::string parent;                   ///< what triggered it; "" for a root
    std::vector<std::string> depends_on;  ///< what had to be completed before it could start
    std::optional<operations::Clock::time_point> started, ended;
    std::string code, message;  ///< of an error
  };

  /// Takes an event of `Exchange::observe`.
  void add(const operations::Event& event, operations::Clock::time_point now = operations::Clock::now());
  /// Adds a node, or replaces the one with this id. Errors: UsageError if it has no id, or would be its own ancestor.
  void set(Node node);

  std::size_t size() const { return nodes_.size(); }
  /// In the order in which they were added.
  const std::vector<Node>& nodes() const { return nodes_; }
  /// Null if there is none.
  const Node* find(std::string_view id) const;

  std::vector<std::string> with_status(Status status) const;
  /// Nodes that nothing in the graph triggered.
  std::vector<std::string> roots() const;
  std::vector<std::string> children(std::string_view id) const;
  /// What depends on a node directly.
  std::vector<std::string> dependents(std::string_view id) const;
  /// From the root to the node itself. Errors: UsageError if there is no such node, as `duration`.
  std::vector<std::string> lineage(std::string_view id) const;
  /// Until now if it still runs; nothing if it has not started.
  std::optional<std::chrono::nanoseconds> duration(std::string_view id) const;

 private:
  Node& node_of(std::string_view id);
  std::vector<Node> nodes_;
  std::map<std::string, std::size_t, std::less<>> places_;
};

/// {"nodes": [{"id", "operation", "status", ...}], "edges": [{"from", "to", "kind": "triggered" or "depends_on"}]}. Times are in
/// milliseconds since 1970.
Value to_value(const CallGraph& graph);
/// The inverse. Errors: UsageError.
CallGraph call_graph_from(const Value& value);

}  // namespace weft::workflow
