#include "compile/cluster_graph.hpp"

#include <utility>

#include "compile/sources.hpp"

namespace weft::compiler {

using graph::Node;

ClusterGraph::ClusterGraph(const std::vector<const Node*>& compute, const NodeSet& inlined) : inlined_(inlined) {
  for (std::size_t i = 0; i < compute.size(); ++i) position_[compute[i]] = static_cast<int>(i);
}

int ClusterGraph::of(const Node* node) const {
  const auto it = cluster_at_.find(node);
  return it == cluster_at_.end() ? -1 : it->second;
}

int ClusterGraph::add(Cluster cluster) {
  clusters_.emplace_back();
  set(size() - 1, std::move(cluster));
  return size() - 1;
}

void ClusterGraph::set(int c, Cluster cluster) {
  for (const Node* node : cluster.members) cluster_at_[node] = c;
  clusters_[static_cast<std::size_t>(c)] = std::move(cluster);
  changed(c);
}

void ClusterGraph::remove_last() {
  clusters_.pop_back();
  spans_.pop_back();
}

bool ClusterGraph::indirect_path(int from, int to) {
  int horizon = -1;  // not known yet: most clusters never need it
  std::vector<int> stack;
  std::vector<bool> seen;
  auto push_sources = [&](int c) {
    for (const Node* source : reads_of(c)) {
      auto it = cluster_at_.find(source);
      if (it == cluster_at_.end() || it->second == c) continue;
      if (c == to && it->second == from) continue;  // the direct edge
      if (horizon < 0) {
        horizon = horizon_of(from);
        seen.resize(clusters_.size());
      }
      if (spans_[static_cast<std::size_t>(it->second)].last < horizon || seen[static_cast<std::size_t>(it->second)])
        continue;
      seen[static_cast<std::size_t>(it->second)] = true;
      stack.push_back(it->second);
    }
  };
  push_sources(to);
  while (!stack.empty()) {
    const int c = stack.back();
    stack.pop_back();
    if (c == from) return true;
    if (c != to) push_sources(c);
  }
  return false;
}

int ClusterGraph::horizon_of(int c) const {
  int horizon = spans_[static_cast<std::size_t>(c)].first;
  for (bool again = true; again;) {
    again = false;
    for (const Span& span : spans_) {
      if (span.first >= horizon || span.last < horizon) continue;
      horizon = span.first;
      again = true;
    }
  }
  return horizon;
}

ClusterGraph::Paths ClusterGraph::paths_of(int c) {
  Paths paths{c, horizon_of(c), std::vector<bool>(clusters_.size()), std::vector<signed char>(clusters_.size())};
  std::vector<int> stack{c};
  while (!stack.empty()) {
    const int at = stack.back();
    stack.pop_back();
    for (const int source : clusters_before(at, paths.horizon)) {
      if (paths.before[static_cast<std::size_t>(source)]) continue;
      paths.before[static_cast<std::size_t>(source)] = true;
      stack.push_back(source);
    }
  }
  return paths;
}

std::vector<int> ClusterGraph::clusters_before(int c, int horizon) {
  std::vector<int> found;
  for (const Node* source : reads_of(c))
    if (auto it = cluster_at_.find(source);
        it != cluster_at_.end() && it->second != c && spans_[static_cast<std::size_t>(it->second)].last >= horizon)
      found.push_back(it->second);
  return found;
}

bool ClusterGraph::leads_to(Paths& paths, int to) {
  struct Visit {
    int cluster;
    std::vector<int> sources;
  };
  const auto known = [&](int c) -> signed char& { return paths.after[static_cast<std::size_t>(c)]; };
  if (known(to) != 0) return known(to) > 0;
  std::vector<Visit> visits{{to, clusters_before(to, paths.horizon)}};
  while (!visits.empty()) {
    Visit& visit = visits.back();
    if (visit.sources.empty()) {
      known(visit.cluster) = -1;
      visits.pop_back();
      continue;
    }
    const int source = visit.sources.back();
    visit.sources.pop_back();
    if (source == paths.of || known(source) > 0) {
      for (const Visit& each : visits) known(each.cluster) = 1;
      return true;
    }
    if (known(source) == 0) visits.push_back({source, clusters_before(source, paths.horizon)});
  }
  return false;
}

bool ClusterGraph::comes_from(Paths& paths, int from) {
  // A cluster that begins after `paths.of` has a horizon at least as late as that of `paths`.
  if (spans_[static_cast<std::size_t>(from)].first < spans_[static_cast<std::size_t>(paths.of)].first)
    return connected(from, paths.of);
  return paths.before[static_cast<std::size_t>(from)];
}

const std::vector<const Node*>& ClusterGraph::reads_of(int c) {
  const auto at = static_cast<std::size_t>(c);
  // To the size of all clusters, so that one list stays where it is while another is made.
  if (reads_.size() < clusters_.size()) reads_.resize(clusters_.size());
  if (reads_[at]) return *reads_[at];
  std::vector<const Node*> reads, stack = clusters_[at].members;
  NodeSet seen(stack.begin(), stack.end());
  while (!stack.empty()) {
    const Node* node = stack.back();
    stack.pop_back();
    for (const Node* source : sources_of(*node)) {
      if (!seen.insert(source).second) continue;
      if (inlined_.contains(source))
        stack.push_back(source);
      else
        reads.push_back(source);
    }
  }
  return reads_[at].emplace(std::move(reads));
}

void ClusterGraph::changed(int c) {
  const auto at = static_cast<std::size_t>(c);
  if (at < reads_.size()) reads_[at].reset();
  if (at >= spans_.size()) spans_.resize(at + 1);
  spans_[at] = {};
  const std::vector<const Node*>& members = clusters_[at].members;
  if (!members.empty()) spans_[at] = {position_.at(members.front()), position_.at(members.back())};
}

bool ClusterGraph::connected(int from, int to) {
  for (const Node* source : reads_of(to))
    if (auto it = cluster_at_.find(source); it != cluster_at_.end() && it->second == from) return true;
  return indirect_path(from, to);
}

}  // namespace weft::compiler
