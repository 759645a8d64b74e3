#include "compile/cluster.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "compile/sources.hpp"
#include "compile/split_frames.hpp"
#include "graph/op.hpp"

namespace weft::compiler {

using graph::Kind;
using graph::Node;

const Node* first_reduce(const Cluster& cluster) {
  for (const Node* node : cluster.members)
    if (node->kind == Kind::reduce) return node;
  return nullptr;
}

bool axes_are_last(const Node& reduce) {
  const int rank = reduce.inputs[0]->shape.rank(), count = static_cast<int>(reduce.ints.size());
  return reduce.ints.empty() || reduce.ints[0] == rank - count;
}

namespace {

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

}  // namespace weft::compiler
