// Clusters, and the paths between them.
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "compile/cluster.hpp"

namespace weft::compiler {

/// The clusters of a graph while they are made. A cluster is known by its number; one that has become a part of another has no
/// members.
class ClusterGraph {
 public:
  /// `compute` has all nodes in a valid order. `inlined` changes outside; `forget_reads` follows such a change.
  ClusterGraph(const std::vector<const graph::Node*>& compute, const NodeSet& inlined);

  int size() const { return static_cast<int>(clusters_.size()); }
  const Cluster& operator[](int c) const { return clusters_[static_cast<std::size_t>(c)]; }
  bool is_alive(int c) const { return !(*this)[c].members.empty(); }
  /// The cluster of a node; -1: none yet.
  int of(const graph::Node* node) const;
  int position(const graph::Node* node) const { return position_.at(node); }
  int last_position(int c) const { return spans_[static_cast<std::size_t>(c)].last; }

  int add(Cluster cluster);
  /// Replaces a cluster; the members of the new one leave others.
  void set(int c, Cluster cluster);
  /// Removes the last cluster, whose members are in others now.
  void remove_last();

  /// Values that the cluster loads, also through nodes that it computes again. They are needed often, so they are kept until the
  /// cluster or the set of recomputed nodes changes.
  const std::vector<const graph::Node*>& reads_of(int c);
  void forget_reads() { reads_.clear(); }

  /// True if some path leads from cluster `from` to cluster `to` through other clusters.
  bool indirect_path(int from, int to);
  /// The same, or if `to` reads a value of `from`.
  bool connected(int from, int to);

  /// What is known of the paths between one cluster and all others. It holds until clusters change.
  struct Paths {
    int of = -1, horizon = 0;
    std::vector<bool> before;        // paths lead from these clusters to it
    std::vector<signed char> after;  // 1: a path leads from it to this cluster, -1: none, 0: not known yet
  };
  Paths paths_of(int c);
  /// Visits each cluster once for all questions about one cluster.
  bool leads_to(Paths& paths, int to);
  bool comes_from(Paths& paths, int from);

 private:
  struct Span {
    int first = -1, last = -1;  // places of members; -1: none
  };

  /// The last place in the order of nodes, at or before `c`, that no cluster spans. Clusters before it read only clusters before
  /// it, so no path leads there from `c`.
  int horizon_of(int c) const;
  std::vector<int> clusters_before(int c, int horizon);
  void changed(int c);

  const NodeSet& inlined_;
  std::unordered_map<const graph::Node*, int> position_, cluster_at_;
  std::vector<Cluster> clusters_;
  std::vector<std::optional<std::vector<const graph::Node*>>> reads_;  // of each cluster, once needed
  std::vector<Span> spans_;                                            // of each cluster
};

}  // namespace weft::compiler
