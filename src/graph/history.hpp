// What an evaluated value was made from, and when it lets go of that.
#pragma once

#include <memory>
#include <mutex>
#include <unordered_set>
#include <vector>

#include "graph/node.hpp"

namespace weft::graph {

/// Replaces an evaluated node by one that has its value but no inputs, so that what it was made from can be freed. Keeps the
/// node while a KeepHistory exists, and if a gradient of it is wanted (Node::requires_grad).
void let_go_of_inputs(NodeRef& node);

/// The same value made of evaluated values that have let go of their inputs. For what no gradient flows through.
NodeRef without_history(const NodeRef& root);

/// The living values from which a value was made that has let go of its inputs. Gradients to these are refused, because they
/// would lack a part. Sources whose values are gone are replaced by their own sources, so a loop does not make this grow.
/// Thread safe.
class Past {
 public:
  Past() = default;
  /// The past of an evaluated value.
  static std::shared_ptr<Past> of(const Node& value);
  ~Past();
  Past(const Past&) = delete;

  /// One of the nodes from which the value was made, or null.
  const Node* find(const std::unordered_set<const Node*>& nodes) const;
  /// Forgets values that are gone.
  void prune();
  /// Number of values, and of those that they were made from, for tests.
  std::size_t size() const { return sources().size(); }
  std::size_t size_with_pasts() const;

 private:
  struct Source {
    std::weak_ptr<const Node> value;
    std::shared_ptr<Past> past;  // of a value that has let go of its inputs
  };
  std::vector<Source> sources() const;
  /// Calls visit(source) for all, and for the sources of those for which it returns true.
  void each_source(const auto& visit) const;
  static void walk(const Node& value, std::vector<Source>& sources);

  mutable std::mutex mutex_;
  std::vector<Source> sources_;
};

/// Of a value that has let go of its inputs, or that lies below one; else null.
std::shared_ptr<Past> past_of(const Node& node);

}  // namespace weft::graph
