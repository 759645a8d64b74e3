#include "compile/fuse.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "compile/rewrite.hpp"
#include "compile/split_frames.hpp"
#include "graph/op.hpp"

namespace weft::compiler {

using graph::Kind;
using graph::Node;

bool is_compute(const Node& node) {
  if (is_leaf(node) || graph::is_view(node.kind)) return false;
  return node.kind != Kind::constant && node.kind != Kind::iota;
}

const Node* base_of(const Node* node) {
  while (graph::is_view(node->kind) && !is_leaf(*node)) node = node->inputs[0].get();
  return node;
}

std::vector<const Node*> sources_of(const Node& node) {
  std::vector<const Node*> sources;
  for (const auto& input : node.inputs) {
    const Node* base = base_of(input.get());
    if ((is_leaf(*base) || is_compute(*base)) && std::find(sources.begin(), sources.end(), base) == sources.end())
      sources.push_back(base);
  }
  return sources;
}

std::unordered_map<const Node*, std::vector<const Node*>> consumers_of(const std::vector<const Node*>& compute) {
  std::unordered_map<const Node*, std::vector<const Node*>> consumers;
  for (const Node* node : compute)
    for (const Node* source : sources_of(*node)) consumers[source].push_back(node);
  return consumers;
}

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

const Node* first_reduce(const Cluster& cluster) {
  for (const Node* node : cluster.members)
    if (node->kind == Kind::reduce) return node;
  return nullptr;
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

bool axes_are_last(const Node& reduce) {
  const int rank = reduce.inputs[0]->shape.rank(), count = static_cast<int>(reduce.ints.size());
  return reduce.ints.empty() || reduce.ints[0] == rank - count;
}

Frame frame_of(const Cluster& cluster, const std::vector<const Node*>& roots) {
  Frame frame;
  if (graph::is_product(*cluster.anchor)) {
    frame.extents = cluster.anchor->shape.vector();
    frame.outer_rank = 3;
  } else if (const Node* reduce = first_reduce(cluster)) {
    const Shape& shape = reduce->inputs[0]->shape;
    std::vector<Extent> inner;
    std::size_t at = 0;
    for (int d = 0; d < shape.rank(); ++d) {
      if (at < reduce->ints.size() && reduce->ints[at] == d) {
        inner.push_back(shape[d]);
        ++at;
      } else {
        frame.extents.push_back(shape[d]);
      }
    }
    frame.outer_rank = static_cast<int>(frame.extents.size());
    frame.extents.insert(frame.extents.end(), inner.begin(), inner.end());
  } else {
    frame.extents = roots.back()->shape.vector();
    frame.outer_rank = static_cast<int>(frame.extents.size());
  }
  return frame;
}

// Kept axes come from the outer part of the frame in order, reduced ones from the inner part.
Access permuted_access(const Node* root, const Frame& frame, const Node& reduce) {
  const auto is_reduced = [&](int d) {
    return std::find(reduce.ints.begin(), reduce.ints.end(), d) != reduce.ints.end();
  };
  std::vector<Extent> kept, taken;
  for (int d = 0; d < root->shape.rank(); ++d) (is_reduced(d) ? taken : kept).push_back(root->shape[d]);
  const int rank = static_cast<int>(frame.extents.size());
  const auto outer = split_linear(frame_linear(frame.extents, 0, frame.outer_rank), Shape(kept), frame.extents, root);
  const auto inner =
      split_linear(frame_linear(frame.extents, frame.outer_rank, rank), Shape(taken), frame.extents, root);
  Access access;
  std::size_t next_outer = 0, next_inner = 0;
  for (int d = 0; d < root->shape.rank(); ++d)
    access.dims.push_back(is_reduced(d) ? inner[next_inner++] : outer[next_outer++]);
  return access;
}

// Axes of a copy, split so that each is one axis of the value that it reorders.
struct Reordering {
  std::vector<Extent> extents;     // of the split axes, in the copy's order
  std::vector<std::size_t> order;  // those with more than one point, by how far they move in the value
  Access access;                   // of the copy, over its split axes
};

// nullopt unless the copy holds each element of `base` once.
std::optional<Reordering> reordering_of(const Node* copy, const Node* base) {
  std::vector<Extent> extents = copy->shape.vector();
  auto follow_views = [&]() -> std::optional<Reordering> {
    Reordering r{extents, {}, {}};
    r.access.dims =
        split_linear(frame_linear(extents, 0, static_cast<int>(extents.size())), copy->shape, extents, copy);
    Access source = r.access;
    for (const Node* node = copy->inputs[0].get(); node != base; node = node->inputs[0].get())
      source = through_view(*node, source, extents);
    if (!source.masks.empty()) return std::nullopt;
    const Affine linear = linear_of(source.dims, contiguous_strides(base->shape), extents.size());
    if (linear.base != 0) return std::nullopt;
    for (std::size_t f = 0; f < extents.size(); ++f)
      if (extents[f] > 1) r.order.push_back(f);
    std::sort(r.order.begin(), r.order.end(),
              [&](std::size_t a, std::size_t b) { return linear.coefficients[a] > linear.coefficients[b]; });
    Extent stride = 1;
    for (std::size_t i = r.order.size(); i-- > 0;) {
      if (linear.coefficients[r.order[i]] != stride) return std::nullopt;
      stride *= extents[r.order[i]];
    }
    return r;
  };
  return with_split_frames(extents, follow_views, [](const SplitFrame&) {});
}

// For a copy that only reorders a value of this cluster: run in the value's order and store in the copy's.
std::optional<Access> reordered_access(const Node* root, const Frame& frame) {
  const Node* base = base_of(root->inputs[0].get());
  if (base->shape.numel() != root->shape.numel()) return std::nullopt;
  const auto r = reordering_of(root, base);
  if (!r) return std::nullopt;
  // Coordinates of the sorted axes over the frame, then of the copy's own axes.
  std::vector<Extent> sorted;
  for (std::size_t f : r->order) sorted.push_back(r->extents[f]);
  const auto coordinates = split_linear(frame_linear(frame.extents, 0, static_cast<int>(frame.extents.size())),
                                        Shape(sorted), frame.extents, root);
  Access access;
  for (const Affine& dim : r->access.dims) {
    Affine a{dim.base, std::vector<Extent>(frame.extents.size(), 0)};
    for (std::size_t i = 0; i < r->order.size(); ++i) {
      const Extent c = dim.coefficients[r->order[i]];
      a.base += c * coordinates[i].base;
      for (std::size_t f = 0; f < frame.extents.size(); ++f) a.coefficients[f] += c * coordinates[i].coefficients[f];
    }
    access.dims.push_back(std::move(a));
  }
  return access;
}

// The access of a stored value over the frame. Several forms may be possible; `form` selects one. nullopt if it does not exist.
constexpr int kRootForms = 3;
std::optional<Access> root_access(const Node* root, const Frame& frame, const Cluster& cluster, int form) {
  const Extent outer = frame.outer(), inner = frame.inner(), n = root->shape.numel();
  const int rank = static_cast<int>(frame.extents.size());
  const auto row_major = [&](int axes) {
    return Access{split_linear(frame_linear(frame.extents, 0, axes), root->shape, frame.extents, root), {}};
  };
  const Node* reduce = graph::is_product(*cluster.anchor) ? nullptr : first_reduce(cluster);
  if (n == outer * inner && (inner != 1 || !reduce || frame.outer_rank == rank)) {
    const bool permuted = reduce && !axes_are_last(*reduce);
    if (form == 0 && permuted && root->shape == reduce->inputs[0]->shape) return permuted_access(root, frame, *reduce);
    if (form == (permuted ? 1 : 0)) return row_major(rank);
  } else if (n == outer && form == 0) {
    return row_major(frame.outer_rank);
  }
  if (form == 2 && root->kind == Kind::map && root->name == "copy" && n == outer * inner)
    return reordered_access(root, frame);
  return std::nullopt;
}

// The part of a kernel's name that comes from a node: its composite's name, if it is a part of one.
std::string part_of_name(const Node& node) {
  const std::string own = !node.name.empty()          ? node.name
                          : node.kind == Kind::reduce ? std::string(scalar::name_of(node.reduction))
                                                      : std::string(graph::name_of(node.kind));
  return node.within.op ? node.within.op->name + (node.within.gradient ? ".grad" : "") : own;
}

std::string name_of(const Cluster& cluster) {
  std::string name, last;
  int count = 0;
  for (const Node* node : cluster.members) {
    std::string part = part_of_name(*node);
    if (node->within.op && part == last) continue;
    if (++count <= 6) name += (name.empty() ? "" : ".") + part;
    last = std::move(part);
  }
  return count > 6 ? name + fmt::format("+{}", count - 6) : name;
}

}  // namespace

std::optional<BuiltLoop> build_loop(const Cluster& cluster, const std::vector<const Node*>& roots,
                                    const EmitContext& context, const Node** blame) {
  if (roots.empty()) return std::nullopt;
  Frame frame = frame_of(cluster, roots);
  std::vector<int> forms(roots.size(), 0);
  std::size_t at = 0;
  // Stores the roots with their forms; if a root has no kernel with its form, tries its next form.
  auto emit_roots = [&]() -> std::optional<BuiltLoop> {
    for (;;) {
      at = 0;
      try {
        Emitter emitter(frame, context);
        for (; at < roots.size(); ++at) {
          std::optional<Access> access;
          while (forms[at] < kRootForms && !(access = root_access(roots[at], frame, cluster, forms[at]))) ++forms[at];
          if (!access) return std::nullopt;
          emitter.store(roots[at], *access);
          if (emitter.recomputes()) throw MustMaterialize{roots[at]};
        }
        return emitter.finish(name_of(cluster));
      } catch (const MustMaterialize& must) {
        if (blame) *blame = must.node;
        if (++forms[at] >= kRootForms) return std::nullopt;
      }
    }
  };
  return with_split_frames(frame.extents, emit_roots, [&](const SplitFrame& split) {
    if (split.axis < frame.outer_rank) ++frame.outer_rank;
  });
}

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
  explicit Fuser(const FuseRequest& request) : request_(request), consumers_(consumers_of(request.compute)) {
    for (std::size_t i = 0; i < request.compute.size(); ++i) position_[request.compute[i]] = static_cast<int>(i);
  }

  FuseResult run() {
    for (const Node* node : request_.compute) {
      if (!(request_.enabled && is_loop(node) && !request_.apart.contains(node) && join_producer(node))) {
        cluster_at_[node] = static_cast<int>(clusters_.size());
        clusters_.push_back({node, {node}});
        changed(cluster_at_[node]);
      }
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

  bool alive(int c) const { return !clusters_[static_cast<std::size_t>(c)].members.empty(); }

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

  // True if some path leads from cluster `from` to cluster `to` through other clusters.
  bool indirect_path(int from, int to) {
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
  // The last place in the order of nodes, at or before `c`, that no cluster spans. Clusters before it read only clusters before
  // it, so no path leads there from `c`.
  int horizon_of(int c) const {
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
  int last_position(int c) const { return spans_[static_cast<std::size_t>(c)].last; }

  bool is_loop(const Node* node) const { return is_loop_kind(node->kind) && !request_.placed.contains(node); }
  bool can_host(const Cluster& cluster) const { return graph::is_product(*cluster.anchor) || is_loop(cluster.anchor); }

  bool join_producer(const Node* node) {
    std::vector<int> candidates;
    for (const Node* source : sources_of(*node))
      if (auto it = cluster_at_.find(source); it != cluster_at_.end()) candidates.push_back(it->second);
    std::sort(candidates.begin(), candidates.end(), [&](int a, int b) { return last_position(a) > last_position(b); });
    candidates.erase(std::unique(candidates.begin(), candidates.end()), candidates.end());
    const int self = static_cast<int>(clusters_.size());
    clusters_.push_back({node, {node}});
    changed(self);
    cluster_at_[node] = self;
    for (int c : candidates) {
      Cluster& host = clusters_[static_cast<std::size_t>(c)];
      if (!can_host(host) || indirect_path(c, self)) continue;
      Cluster merged = host;
      merged.members.push_back(node);
      if (!fits(merged)) continue;
      host = std::move(merged);
      changed(c);
      cluster_at_[node] = c;
      drop_last();
      return true;
    }
    drop_last();
    cluster_at_.erase(node);
    return false;
  }

  bool try_merge(int into, int from) {
    Cluster merged = clusters_[static_cast<std::size_t>(into)];
    const Cluster& other = clusters_[static_cast<std::size_t>(from)];
    if (merged.members.size() + other.members.size() > kMembersMax) return false;
    if (graph::is_product(*other.anchor)) merged.anchor = other.anchor;
    merged.members.insert(merged.members.end(), other.members.begin(), other.members.end());
    std::sort(merged.members.begin(), merged.members.end(),
              [&](const Node* a, const Node* b) { return position_[a] < position_[b]; });
    if (!fits(merged)) return false;
    for (const Node* node : other.members) cluster_at_[node] = into;
    clusters_[static_cast<std::size_t>(into)] = std::move(merged);
    clusters_[static_cast<std::size_t>(from)].members.clear();
    changed(into);
    changed(from);
    return true;
  }

  bool merge_pairs() {
    bool changed = false;
    for (const Node* node : request_.compute) {
      if (!is_loop(node)) continue;
      const int consumer = cluster_at_[node];
      if (!is_loop(clusters_[static_cast<std::size_t>(consumer)].anchor)) continue;
      for (const Node* source : sources_of(*node)) {
        auto it = cluster_at_.find(source);
        if (it == cluster_at_.end() || it->second == consumer) continue;
        const int producer = it->second;
        if (!can_host(clusters_[static_cast<std::size_t>(producer)]) || indirect_path(producer, consumer)) continue;
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
    for (int c = 0; c < static_cast<int>(clusters_.size()); ++c) {
      if (!alive(c) || !is_loop(clusters_[static_cast<std::size_t>(c)].anchor)) continue;
      loops.push_back(c);
      alike[form_of(clusters_[static_cast<std::size_t>(c)])].push_back(c);
    }
    for (const int a : loops) {
      if (!alive(a)) continue;
      const Form form = form_of(clusters_[static_cast<std::size_t>(a)]);
      const std::vector<int>& others = alike.at(form);
      Paths paths;
      int failures = 0;
      auto b = std::upper_bound(others.begin(), others.end(), a);
      for (int compared = 0; b != others.end() && compared < kSiblingsMax && failures < kSiblingsMax / 8; ++b) {
        if (!alive(*b)) continue;
        ++compared;
        bool worth = form.points <= request_.launch_points;
        if (!worth) {
          const std::vector<const Node*>& read = reads_of(a);
          for (const Node* source : reads_of(*b))
            worth = worth || (source->shape.numel() * 8 >= form.points &&
                              std::find(read.begin(), read.end(), source) != read.end());
        }
        if (!worth) continue;
        if (paths.of != a) paths = paths_of(a);
        if (leads_to(paths, *b) || comes_from(paths, *b)) continue;
        if (try_merge(a, *b))
          paths = {};
        else
          ++failures;
      }
    }
  }
  // What is known of the paths between one cluster and all others. It holds until clusters change.
  struct Paths {
    int of = -1, horizon = 0;
    std::vector<bool> before;        // paths lead from these clusters to it
    std::vector<signed char> after;  // 1: a path leads from it to this cluster, -1: none, 0: not known yet
  };
  Paths paths_of(int c) {
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
  std::vector<int> clusters_before(int c, int horizon) {
    std::vector<int> found;
    for (const Node* source : reads_of(c))
      if (auto it = cluster_at_.find(source);
          it != cluster_at_.end() && it->second != c && spans_[static_cast<std::size_t>(it->second)].last >= horizon)
        found.push_back(it->second);
    return found;
  }
  // Visits each cluster once for all questions about one cluster.
  bool leads_to(Paths& paths, int to) {
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
  bool comes_from(Paths& paths, int from) {
    // A cluster that begins after `paths.of` has a horizon at least as late as that of `paths`.
    if (spans_[static_cast<std::size_t>(from)].first < spans_[static_cast<std::size_t>(paths.of)].first)
      return connected(from, paths.of);
    return paths.before[static_cast<std::size_t>(from)];
  }
  // Values that the cluster loads, also through nodes that it computes again. They are needed often, so they are kept until the
  // cluster or the set of recomputed nodes changes.
  const std::vector<const Node*>& reads_of(int c) {
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
  void changed(int c) {
    const auto at = static_cast<std::size_t>(c);
    if (at < reads_.size()) reads_[at].reset();
    if (at >= spans_.size()) spans_.resize(at + 1);
    spans_[at] = {};
    const std::vector<const Node*>& members = clusters_[at].members;
    if (!members.empty()) spans_[at] = {position_.at(members.front()), position_.at(members.back())};
  }
  void drop_last() {
    clusters_.pop_back();
    spans_.pop_back();
  }
  bool connected(int from, int to) {
    for (const Node* source : reads_of(to))
      if (auto it = cluster_at_.find(source); it != cluster_at_.end() && it->second == from) return true;
    return indirect_path(from, to);
  }

  // A stored map that takes few plain steps from other values is computed again where it is read, if that moves no more
  // elements. An example is the normalised input of a layer norm, from the input, its mean and its deviation.
  void inline_cheap() {
    for (const Node* node : request_.compute) {
      if (node->kind != Kind::map || request_.stored.contains(node) || request_.placed.contains(node) ||
          !is_cheap(*node))
        continue;
      if (request_.apart.contains(node)) continue;
      const int home = cluster_at_[node];
      if (!crosses_home(node)) continue;
      NodeSet chain{node};
      if (!collect(node, node->shape.numel(), chain)) continue;
      std::vector<int> affected{home};
      bool good = true;
      for (const Node* consumer : consumers_[node]) {
        const int c = cluster_at_[consumer];
        affected.push_back(c);
        const Node* anchor = clusters_[static_cast<std::size_t>(c)].anchor;
        good &= is_loop(anchor) || (graph::is_product(*anchor) && !graph::is_product(*consumer));
      }
      if (!good) continue;
      const std::vector<int> readers = affected;
      for (const Node* link : chain)
        for (const Node* source : sources_of(*link))
          if (auto it = cluster_at_.find(source); it != cluster_at_.end() && !chain.contains(source)) {
            good = good && reads_allowed(source, readers);
            affected.push_back(it->second);
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
          if (!cluster_at_.contains(source) || chain.contains(source)) continue;
          old_consumers.emplace_back(source, consumers_[source]);
          extra_readers(source, node);
        }
      const auto after = cost_of_all(affected);
      // Small operands (a mean for each row) cost nothing compared with the pass over the value that is saved.
      if (before && after && *after <= *before + words_of(*node) / 16) {
        reads_.clear();
        continue;
      }
      for (const Node* link : added) inlined_.erase(link);
      for (auto it = old_consumers.rbegin(); it != old_consumers.rend(); ++it) consumers_[it->first] = it->second;
    }
  }
  std::optional<double> cost_of_all(const std::vector<int>& clusters) {
    double sum = 0;
    for (int c : clusters) {
      const Cluster& cluster = clusters_[static_cast<std::size_t>(c)];
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
      if (cluster_at_[consumer] != cluster_at_[node]) return true;
    return false;
  }
  // A reader must not come before the cluster that makes its input, or be in a cycle with it.
  bool reads_allowed(const Node* source, const std::vector<int>& readers) {
    const int maker = cluster_at_[source];
    for (int reader : readers)
      if (reader != maker && connected(reader, maker)) return false;
    return true;
  }
  // The chain's sources have new readers: every consumer of `node` reads them directly.
  void extra_readers(const Node* source, const Node* node) {
    auto& list = consumers_[source];
    for (const Node* consumer : consumers_[node])
      if (std::find(list.begin(), list.end(), consumer) == list.end()) list.push_back(consumer);
  }

  std::vector<Cluster> ordered();

  const FuseRequest& request_;
  std::unordered_map<const Node*, std::vector<const Node*>> consumers_;
  std::unordered_map<const Node*, int> position_, cluster_at_;
  std::vector<Cluster> clusters_;
  std::vector<std::optional<std::vector<const Node*>>> reads_;  // of each cluster, once needed
  struct Span {
    int first = -1, last = -1;  // places of members; -1: none
  };
  std::vector<Span> spans_;  // of each cluster
  NodeSet inlined_;
};

// Clusters in an order in which each runs after its inputs, early values first.
std::vector<Cluster> Fuser::ordered() {
  std::vector<Cluster> live;
  for (Cluster& cluster : clusters_) {
    std::vector<const Node*> members;
    bool anything = false;
    for (const Node* node : cluster.members) anything |= !inlined_.contains(node);
    if (!cluster.members.empty() && anything) live.push_back(std::move(cluster));
  }
  return live;
}

}  // namespace

FuseResult fuse(const FuseRequest& request) { return Fuser(request).run(); }

}  // namespace weft::compiler
