#include "compile/fuse.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "compile/cluster_graph.hpp"
#include "compile/rewrite.hpp"
#include "graph/op.hpp"

namespace weft::compiler {

using graph::Kind;
using graph::Node;

namespace {

bool is_loop_kind(Kind kind) { return kind == Kind::map || kind == Kind::reduce || kind == Kind::gather; }

// Few plain operations: worth repeating rather than storing.
bool is_cheap(const Node& node) {
  if (node.kind != Kind::map) return false;
  int operations = 0;
  for (const auto& instruction : node.expression->code) {
    const scalar::Cost cost = scalar::cost_of(instruction.op);
    if (cost == scalar::Cost::function) return false;
    operations += cost == scalar::Cost::plain;
  }
  return operations <= 4;
}

// Half of what it is made of: better stored than computed again.
bool is_narrow_copy(const Node& node) {
  return is_cast(node) && is_float(node.type) && element(node.type).bits < element(node.inputs[0]->type).bits;
}

// Memory of a value, in words of 4 bytes.
double words_of(const Node& node) {
  const int bits = element(node.type).bits;
  return static_cast<double>(node.shape.numel()) * (bits > 0 ? bits / 32.0 : 1);
}

// Whether a device that keeps so many bytes near can go over the columns of this reduction several times, and reads them from far
// once. It takes some neighbouring columns at a time.
bool stays_near(const Node& reduce, Extent near_bytes) {
  const Node& x = *reduce.inputs[0];
  const int last = x.shape.rank() - 1;
  const bool takes_last = !reduce.ints.empty() && reduce.ints.back() == last;
  constexpr Extent kColumns = 32;
  const Extent outer = std::max<Extent>(reduce.shape.numel(), 1), inner = x.shape.numel() / outer;
  if (outer < kColumns || (!takes_last && x.shape[last] < kColumns)) return false;
  return inner * (takes_last ? 1 : kColumns) * static_cast<Extent>(size_bytes(x.type)) <= near_bytes;
}

// Whether the value is made from the result of a reduction of the cluster.
bool follows_reduction(const Node* node, const NodeSet& members, NodeSet& seen) {
  for (const auto& input : node->inputs) {
    const Node* base = base_of(input.get());
    if (!members.contains(base) || !seen.insert(base).second) continue;
    if (base->kind == Kind::reduce || follows_reduction(base, members, seen)) return true;
  }
  return false;
}

}  // namespace

std::vector<const Node*> roots_of(const Cluster& cluster, const FuseRequest& request, const NodeSet& inlined,
                                  const std::unordered_map<const Node*, std::vector<const Node*>>& consumers) {
  const NodeSet members(cluster.members.begin(), cluster.members.end());
  std::vector<const Node*> roots;
  for (const Node* node : cluster.members) {
    if (inlined.contains(node)) continue;
    bool root = request.stored.contains(node);
    if (!root)
      if (auto it = consumers.find(node); it != consumers.end())
        for (const Node* consumer : it->second) root |= !members.contains(consumer);
    if (root) roots.push_back(node);
  }
  return roots;
}

namespace {

class Fuser {
 public:
  explicit Fuser(const FuseRequest& request)
      : request_(request), consumers_(consumers_of(request.compute)), clusters_(request.compute, inlined_) {}

  FuseResult run() {
    for (const Node* node : request_.compute) {
      const int own = clusters_.add({node, {node}});
      if (request_.enabled && is_loop(node) && !request_.apart.contains(node)) join_producer(own);
    }
    if (request_.enabled) {
      for (int sweep = 0; sweep < 3 && merge_pairs(); ++sweep) {
      }
      inline_cheap();
      merge_siblings();
    }
    return {ordered(), std::move(inlined_)};
  }

 private:
  // Keeps the compile time of long chains linear, and programs small enough for every backend.
  static constexpr std::size_t kMembersMax = 128;
  // Clusters of one form that a cluster is compared with, for the same reason.
  static constexpr int kSiblingsMax = 256;

  bool fits(const Cluster& merged) { return cost_of(merged).has_value(); }

  // Words that the kernel of a cluster loads and stores; nullopt if it has no form as one kernel, or only a bad one.
  std::optional<double> cost_of(const Cluster& merged) {
    if (merged.members.size() > kMembersMax) return std::nullopt;
    const auto roots = roots_of(merged, request_, inlined_, consumers_);
    if (roots.empty()) return std::nullopt;
    if (merged.members.size() > 1)
      for (const Node* node : merged.members)
        if (request_.apart.contains(node)) return std::nullopt;
    for (const Node* node : merged.members)  // empty values need no kernel
      if (node->shape.numel() == 0 || (node->kind == Kind::reduce && node->inputs[0]->shape.numel() == 0))
        return std::nullopt;
    const NodeSet members(merged.members.begin(), merged.members.end());
    const Node* reduce = first_reduce(merged);
    bool stores_shared = false;
    Extent points = 1, outer = 1;
    const bool product = graph::is_product(*merged.anchor);
    if (product) {
      if (reduce) return std::nullopt;
      points = outer = merged.anchor->shape.numel();
    } else if (reduce) {
      points = reduce->inputs[0]->shape.numel();
      outer = reduce->shape.numel();
    } else {
      points = outer = roots.back()->shape.numel();
    }
    // Smaller values would be computed repeatedly; larger values do not fit the frame.
    for (const Node* node : merged.members)
      if (node->shape.numel() != points && node->shape.numel() != outer &&
          !(is_cheap(*node) && node->shape.numel() < points))
        return std::nullopt;
    if (reduce && outer != points) {
      const Extent inner = outer ? points / outer : 0;
      // Column reductions and reductions of a few long rows run best if they store nothing else, or only what depends on them: where
      // columns are still near when their results are known, or where several kernels share the work.
      const bool is_last = axes_are_last(*reduce), near = !is_last && stays_near(*reduce, request_.near_bytes);
      const bool shared = !near && request_.shared_points > 0 && points >= request_.shared_points;
      if (!is_last || (outer < 64 && inner > 4096))
        for (const Node* root : roots) {
          NodeSet seen;
          if (root->shape.numel() != points) continue;
          if (!(near || shared) || !follows_reduction(root, members, seen)) return std::nullopt;
          stores_shared = shared;
        }
    }
    EmitContext context{&members, &inlined_, product ? merged.anchor : nullptr, request_.place};
    const auto built = build_loop(merged, roots, context);
    if (!built) return std::nullopt;
    NodeSet operands(built->inputs.begin(), built->inputs.end());
    operands.insert(built->outputs.begin(), built->outputs.end());
    const auto read_by_product = product ? static_cast<int>(merged.anchor->inputs.size()) : 0;
    if (static_cast<int>(operands.size()) + read_by_product > request_.operands_max) return std::nullopt;
    // The device makes several kernels of it, which hand over parts of sums and values of rows.
    if (stores_shared && 2 * static_cast<int>(operands.size()) + 6 > request_.operands_max) return std::nullopt;
    double words = 0;
    for (const Node* operand : built->inputs) words += words_of(*operand);
    for (const Node* root : roots) words += words_of(*root);
    return words;
  }

  bool is_loop(const Node* node) const { return is_loop_kind(node->kind) && !request_.placed.contains(node); }
  bool can_host(const Cluster& cluster) const { return graph::is_product(*cluster.anchor) || is_loop(cluster.anchor); }

  /// The last cluster, of one node, becomes a part of one that it reads, if that is possible.
  void join_producer(int self) {
    const Node* node = clusters_[self].anchor;
    std::vector<int> candidates;
    for (const Node* source : sources_of(*node))
      if (const int c = clusters_.of(source); c >= 0) candidates.push_back(c);
    std::sort(candidates.begin(), candidates.end(),
              [&](int a, int b) { return clusters_.last_position(a) > clusters_.last_position(b); });
    candidates.erase(std::unique(candidates.begin(), candidates.end()), candidates.end());
    for (int c : candidates) {
      if (!can_host(clusters_[c]) || clusters_.indirect_path(c, self)) continue;
      Cluster merged = clusters_[c];
      merged.members.push_back(node);
      if (!fits(merged)) continue;
      clusters_.set(c, std::move(merged));
      clusters_.remove_last();
      return;
    }
  }

  bool try_merge(int into, int from) {
    Cluster merged = clusters_[into];
    const Cluster& other = clusters_[from];
    if (merged.members.size() + other.members.size() > kMembersMax) return false;
    if (graph::is_product(*other.anchor)) merged.anchor = other.anchor;
    merged.members.insert(merged.members.end(), other.members.begin(), other.members.end());
    std::sort(merged.members.begin(), merged.members.end(),
              [&](const Node* a, const Node* b) { return clusters_.position(a) < clusters_.position(b); });
    if (!fits(merged)) return false;
    clusters_.set(into, std::move(merged));
    clusters_.set(from, {other.anchor, {}});
    return true;
  }

  bool merge_pairs() {
    bool changed = false;
    for (const Node* node : request_.compute) {
      if (!is_loop(node)) continue;
      const int consumer = clusters_.of(node);
      if (!is_loop(clusters_[consumer].anchor)) continue;
      for (const Node* source : sources_of(*node)) {
        const int producer = clusters_.of(source);
        if (producer < 0 || producer == consumer) continue;
        if (!can_host(clusters_[producer]) || clusters_.indirect_path(producer, consumer)) continue;
        if (try_merge(producer, consumer)) {
          changed = true;
          break;
        }
      }
    }
    return changed;
  }

  // Kernels over equal frames that read the same value, or that are tiny, become one.
  void merge_siblings() {
    struct Form {
      Extent outer, points;
      bool last;
      auto operator<=>(const Form&) const = default;
    };
    auto form_of = [&](const Cluster& cluster) {
      const Node* reduce = first_reduce(cluster);
      if (!reduce) return Form{cluster.members.back()->shape.numel(), cluster.members.back()->shape.numel(), true};
      return Form{reduce->shape.numel(), reduce->inputs[0]->shape.numel(), axes_are_last(*reduce)};
    };
    std::map<Form, std::vector<int>> alike;
    std::vector<int> loops;
    for (int c = 0; c < clusters_.size(); ++c) {
      if (!clusters_.is_alive(c) || !is_loop(clusters_[c].anchor)) continue;
      loops.push_back(c);
      alike[form_of(clusters_[c])].push_back(c);
    }
    for (const int a : loops) {
      if (!clusters_.is_alive(a)) continue;
      const Form form = form_of(clusters_[a]);
      const std::vector<int>& others = alike.at(form);
      ClusterGraph::Paths paths;
      int failures = 0;
      auto b = std::upper_bound(others.begin(), others.end(), a);
      for (int compared = 0; b != others.end() && compared < kSiblingsMax && failures < kSiblingsMax / 8; ++b) {
        if (!clusters_.is_alive(*b)) continue;
        ++compared;
        bool worth = form.points <= request_.launch_points;
        if (!worth) {
          const std::vector<const Node*>& read = clusters_.reads_of(a);
          for (const Node* source : clusters_.reads_of(*b))
            worth = worth || (source->shape.numel() * 8 >= form.points &&
                              std::find(read.begin(), read.end(), source) != read.end());
        }
        if (!worth) continue;
        if (paths.of != a) paths = clusters_.paths_of(a);
        if (clusters_.leads_to(paths, *b) || clusters_.comes_from(paths, *b)) continue;
        if (try_merge(a, *b))
          paths = {};
        else
          ++failures;
      }
    }
  }
  // A stored map that takes few plain steps from other values is computed again where it is read, if that moves no more
  // elements. An example is the normalised input of a layer norm, from the input, its mean and its deviation.
  void inline_cheap() {
    for (const Node* node : request_.compute) {
      if (node->kind != Kind::map || request_.stored.contains(node) || request_.placed.contains(node) ||
          !is_cheap(*node))
        continue;
      if (request_.apart.contains(node)) continue;
      const int home = clusters_.of(node);
      if (!crosses_home(node)) continue;
      NodeSet chain{node};
      if (!collect(node, node->shape.numel(), chain)) continue;
      std::vector<int> affected{home};
      bool good = true;
      for (const Node* consumer : consumers_[node]) {
        const int c = clusters_.of(consumer);
        affected.push_back(c);
        const Node* anchor = clusters_[c].anchor;
        good &= is_loop(anchor) || (graph::is_product(*anchor) && !graph::is_product(*consumer));
      }
      if (!good) continue;
      const std::vector<int> readers = affected;
      for (const Node* link : chain)
        for (const Node* source : sources_of(*link))
          if (const int c = clusters_.of(source); c >= 0 && !chain.contains(source)) {
            good = good && reads_allowed(source, readers);
            affected.push_back(c);
          }
      if (!good) continue;
      std::sort(affected.begin(), affected.end());
      affected.erase(std::unique(affected.begin(), affected.end()), affected.end());
      const auto before = cost_of_all(affected);
      // Tries the change and undoes it if it does not pay. Readers compute the chain and read its sources themselves, so the
      // clusters of the sources must store them.
      std::vector<const Node*> added;
      std::vector<std::pair<const Node*, std::vector<const Node*>>> old_consumers;
      for (const Node* link : chain)
        if (inlined_.insert(link).second) added.push_back(link);
      for (const Node* link : chain)
        for (const Node* source : sources_of(*link)) {
          if (clusters_.of(source) < 0 || chain.contains(source)) continue;
          old_consumers.emplace_back(source, consumers_[source]);
          extra_readers(source, node);
        }
      const auto after = cost_of_all(affected);
      // Small operands (a mean for each row) cost nothing compared with the pass over the value that is saved.
      if (before && after && *after <= *before + words_of(*node) / 16) {
        clusters_.forget_reads();
        continue;
      }
      for (const Node* link : added) inlined_.erase(link);
      for (auto it = old_consumers.rbegin(); it != old_consumers.rend(); ++it) consumers_[it->first] = it->second;
    }
  }
  std::optional<double> cost_of_all(const std::vector<int>& clusters) {
    double sum = 0;
    for (int c : clusters) {
      const Cluster& cluster = clusters_[c];
      if (!can_host(cluster)) continue;
      const bool all_inlined = std::all_of(cluster.members.begin(), cluster.members.end(),
                                           [&](const Node* n) { return inlined_.contains(n); });
      if (all_inlined) continue;
      const auto cost = cost_of(cluster);
      if (!cost) return std::nullopt;
      sum += *cost;
    }
    return sum;
  }
  // Nodes to compute again for `node`, stopping at values that are (or may cheaply be) in memory.
  bool collect(const Node* node, Extent size, NodeSet& chain) {
    for (const Node* source : sources_of(*node)) {
      const bool in_memory = is_leaf(*source) || request_.stored.contains(source) || crosses_home(source) ||
                             !is_loop(source) || source->shape.numel() * 8 <= size || is_narrow_copy(*source);
      if (in_memory) continue;
      if (source->kind != Kind::map || !is_cheap(*source) || request_.placed.contains(source) || chain.size() >= 4)
        return false;
      chain.insert(source);
      if (!collect(source, size, chain)) return false;
    }
    return true;
  }
  bool crosses_home(const Node* node) {
    if (inlined_.contains(node)) return false;
    for (const Node* consumer : consumers_[node])
      if (clusters_.of(consumer) != clusters_.of(node)) return true;
    return false;
  }
  // A reader must not come before the cluster that makes its input, or be in a cycle with it.
  bool reads_allowed(const Node* source, const std::vector<int>& readers) {
    const int maker = clusters_.of(source);
    for (int reader : readers)
      if (reader != maker && clusters_.connected(reader, maker)) return false;
    return true;
  }
  // The chain's sources have new readers: every consumer of `node` reads them directly.
  void extra_readers(const Node* source, const Node* node) {
    auto& list = consumers_[source];
    for (const Node* consumer : consumers_[node])
      if (std::find(list.begin(), list.end(), consumer) == list.end()) list.push_back(consumer);
  }

  // Clusters in an order in which each runs after its inputs, early values first.
  std::vector<Cluster> ordered() const {
    std::vector<Cluster> live;
    for (int c = 0; c < clusters_.size(); ++c) {
      const std::vector<const Node*>& members = clusters_[c].members;
      if (std::any_of(members.begin(), members.end(), [&](const Node* node) { return !inlined_.contains(node); }))
        live.push_back(clusters_[c]);
    }
    return live;
  }

  const FuseRequest& request_;
  std::unordered_map<const Node*, std::vector<const Node*>> consumers_;
  NodeSet inlined_;
  ClusterGraph clusters_;
};

}  // namespace

FuseResult fuse(const FuseRequest& request) { return Fuser(request).run(); }

}  // namespace weft::compiler
