#include "compile/build.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "compile/forms.hpp"
#include "compile/fuse.hpp"
#include "graph/op.hpp"
#include "graph/recompute.hpp"

namespace weft::compiler {
namespace {

using graph::Kind;
using graph::Node;
using graph::NodeRef;

bool is_loop(const Cluster& cluster) {
  const Kind kind = cluster.anchor->kind;
  return kind == Kind::map || kind == Kind::reduce || kind == Kind::gather;
}

bool all_empty(const std::vector<const Node*>& nodes) {
  return std::all_of(nodes.begin(), nodes.end(), [](const Node* n) { return n->shape.numel() == 0; });
}

/// Builds loops of the clusters (epilogues of products), and finds the values that they must store because others load them.
class LoopBuilder {
 public:
  LoopBuilder(const FuseResult& fused, const Placement& placement) : fused_(fused), placement_(placement) {}

  /// False if a cluster has no form as a kernel. Its members are then in `apart`, and fusion must start again.
  bool build(NodeSet& apart) {
    find_demanded();
    loops_.resize(fused_.clusters.size());
    stored_by_.resize(fused_.clusters.size());
    is_built_.assign(fused_.clusters.size(), false);
    // Repeats until nothing changes: a kernel stores the values that another kernel loads.
    do {
      changed_ = false;
      for (std::size_t c = 0; c < fused_.clusters.size(); ++c)
        if (!build_cluster(c, apart)) return false;
    } while (changed_);
    return true;
  }

  std::optional<BuiltLoop>& loop(std::size_t cluster) { return loops_[cluster]; }

 private:
  void find_demanded() {
    demanded_ = placement_.stored;
    for (const Cluster& cluster : fused_.clusters) {
      if (is_loop(cluster) && !placement_.written_elsewhere.contains(cluster.anchor)) continue;
      for (const Node* source : sources_of(*cluster.anchor)) demanded_.insert(source);
      const Kind kind = cluster.anchor->kind;
      if (kind == Kind::concat || kind == Kind::project ||
          graph::has_form(*cluster.anchor, graph::KernelForm::attention))
        demanded_.insert(cluster.anchor);
    }
  }

  bool build_cluster(std::size_t c, NodeSet& apart) {
    const Cluster& cluster = fused_.clusters[c];
    const bool is_product = graph::is_product(*cluster.anchor);
    if ((!is_loop(cluster) && !is_product) || placement_.written_elsewhere.contains(cluster.anchor)) return true;
    std::vector<const Node*> roots;
    for (const Node* node : cluster.members)
      if (demanded_.contains(node) && !fused_.inlined.contains(node)) roots.push_back(node);
    NodeSet stored(roots.begin(), roots.end());
    if (is_built_[c] && stored == stored_by_[c]) return true;
    is_built_[c] = true;
    stored_by_[c] = std::move(stored);
    loops_[c].reset();
    if (roots.empty() || all_empty(roots)) return true;
    const NodeSet members(cluster.members.begin(), cluster.members.end());
    const EmitContext context{&members, &fused_.inlined, is_product ? cluster.anchor : nullptr,
                              [this](const Node* n) { return placement_.of(n); }};
    const Node* blame = nullptr;
    loops_[c] = build_loop(cluster, roots, context, &blame);
    if (!loops_[c]) {
      // The stored values differ from those that fusion expected, and with them the kernel has no form.
      if (cluster.members.size() == 1)
        throw InternalError(fmt::format("compile: no kernel for {} (blocked by {})", title(*roots[0]),
                                        blame ? title(*blame) : "nothing"));
      apart.insert(cluster.members.begin(), cluster.members.end());
      return false;
    }
    for (const Node* owner : loops_[c]->inputs)
      if (!is_leaf(*owner)) demanded_.insert(owner);
    changed_ = true;
    return true;
  }

  const FuseResult& fused_;
  const Placement& placement_;
  NodeSet demanded_;
  std::vector<std::optional<BuiltLoop>> loops_;
  std::vector<NodeSet> stored_by_;
  std::vector<bool> is_built_;
  bool changed_ = false;
};

// A kernel runs at the rank of its first value: a weight's gradient right after the gradient it is made from, whose memory is
// then free.
int rank_of_cluster(const OrderedGraph& graph, const Cluster& cluster) {
  int rank = rank_of(graph, cluster.members[0]);
  for (const Node* node : cluster.members) rank = std::min(rank, rank_of(graph, node));
  return rank;
}

DraftKernel draft_of_loop(BuiltLoop loop) {
  return {std::move(loop.kernel), std::move(loop.inputs), std::move(loop.outputs)};
}

std::optional<DraftKernel> draft_of_any_call(const Node& call, std::optional<BuiltLoop>& loop,
                                             const Placement& placement, std::vector<NodeRef>& made) {
  switch (call.op->form) {
    case graph::KernelForm::packed_product:
      if (loop) return draft_of_product(call, std::move(*loop), placement);
      return std::nullopt;
    case graph::KernelForm::attention: return draft_of_attention(call, placement, made);
    case graph::KernelForm::scatter_add:
      if (call.shape.numel() > 0) return draft_of_scatter(call, placement);
      return std::nullopt;
    case graph::KernelForm::routine:
      if (call.shape.numel() > 0) return draft_of_call(call, placement, made);
      return std::nullopt;
    case graph::KernelForm::none: break;
  }
  throw InternalError(fmt::format("compile: {} has parts and no kernel", title(call)));
}

/// The kernel of a cluster; nullopt if there is nothing to compute, or if the cluster only has a place and no kernel.
std::optional<DraftKernel> draft_of(const Cluster& cluster, std::optional<BuiltLoop>& loop, const Placement& placement,
                                    std::vector<NodeRef>& made) {
  const Node& anchor = *cluster.anchor;
  switch (anchor.kind) {
    case Kind::map:
    case Kind::reduce:
    case Kind::gather:
      if (loop) return draft_of_loop(std::move(*loop));
      break;
    case Kind::matmul:
      if (loop) return draft_of_product(anchor, std::move(*loop), placement);
      break;
    case Kind::call: return draft_of_any_call(anchor, loop, placement, made);
    default: break;
  }
  return std::nullopt;
}

}  // namespace

Drafts build_kernels(const OrderedGraph& graph, const std::vector<const Node*>& compute, Placement& placement,
                     const Target& target, const Settings& settings) {
  Drafts drafts;
  const PlaceOf place = [&placement](const Node* n) { return placement.of(n); };
  NodeSet apart;
  for (const Node* node : compute)
    if (graph::is_recompute(*node)) apart.insert(node);
  for (bool is_built = false; !is_built;) {
    const FuseResult fused =
        fuse({compute, placement.written_elsewhere, placement.stored, place, apart, target.operands_max,
              target.shared_points, target.launch_points, target.near_bytes, settings.fusion});
    LoopBuilder builder(fused, placement);
    is_built = builder.build(apart);
    for (std::size_t c = 0; is_built && c < fused.clusters.size(); ++c) {
      auto draft = draft_of(fused.clusters[c], builder.loop(c), placement, drafts.made);
      if (!draft) continue;
      draft->rank = rank_of_cluster(graph, fused.clusters[c]);
      drafts.kernels.push_back(std::move(*draft));
    }
  }
  // Parts that are also needed elsewhere are copied into the concat.
  for (const auto& [part, to] : placement.extra_parts) {
    if (part->shape.numel() == 0) continue;
    const NodeRef copy = copy_of(part->shared_from_this());
    drafts.made.push_back(copy);
    placement.places[copy.get()] = to;
    const NodeSet members{copy.get()};
    auto built = build_loop({copy.get(), {copy.get()}}, {copy.get()}, {&members, nullptr, nullptr, place});
    if (!built) throw InternalError(fmt::format("compile: no kernel copies {} into a concat", title(*part)));
    drafts.kernels.push_back(draft_of_loop(std::move(*built)));
    drafts.kernels.back().rank = rank_of(graph, part);
  }
  return drafts;
}

}  // namespace weft::compiler
