#include "compile/compile.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "compile/fuse.hpp"
#include "compile/memory.hpp"
#include "compile/narrow.hpp"
#include "compile/rewrite.hpp"
#include "compile/row_factors.hpp"

namespace weft::compiler {
namespace {

using graph::Kind;
using graph::Node;
using graph::NodeRef;
using kernel::Operand;
using kernel::View;

// ---- Operands that are read through strides --------------------------------------------------------------------------

using PlaceOf = std::function<Place(const Node*)>;

// A value's axes as strides into its owner's memory: one view an axis.
struct Strided {
  const Node* owner = nullptr;
  Extent offset = 0;
  std::vector<View> axes;
};

// nullopt when no strides describe it, so that it must be copied.
std::optional<Strided> strided(const Node* node, const PlaceOf& place) {
  const Node* base = base_of(node);
  if (base->kind == Kind::constant || base->kind == Kind::iota) return std::nullopt;
  std::vector<Extent> extents = node->shape.vector();
  std::vector<int> axis;  // the value's axis that a frame extent is a part of
  for (int d = 0; d < node->shape.rank(); ++d) axis.push_back(d);
  for (int attempt = 0; attempt < 16; ++attempt) {
    try {
      Access access;
      for (int d = 0; d < node->shape.rank(); ++d) {
        Affine a{0, std::vector<Extent>(extents.size(), 0)};
        Extent stride = 1;
        for (std::size_t f = extents.size(); f-- > 0;)
          if (axis[f] == d) {
            a.coefficients[f] = stride;
            stride *= extents[f];
          }
        access.dims.push_back(std::move(a));
      }
      for (const Node* view = node; view != base; view = view->inputs[0].get())
        access = through_view(*view, access, extents);
      if (!access.masks.empty()) return std::nullopt;
      const Place at = place(base);
      const Affine linear = linear_of(access.dims, at.strides, extents.size());
      Strided s{at.owner, linear.base + at.offset, std::vector<View>(node->shape.size())};
      if (s.offset < 0) return std::nullopt;
      for (std::size_t f = 0; f < extents.size(); ++f) {
        if (linear.coefficients[f] < 0) return std::nullopt;
        s.axes[static_cast<std::size_t>(axis[f])].extents.push_back(extents[f]);
        s.axes[static_cast<std::size_t>(axis[f])].strides.push_back(linear.coefficients[f]);
      }
      for (View& view : s.axes) view = simplified(std::move(view));
      return s;
    } catch (SplitFrame& split) {
      const auto f = static_cast<std::size_t>(split.axis);
      if (extents[f] == split.inner) return std::nullopt;
      extents[f] /= split.inner;
      extents.insert(extents.begin() + split.axis + 1, split.inner);
      axis.insert(axis.begin() + split.axis + 1, axis[f]);
    } catch (MustMaterialize&) {
      return std::nullopt;
    }
  }
  return std::nullopt;
}

// The one stride of an axis (0 for an extent of 1), if its parts lie in a row.
std::optional<Extent> stride_of(const View& axis) {
  if (axis.extents.empty()) return 0;
  return axis.extents.size() == 1 ? std::optional(axis.strides[0]) : std::nullopt;
}

struct MatmulOperand {
  const Node* owner = nullptr;
  Extent offset = 0, row = 0, column = 0;
  View batch;
};

std::optional<MatmulOperand> matmul_operand(const Node* node, const PlaceOf& place) {
  const auto s = strided(node, place);
  if (!s) return std::nullopt;
  const auto row = stride_of(s->axes[1]), column = stride_of(s->axes[2]);
  if (!row || !column) return std::nullopt;
  MatmulOperand operand{s->owner, s->offset, *row, *column, s->axes[0]};
  const Extent rows = node->shape[1], columns = node->shape[2];
  // One of the two strides must be 1; an axis of extent 1 may have any.
  if (columns == 1 && operand.row != 1)
    operand.column = 1;
  else if (rows == 1 && operand.column != 1)
    operand.row = 1;
  if (rows == 1 && operand.column == 1) operand.row = std::max(operand.row, columns);
  if (columns == 1 && operand.row == 1) operand.column = std::max(operand.column, rows);
  if (operand.row != 1 && operand.column != 1) return std::nullopt;
  if (operand.row == 0 || operand.column == 0) return std::nullopt;  // rows that repeat
  return operand;
}

struct AttentionOperand {
  const Node* owner = nullptr;
  Extent offset = 0, batch = 0, row = 0, head = 0;  // [batch, position, head, channel]
};

std::optional<AttentionOperand> attention_operand(const Node* node, const PlaceOf& place) {
  const auto s = strided(node, place);
  if (!s) return std::nullopt;
  const auto batch = stride_of(s->axes[0]), row = stride_of(s->axes[1]), head = stride_of(s->axes[2]),
             channel = stride_of(s->axes[3]);
  if (!batch || !row || !head || !channel || (node->shape[3] > 1 && *channel != 1)) return std::nullopt;
  return AttentionOperand{s->owner, s->offset, *batch, *row, *head};
}

// Contiguous operands (scatter): owner and offset.
std::optional<std::pair<const Node*, Extent>> contiguous_operand(const Node* node, const PlaceOf& place) {
  const auto s = strided(node, place);
  if (!s) return std::nullopt;
  Extent expected = 1;
  for (int d = node->shape.rank() - 1; d >= 0; --d) {
    const auto stride = stride_of(s->axes[static_cast<std::size_t>(d)]);
    if (!stride || (node->shape[d] > 1 && *stride != expected)) return std::nullopt;
    expected *= node->shape[d];
  }
  return std::pair(s->owner, s->offset);
}

// Rows that a product with packed weights takes part in: a vector with any stride.
struct ChosenOperand {
  const Node* owner = nullptr;
  Extent offset = 0, stride = 0;
};

std::optional<ChosenOperand> chosen_operand(const Node* node, const PlaceOf& place) {
  const auto s = strided(node, place);
  if (!s) return std::nullopt;
  const auto stride = stride_of(s->axes[0]);
  if (!stride) return std::nullopt;
  return ChosenOperand{s->owner, s->offset, *stride};
}

Place contiguous_place(const Node* node) { return {node, 0, contiguous_strides(node->shape)}; }

// ---- The pipeline ------------------------------------------------------------------------------------------------------

constexpr Extent kPackedBlock = 32;                 // columns that packed weights have in a block
constexpr std::size_t kWorthReplacing = 256 << 10;  // bytes of a product that takes over what its epilogue reads
constexpr std::size_t kRoomyBytes = std::size_t{1}
                                    << 30;  // values below this in all are given more room than they need

class Compiler {
 public:
  Compiler(const Request& request, const Target& target, const Settings& settings)
      : request_(request), target_(target), settings_(settings) {}

  Compiled run() {
    graph_ = rewrite(ordered(request_.outputs), settings_.disabled_rewrites);
    split_composites();
    check_dtypes();
    insert_copies();
    collect();
    place_parts();
    while (!build_kernels()) {
    }
    if (settings_.fusion) compute_rows_in_products();
    schedule();
    return assemble();
  }

 private:
  struct Item {  // a kernel to be, with owners in the order of its operands
    kernel::Kernel kernel;
    std::vector<const Node*> reads, writes;
    int rank = 0;
  };

  // Tuples that the target has no kernel for become primitives.
  void split_composites() {
    graph_ = rebuild(graph_, [&](const Node&, const NodeRef& node) -> NodeRef {
      if (node->kind == Kind::packed_matmul && !target_.packed_products)
        throw DeviceError(fmt::format("{}: {} has no products with packed weights; load them as f32, or use the CPU",
                                      title(*node), target_.name));
      if (node->kind == Kind::routine) return settings_.fused_composites && has_routine(*node) ? node : parts_of(node);
      if (node->kind != Kind::project) return node;
      const Node& tuple = *node->inputs[0];
      const Shape& q = tuple.inputs[0]->shape;
      const Extent keys = tuple.inputs[1]->shape[1];
      const auto score_bytes = static_cast<std::size_t>(q[0] * q[2] * q[1] * keys) * sizeof(float);
      const bool faster = target_.attention_keys_fused == 0 || keys <= target_.attention_keys_fused ||
                          score_bytes > target_.attention_score_bytes_max;
      const bool fused = settings_.fused_composites && target_.has_attention && faster &&
                         graph::attention_mask_of(tuple).window == 0 && tuple.type == DType::f32 && q.numel() > 0 &&
                         tuple.inputs[1]->shape.numel() > 0 && q[3] <= target_.attention_width_max;
      return fused ? node : graph::decompose(tuple)[static_cast<std::size_t>(node->ints[0])];
    });
    // The primitives deserve the rules too.
    graph_ = rewrite(graph_, settings_.disabled_rewrites);
  }

  bool has_routine(const Node& node) const {
    return target_.has_routine && target_.has_routine(graph::routine_of(node));
  }
  NodeRef parts_of(const NodeRef& node) const {
    if (NodeRef parts = graph::decompose_routine(*node)) return parts;
    if (has_routine(*node)) return node;
    throw DeviceError(fmt::format("{}: {} has no kernel for it, and it has no form in other ops; use the CPU",
                                  title(*node), target_.name));
  }

  void check_dtypes() {
    for (const Node* node : graph::topological_order(graph_.outputs, [](const Node& n) { return is_leaf(n); }))
      if (std::find(target_.dtypes.begin(), target_.dtypes.end(), node->type) == target_.dtypes.end())
        throw DTypeError(fmt::format("{}: {} does not compute {}; cast to f32, or use the CPU", title(*node),
                                     target_.name, name_of(node->type)));
  }

  // Copies where a kernel needs a value in memory of its own: results that are views or leaves, parts of a concat, operands
  // that no strides describe, and whatever stands in the way of a kernel's views.
  void insert_copies() {
    for (NodeRef& output : graph_.outputs) {
      if (is_compute(*output)) continue;
      const NodeRef copy = copy_of(output);
      graph_.rank.try_emplace(copy.get(), rank(output.get()));
      output = copy;
    }
    const PlaceOf place = contiguous_place;
    graph_ = rebuild(graph_, [&](const Node&, const NodeRef& node) -> NodeRef {
      auto with_copies = [&](auto needs_copy) {
        std::vector<NodeRef> inputs = node->inputs;
        for (std::size_t i = 0; i < inputs.size(); ++i)
          if (needs_copy(i, *inputs[i])) inputs[i] = readable(copy_of(inputs[i]));
        return with_inputs(*node, std::move(inputs));
      };
      switch (node->kind) {
        case Kind::map:
        case Kind::reduce:
        case Kind::gather: return readable(node);
        case Kind::concat: return with_copies([](std::size_t, const Node& part) { return !is_copy(part); });
        case Kind::packed_matmul:
          return with_copies([&](std::size_t i, const Node& x) {
            if (x.shape.numel() == 0) return false;
            if (i == 1) return !contiguous_operand(&x, place);
            if (i == 2) return !chosen_operand(&x, place);
            const auto operand = matmul_operand(&x, place);
            return !operand || operand->column != 1;
          });
        case Kind::matmul:
          return with_copies(
              [&](std::size_t, const Node& x) { return x.shape.numel() > 0 && !matmul_operand(&x, place); });
        case Kind::attention:
        case Kind::attention_backward:
          return with_copies([&](std::size_t i, const Node& x) {
            return i == 4 ? !contiguous_operand(&x, place) : !attention_operand(&x, place);
          });
        case Kind::routine:
        case Kind::scatter_add:
          return with_copies(
              [&](std::size_t, const Node& x) { return x.shape.numel() > 0 && !contiguous_operand(&x, place); });
        default: return node;
      }
    });
  }
  static bool is_copy(const Node& node) { return node.kind == Kind::map && node.name == "copy"; }
  static bool is_viewed(const Node& node) { return graph::is_view(node.kind) && !is_leaf(node); }

  // True if the node alone has a form as a kernel, with what it reads in memory; else `blame` is what stands in the way.
  static bool has_kernel(const Node& node, const Node** blame) {
    const NodeSet members{&node};
    return node.shape.numel() == 0 ||
           build_loop({&node, {&node}}, {&node}, {&members, nullptr, nullptr, contiguous_place}, blame);
  }
  static bool has_kernel(const Node& node) {
    const Node* blame = nullptr;
    return has_kernel(node, &blame);
  }

  // The loop node with copies below it where views between it and memory have no form together. Each step puts more of
  // what it reads into memory; with everything there, contiguous, every loop has a kernel.
  static NodeRef readable(NodeRef node) {
    const Node* blame = nullptr;
    while (!has_kernel(*node, &blame)) {
      auto replaced = [&](std::size_t i, NodeRef with) {
        std::vector<NodeRef> inputs = node->inputs;
        inputs[i] = std::move(with);
        return with_inputs(*node, std::move(inputs));
      };
      NodeRef next = node;
      // A gather reads its rows at computed places: through strides, from memory, or not at all.
      if (node->kind == Kind::gather && blame == node->inputs[0].get())
        next = replaced(0, readable(copy_of(node->inputs[0])));
      // An operand that has no form even by itself.
      for (std::size_t i = 0; next == node && i < node->inputs.size(); ++i)
        if (!has_kernel(*copy_of(node->inputs[i]))) next = replaced(i, shortened(node->inputs[i]));
      // Operands whose forms exclude each other.
      for (std::size_t i = 0; next == node && i < node->inputs.size(); ++i)
        if (is_viewed(*node->inputs[i])) next = replaced(i, readable(copy_of(node->inputs[i])));
      if (next == node)
        throw InternalError(
            fmt::format("compile: no kernel for {} (blocked by {})", title(*node), blame ? title(*blame) : "nothing"));
      node = std::move(next);
    }
    return node;
  }

  // A chain of views that has no form, with a copy below as many of its last views as must be.
  static NodeRef shortened(const NodeRef& view) {
    std::vector<NodeRef> above{view};
    NodeRef below = view->inputs[0];
    while (is_viewed(*below) && !has_kernel(*copy_of(below))) {
      above.push_back(below);
      below = below->inputs[0];
    }
    if (is_compute(*below) || is_leaf(*below))
      throw InternalError(fmt::format("compile: {} of {} has no form", title(*above.back()), title(*below)));
    NodeRef result = copy_of(below);
    for (; !above.empty(); above.pop_back()) result = with_inputs(*above.back(), {result});
    return result;
  }

  void collect() {
    for (const Node* node : graph::topological_order(graph_.outputs, [](const Node& n) { return is_leaf(n); })) {
      if (is_compute(*node)) compute_.push_back(node);
    }
    // Topological by (rank, id): a stable order that follows the order in which the user wrote things.
    std::unordered_map<const Node*, int> waiting;
    std::unordered_map<const Node*, std::vector<const Node*>> readers = consumers_of(compute_);
    auto later = [&](const Node* a, const Node* b) {
      const int ra = rank(a), rb = rank(b);
      return ra != rb ? ra > rb : a->id > b->id;
    };
    std::vector<const Node*> ready, sorted;
    for (const Node* node : compute_) {
      int count = 0;
      for (const Node* source : sources_of(*node)) count += is_compute(*source);
      waiting[node] = count;
      if (count == 0) ready.push_back(node);
    }
    std::make_heap(ready.begin(), ready.end(), later);
    while (!ready.empty()) {
      std::pop_heap(ready.begin(), ready.end(), later);
      const Node* node = ready.back();
      ready.pop_back();
      sorted.push_back(node);
      for (const Node* reader : readers[node])
        if (--waiting[reader] == 0) {
          ready.push_back(reader);
          std::push_heap(ready.begin(), ready.end(), later);
        }
    }
    compute_ = std::move(sorted);
    for (const NodeRef& output : graph_.outputs) stored_.insert(output.get());
  }
  int rank(const Node* node) const {
    auto it = graph_.rank.find(node);
    return it == graph_.rank.end() ? 0 : it->second;
  }

  // Parts of a concat are written where they belong in it.
  void place_parts() {
    const auto consumers = consumers_of(compute_);
    for (const Node* node : compute_) {
      if (node->kind != Kind::concat) continue;
      const int axis = static_cast<int>(node->ints[0]);
      const auto strides = contiguous_strides(node->shape);
      Extent start = 0;
      for (const NodeRef& part : node->inputs) {
        const Place place{node, start * strides[static_cast<std::size_t>(axis)], strides};
        start += part->shape[axis];
        auto it = consumers.find(part.get());
        const bool once = std::count(node->inputs.begin(), node->inputs.end(), part) == 1;
        const bool sole =
            once && !stored_.contains(part.get()) && it != consumers.end() && it->second.size() == 1 && is_copy(*part);
        if (!sole) {
          extra_parts_.emplace_back(part.get(), place);
          continue;
        }
        place_[part.get()] = place;
        place_whole_result(part.get(), place, consumers);
      }
    }
  }

  // A part that is only another kernel's result in another order (an attention's, a scatter's) is written by that kernel
  // itself.
  void place_whole_result(const Node* copy, const Place& place,
                          const std::unordered_map<const Node*, std::vector<const Node*>>& consumers) {
    const Node* source = base_of(copy->inputs[0].get());
    const bool attention = source->kind == Kind::project && source->shape.rank() == 4;
    if (!(attention || source->kind == Kind::scatter_add) || is_leaf(*source) || stored_.contains(source) ||
        source->shape.numel() != copy->shape.numel())
      return;
    auto it = consumers.find(source);
    if (it == consumers.end() || it->second.size() != 1) return;
    const auto strides = strides_through(copy, source, place);
    if (!strides ||
        (attention ? source->shape[3] > 1 && (*strides)[3] != 1 : *strides != contiguous_strides(source->shape)))
      return;
    place_[source] = {place.owner, place.offset, *strides};
    written_elsewhere_.insert(copy);
  }

  // Strides with which `source`'s elements lie where `copy`, a reordering of it, has its place.
  static std::optional<std::vector<Extent>> strides_through(const Node* copy, const Node* source, const Place& place) {
    std::vector<Extent> extents = copy->shape.vector(), to = place.strides;  // split axes of the copy and their strides
    for (int attempt = 0; attempt < 16; ++attempt) {
      try {
        Access access{
            split_linear(frame_linear(extents, 0, static_cast<int>(extents.size())), copy->shape, extents, copy), {}};
        for (const Node* view = copy->inputs[0].get(); view != source; view = view->inputs[0].get())
          access = through_view(*view, access, extents);
        if (!access.masks.empty()) return std::nullopt;
        std::vector<Extent> strides;
        for (const Affine& dim : access.dims) {
          // The copy's axes that make up this axis of the source must lie in a row in both.
          if (dim.base != 0) return std::nullopt;
          std::vector<std::size_t> parts;
          for (std::size_t f = 0; f < extents.size(); ++f)
            if (dim.coefficients[f] != 0 && extents[f] > 1) parts.push_back(f);
          std::sort(parts.begin(), parts.end(),
                    [&](std::size_t a, std::size_t b) { return dim.coefficients[a] < dim.coefficients[b]; });
          Extent expected = 1, stride = parts.empty() ? 1 : to[parts[0]];
          Extent destination = stride;
          for (std::size_t f : parts) {
            if (dim.coefficients[f] != expected || to[f] != destination) return std::nullopt;
            expected *= extents[f];
            destination *= extents[f];
          }
          strides.push_back(stride);
        }
        return strides;
      } catch (SplitFrame& split) {
        const auto f = static_cast<std::size_t>(split.axis);
        if (extents[f] == split.inner) return std::nullopt;
        extents[f] /= split.inner;
        extents.insert(extents.begin() + split.axis + 1, split.inner);
        to.insert(to.begin() + split.axis + 1, to[f]);
        to[f] *= split.inner;
      } catch (MustMaterialize&) {
        return std::nullopt;
      }
    }
    return std::nullopt;
  }

  Place place_of(const Node* node) const {
    auto it = place_.find(node);
    return it == place_.end() ? contiguous_place(node) : it->second;
  }

  // ---- Kernels

  // False when it has to be tried again with more values kept apart.
  bool build_kernels() {
    const PlaceOf place = [this](const Node* n) { return place_of(n); };
    FuseRequest fuse_request{
        compute_,        written_elsewhere_, stored_, place, apart_, target_.operands_max, target_.launch_points,
        settings_.fusion};
    const FuseResult fused = fuse(fuse_request);
    // Values that some kernel loads must be stored by the kernel that makes them, until nothing changes.
    NodeSet demanded = stored_;
    auto demand = [&](const Node* node) { demanded.insert(node); };
    for (const Cluster& cluster : fused.clusters) {
      const Kind kind = cluster.anchor->kind;
      if ((kind == Kind::map || kind == Kind::reduce || kind == Kind::gather) &&
          !written_elsewhere_.contains(cluster.anchor))
        continue;
      for (const Node* source : sources_of(*cluster.anchor)) demand(source);
      if (kind == Kind::attention || kind == Kind::attention_backward || kind == Kind::concat || kind == Kind::project)
        demand(cluster.anchor);
    }
    std::vector<std::optional<BuiltLoop>> loops(fused.clusters.size());
    std::vector<NodeSet> stored_by(fused.clusters.size());
    std::vector<bool> dirty(fused.clusters.size(), true);
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t c = 0; c < fused.clusters.size(); ++c) {
        const Cluster& cluster = fused.clusters[c];
        const Kind kind = cluster.anchor->kind;
        if (kind != Kind::map && kind != Kind::reduce && kind != Kind::gather && !graph::is_product(kind)) continue;
        if (written_elsewhere_.contains(cluster.anchor)) continue;
        std::vector<const Node*> roots;
        for (const Node* node : cluster.members)
          if (demanded.contains(node) && !fused.inlined.contains(node)) roots.push_back(node);
        NodeSet root_set(roots.begin(), roots.end());
        if (!dirty[c] && root_set == stored_by[c]) continue;
        dirty[c] = false;
        stored_by[c] = root_set;
        if (roots.empty() || all_empty(roots)) {
          loops[c].reset();
          continue;
        }
        const NodeSet members(cluster.members.begin(), cluster.members.end());
        EmitContext context{&members, &fused.inlined, graph::is_product(kind) ? cluster.anchor : nullptr, place};
        const Node* blame = nullptr;
        loops[c] = build_loop(cluster, roots, context, &blame);
        if (!loops[c]) {
          // What fusion foresaw to be stored was not quite what is, and the kernel has no form that way: its values part.
          if (cluster.members.size() == 1)
            throw InternalError(fmt::format("compile: no kernel for {} (blocked by {})", title(*roots[0]),
                                            blame ? title(*blame) : "nothing"));
          apart_.insert(cluster.members.begin(), cluster.members.end());
          return false;
        }
        for (const Node* owner : loops[c]->inputs)
          if (!is_leaf(*owner) && demanded.insert(owner).second) changed = true;
        changed = true;
      }
    }
    for (std::size_t c = 0; c < fused.clusters.size(); ++c) {
      const Cluster& cluster = fused.clusters[c];
      switch (cluster.anchor->kind) {
        case Kind::map:
        case Kind::reduce:
        case Kind::gather:
          if (loops[c]) add_loop(std::move(*loops[c]), cluster);
          break;
        case Kind::matmul:
        case Kind::packed_matmul:
          if (loops[c]) add_matmul(std::move(*loops[c]), cluster);
          break;
        case Kind::scatter_add: add_scatter(*cluster.anchor); break;
        case Kind::routine: add_routine(*cluster.anchor); break;
        case Kind::attention:
        case Kind::attention_backward: add_attention(*cluster.anchor); break;
        default: break;  // concat and project are places, not kernels
      }
    }
    // Parts that also live elsewhere are copied into the concat.
    for (const auto& [part, target] : extra_parts_) {
      if (part->shape.numel() == 0) continue;
      const Place to = target;
      const NodeRef copy = copy_of(part->shared_from_this());
      kept_.push_back(copy);
      graph_.rank.try_emplace(copy.get(), rank(part));
      place_[copy.get()] = to;
      const NodeSet members{copy.get()};
      auto built = build_loop({copy.get(), {copy.get()}}, {copy.get()}, {&members, nullptr, nullptr, place});
      if (!built) throw InternalError(fmt::format("compile: no kernel copies {} into a concat", title(*part)));
      add_loop(std::move(*built), {copy.get(), {copy.get()}});
    }
    return true;
  }
  static bool all_empty(const std::vector<const Node*>& roots) {
    return std::all_of(roots.begin(), roots.end(), [](const Node* n) { return n->shape.numel() == 0; });
  }
  // A kernel runs as early as its first value was asked for: a weight's gradient right after the one it is made from,
  // which may then go.
  int rank_of(const Cluster& cluster) const {
    int r = rank(cluster.members[0]);
    for (const Node* node : cluster.members) r = std::min(r, rank(node));
    return r;
  }

  void add_loop(BuiltLoop loop, const Cluster& cluster) {
    items_.push_back({std::move(loop.kernel), std::move(loop.inputs), std::move(loop.outputs), rank_of(cluster)});
  }

  void add_matmul(BuiltLoop loop, const Cluster& cluster) {
    const Node& product = *cluster.anchor;
    const PlaceOf place = [this](const Node* n) { return place_of(n); };
    kernel::MatmulKernel k;
    k.name = loop.kernel.name;
    k.batch = product.shape[0];
    k.m = product.shape[1];
    k.n = product.shape[2];
    k.k = product.inputs[0]->shape[2];
    Item item;
    const Node* owners[2] = {nullptr, nullptr};
    MatmulOperand operands[2];
    for (std::size_t i = 0; i < 2; ++i) {
      if (k.k == 0) continue;  // a sum of nothing reads nothing
      if (i == 1 && product.kind == Kind::packed_matmul) {
        const auto at = contiguous_operand(product.inputs[1].get(), place);
        if (!at) throw InternalError(fmt::format("compile: packed weights of {} are not contiguous", title(product)));
        operands[1] = {at->first, at->second, 0, 0, {}};
        owners[1] = at->first;
        continue;
      }
      auto operand = matmul_operand(product.inputs[i].get(), place);
      if (!operand)
        throw InternalError(fmt::format("compile: {} is no operand of a product", title(*product.inputs[i])));
      operands[i] = *operand;
      owners[i] = operand->owner;
    }
    if (k.k == 0) {  // zeros, then the epilogue: a loop
      for (kernel::Step& step : loop.kernel.steps)
        if (step.kind == kernel::StepKind::accumulator) step = {.kind = kernel::StepKind::constant, .type = step.type};
      return add_loop(std::move(loop), cluster);
    }
    k.a = {.type = product.type, .offset = operands[0].offset};
    k.b = {.type = product.inputs[1]->type, .offset = operands[1].offset};
    if (product.kind == Kind::packed_matmul) {
      k.packed = true;
      k.block_type = static_cast<BlockType>(product.ints[0]);
      k.exact = product.ints[3] != 0;
    }
    k.a_row = operands[0].row;
    k.a_col = operands[0].column;
    k.b_row = operands[1].row;
    k.b_col = operands[1].column;
    k.a_batch = operands[0].batch;
    k.b_batch = operands[1].batch;
    k.epilogue = std::move(loop.kernel);
    item.reads = {owners[0], owners[1]};
    item.reads.insert(item.reads.end(), loop.inputs.begin(), loop.inputs.end());
    if (product.kind == Kind::packed_matmul && product.inputs.size() > 2) {
      const auto chosen = chosen_operand(product.inputs[2].get(), place);
      if (!chosen)
        throw InternalError(fmt::format("compile: the rows of {} are not chosen by strides", title(product)));
      k.chosen = Operand{.type = DType::f32, .offset = chosen->offset};
      k.chosen_stride = chosen->stride;
      item.reads.push_back(chosen->owner);
    }
    item.writes = std::move(loop.outputs);
    item.kernel = std::move(k);
    item.rank = rank_of(cluster);
    items_.push_back(std::move(item));
  }

  void add_scatter(const Node& node) {
    if (node.shape.numel() == 0) return;
    const PlaceOf place = [this](const Node* n) { return place_of(n); };
    kernel::ScatterAddKernel k;
    k.name = "scatter_add";
    k.count = node.inputs[0]->shape[0];
    k.rows = node.shape[0];
    k.columns = node.shape[1];
    Item item;
    Operand* operands[] = {&k.indices, &k.updates};
    for (std::size_t i = 0; i < 2; ++i) {
      operands[i]->type = node.inputs[i]->type;
      if (k.count == 0) {  // nothing to read: the output stands in
        item.reads.push_back(&node);
        continue;
      }
      const auto at = contiguous_operand(node.inputs[i].get(), place);
      if (!at) throw InternalError("compile: a scatter's operand is not contiguous");
      operands[i]->offset = at->second;
      item.reads.push_back(at->first);
    }
    if (k.count == 0) item.reads.clear();
    const Place out = place_of(&node);
    k.out = {.type = node.type, .offset = out.offset};
    item.kernel = std::move(k);
    item.writes = {out.owner};
    item.rank = rank(&node);
    items_.push_back(std::move(item));
  }

  void add_routine(const Node& node) {
    if (node.shape.numel() == 0) return;
    const PlaceOf place = [this](const Node* n) { return place_of(n); };
    kernel::RoutineKernel k{.name = node.name, .routine = graph::routine_of(node)};
    k.attributes.assign(node.ints.begin() + 1, node.ints.end());
    Item item;
    for (const NodeRef& input : node.inputs) {
      const auto at = contiguous_operand(input.get(), place);
      if (!at) throw InternalError(fmt::format("compile: an operand of {} is not contiguous", title(node)));
      k.reads.push_back({.type = input->type, .offset = at->second});
      k.shapes.push_back(input->shape);
      item.reads.push_back(at->first);
    }
    k.out = {.type = node.type};
    k.shape = node.shape;
    item.kernel = std::move(k);
    item.writes = {&node};
    item.rank = rank(&node);
    items_.push_back(std::move(item));
  }

  void add_attention(const Node& node) {
    const PlaceOf place = [this](const Node* n) { return place_of(n); };
    kernel::AttentionKernel k;
    const bool backward = node.kind == Kind::attention_backward;
    const Shape &q = node.inputs[0]->shape, &keys = node.inputs[1]->shape;
    k.name = backward ? "attention_backward" : "attention";
    k.batch = q[0];
    k.queries = q[1];
    k.heads = q[2];
    k.width = q[3];
    k.keys = keys[1];
    k.scale = node.value;
    k.causal = graph::attention_mask_of(node).causal;
    k.backward = backward;
    Item item;
    auto read = [&](kernel::AttentionKernel::Tensor& tensor, std::size_t i) {
      const auto operand = attention_operand(node.inputs[i].get(), place);
      if (!operand) throw InternalError("compile: an attention's operand has no strides");
      tensor = {{.type = node.type, .offset = operand->offset}, operand->batch, operand->head, operand->row};
      item.reads.push_back(operand->owner);
    };
    auto write = [&](kernel::AttentionKernel::Tensor& tensor, int index) {
      const NodeRef result = graph::project(node.shared_from_this(), index);
      kept_.push_back(result);
      graph_.rank.try_emplace(result.get(), rank(&node));
      const Place at = place_of(result.get());
      tensor = {{.type = node.type, .offset = at.offset}, at.strides[0], at.strides[2], at.strides[1]};
      item.writes.push_back(at.owner);
    };
    read(k.q, 0);
    read(k.k, 1);
    read(k.v, 2);
    if (backward) {
      read(k.o, 3);
      const auto at = contiguous_operand(node.inputs[4].get(), place);
      if (!at) throw InternalError("compile: an attention's logsumexp is not contiguous");
      k.logsumexp = {.type = node.type, .offset = at->second};
      item.reads.push_back(at->first);
      read(k.d_o, 5);
      write(k.d_q, 0);
      write(k.d_k, 1);
      write(k.d_v, 2);
    } else {
      write(k.o, 0);
      const NodeRef result = graph::project(node.shared_from_this(), 1);
      kept_.push_back(result);
      k.logsumexp = {.type = node.type};
      item.writes.push_back(result.get());
    }
    item.kernel = std::move(k);
    item.rank = rank(&node);
    items_.push_back(std::move(item));
  }

  // A norm of few rows that only products with packed weights read is computed by each of them, as it reads: less work than
  // to wait for a kernel between.
  void compute_rows_in_products() {
    std::unordered_map<const Node*, std::vector<std::size_t>> readers, writers;
    for (std::size_t i = 0; i < items_.size(); ++i) {
      for (const Node* owner : items_[i].reads) readers[owner].push_back(i);
      for (const Node* owner : items_[i].writes) writers[owner].push_back(i);
    }
    std::vector<bool> is_gone(items_.size(), false);
    for (std::size_t i = 0; i < items_.size(); ++i) {
      const auto* loop = std::get_if<kernel::LoopKernel>(&items_[i].kernel);
      if (!loop || loop->outer > target_.computed_rows_max || loop->inner % kPackedBlock != 0 ||
          items_[i].writes.size() != 1)
        continue;
      const Node* rows = items_[i].writes[0];
      const kernel::View lie{{loop->outer * loop->inner}, {1}, 0, {}};
      if (stored_.contains(rows) || place_.contains(rows) || writers[rows].size() != 1 || readers[rows].empty() ||
          !row_factors(*loop) || !(loop->stores[0].view == lie))
        continue;
      const bool all = std::all_of(readers[rows].begin(), readers[rows].end(), [&](std::size_t reader) {
        const auto* product = std::get_if<kernel::MatmulKernel>(&items_[reader].kernel);
        const std::vector<const Node*>& reads = items_[reader].reads;
        constexpr std::size_t kOfPackedWeights = 3;  // operands that packed weights may take beyond the first
        return product && product->packed && product->m == loop->outer && product->k == loop->inner &&
               product->a.offset == 0 && product->a_row == product->k && product->a_batch.offset == 0 &&
               reads[0] == rows && std::count(reads.begin(), reads.end(), rows) == 1 &&
               reads.size() + loop->inputs.size() + items_[reader].writes.size() + kOfPackedWeights <=
                   static_cast<std::size_t>(target_.operands_max);
      });
      if (!all) continue;
      for (const std::size_t reader : readers[rows]) {
        Item& item = items_[reader];
        std::get<kernel::MatmulKernel>(item.kernel).rows = *loop;
        item.reads.erase(item.reads.begin());
        item.reads.insert(item.reads.end(), items_[i].reads.begin(), items_[i].reads.end());
      }
      is_gone[i] = true;
    }
    std::vector<Item> left;
    for (std::size_t i = 0; i < items_.size(); ++i)
      if (!is_gone[i]) left.push_back(std::move(items_[i]));
    items_ = std::move(left);
  }

  // Operands of a kernel in the order of Item::reads, then Item::writes.
  static std::vector<Operand*> operands_of(kernel::Kernel& kernel) {
    std::vector<Operand*> list;
    if (auto* loop = std::get_if<kernel::LoopKernel>(&kernel)) {
      for (Operand& o : loop->inputs) list.push_back(&o);
      for (Operand& o : loop->outputs) list.push_back(&o);
    } else if (auto* product = std::get_if<kernel::MatmulKernel>(&kernel)) {
      if (!product->rows) list.push_back(&product->a);
      list.push_back(&product->b);
      for (Operand& o : product->epilogue.inputs) list.push_back(&o);
      if (product->chosen) list.push_back(&*product->chosen);
      if (product->rows)
        for (Operand& o : product->rows->inputs) list.push_back(&o);
      for (Operand& o : product->epilogue.outputs) list.push_back(&o);
    } else if (auto* scatter = std::get_if<kernel::ScatterAddKernel>(&kernel)) {
      if (scatter->count) list = {&scatter->indices, &scatter->updates};
      list.push_back(&scatter->out);
    } else if (auto* routine = std::get_if<kernel::RoutineKernel>(&kernel)) {
      for (Operand& o : routine->reads) list.push_back(&o);
      list.push_back(&routine->out);
    } else {
      auto& attention = std::get<kernel::AttentionKernel>(kernel);
      list = {&attention.q.operand, &attention.k.operand, &attention.v.operand};
      if (attention.backward)
        for (Operand* o : {&attention.o.operand, &attention.logsumexp, &attention.d_o.operand, &attention.d_q.operand,
                           &attention.d_k.operand, &attention.d_v.operand})
          list.push_back(o);
      else
        for (Operand* o : {&attention.o.operand, &attention.logsumexp}) list.push_back(o);
    }
    return list;
  }

  // ---- Order and updates in place

  void schedule() {
    // Edges: a kernel runs after those that write what it reads.
    const std::size_t n = items_.size();
    std::unordered_map<const Node*, std::vector<std::size_t>> writers, readers;
    for (std::size_t i = 0; i < n; ++i) {
      for (const Node* owner : items_[i].writes) writers[owner].push_back(i);
      for (const Node* owner : items_[i].reads) readers[owner].push_back(i);
    }
    after_.assign(n, {});
    for (std::size_t i = 0; i < n; ++i)
      for (const Node* owner : items_[i].reads)
        if (auto it = writers.find(owner); it != writers.end())
          for (std::size_t w : it->second)
            if (w != i) after_[i].push_back(w);
    // An update in place runs after all other readers of the old value, if none of them needs the new one first.
    for (std::size_t o = 0; o < graph_.outputs.size(); ++o) {
      const Node* leaf = o < request_.may_overwrite.size() ? request_.may_overwrite[o] : nullptr;
      const Node* output = graph_.outputs[o].get();
      if (!leaf || place_.contains(output) || in_place_.contains(output)) continue;
      auto it = writers.find(output);
      if (it == writers.end() || it->second.size() != 1) continue;
      const std::size_t writer = it->second[0];
      if (!aligned(items_[writer], leaf, output)) continue;
      bool taken = std::find_if(graph_.outputs.begin(), graph_.outputs.end(),
                                [&](const NodeRef& r) { return r.get() == leaf; }) != graph_.outputs.end();
      for (const auto& [other, other_leaf] : in_place_) taken |= other_leaf == leaf;
      if (taken) continue;
      bool possible = true;
      for (std::size_t reader : readers[leaf]) possible = possible && (reader == writer || !reaches(writer, reader));
      if (!possible) continue;
      for (std::size_t reader : readers[leaf])
        if (reader != writer) after_[writer].push_back(reader);
      in_place_[output] = leaf;
    }
    // Kahn's algorithm, early ranks first.
    std::vector<int> waiting(n, 0);
    std::vector<std::vector<std::size_t>> next(n);
    for (std::size_t i = 0; i < n; ++i) {
      std::sort(after_[i].begin(), after_[i].end());
      after_[i].erase(std::unique(after_[i].begin(), after_[i].end()), after_[i].end());
      waiting[i] = static_cast<int>(after_[i].size());
      for (std::size_t before : after_[i]) next[before].push_back(i);
    }
    auto later = [&](std::size_t a, std::size_t b) {
      return items_[a].rank != items_[b].rank ? items_[a].rank > items_[b].rank : a > b;
    };
    std::vector<std::size_t> ready;
    for (std::size_t i = 0; i < n; ++i)
      if (waiting[i] == 0) ready.push_back(i);
    std::make_heap(ready.begin(), ready.end(), later);
    while (!ready.empty()) {
      std::pop_heap(ready.begin(), ready.end(), later);
      const std::size_t i = ready.back();
      ready.pop_back();
      order_.push_back(i);
      for (std::size_t follower : next[i])
        if (--waiting[follower] == 0) {
          ready.push_back(follower);
          std::push_heap(ready.begin(), ready.end(), later);
        }
    }
    if (order_.size() != n) {
      std::string names;
      for (std::size_t i = 0; i < n; ++i)
        if (waiting[i] > 0)
          names += fmt::format(" {}", std::visit([](const auto& kernel) { return kernel.name; }, items_[i].kernel));
      throw InternalError("compile: kernels wait for each other:" + names);
    }
  }
  bool reaches(std::size_t from, std::size_t to) const {
    std::vector<std::size_t> stack{to};
    std::vector<bool> seen(items_.size(), false);
    while (!stack.empty()) {
      const std::size_t i = stack.back();
      stack.pop_back();
      if (i == from) return true;
      for (std::size_t before : after_[i])
        if (!seen[before]) {
          seen[before] = true;
          stack.push_back(before);
        }
    }
    return false;
  }
  // True when the kernel reads the leaf, if at all, just where it writes the output.
  static bool aligned(const Item& item, const Node* leaf, const Node* output) {
    if (const auto* routine = std::get_if<kernel::RoutineKernel>(&item.kernel)) {
      const int taken = ops::row_of(routine->routine).in_place;
      return taken >= 0 && item.writes[0] == output && item.reads[static_cast<std::size_t>(taken)] == leaf &&
             std::count(item.reads.begin(), item.reads.end(), leaf) == 1 &&
             leaf->shape.numel() == output->shape.numel() && leaf->type == output->type;
    }
    const auto* loop = std::get_if<kernel::LoopKernel>(&item.kernel);
    if (!loop || leaf->shape.numel() != output->shape.numel() || leaf->type != output->type) return false;
    int operand = -1;
    for (std::size_t i = 0; i < item.reads.size(); ++i)
      if (item.reads[i] == leaf) operand = static_cast<int>(i);
    int out = -1;
    for (std::size_t i = 0; i < item.writes.size(); ++i)
      if (item.writes[i] == output) out = static_cast<int>(i);
    const kernel::Store* store = nullptr;
    for (const kernel::Store& s : loop->stores)
      if (s.output == out) {
        if (store) return false;
        store = &s;
      }
    if (!store) return false;
    for (const kernel::Step& step : loop->steps) {
      if (step.operand != operand || operand < 0) continue;
      if (step.kind != kernel::StepKind::load || !(step.view == store->view) ||
          step.level != loop->steps[static_cast<std::size_t>(store->value)].level)
        return false;
    }
    return true;
  }

  /// What a large product with packed weights reads in its epilogue just where it writes, and nothing reads afterwards: its
  /// result can lie there. The gate of a gated unit is such a value. Null if there is none.
  const Node* replaced_by(const Item& item, std::size_t at,
                          const std::unordered_map<const Node*, std::size_t>& last) const {
    const auto* product = std::get_if<kernel::MatmulKernel>(&item.kernel);
    if (!product || !product->packed || product->rows || item.writes.size() != 1 ||
        product->epilogue.stores.size() != 1)
      return nullptr;
    const Node* written = item.writes[0];
    const kernel::Store& store = product->epilogue.stores[0];
    if (bytes_of(written) < kWorthReplacing) return nullptr;
    for (std::size_t i = 0; i < product->epilogue.inputs.size(); ++i) {
      const Node* read = item.reads[2 + i];
      if (last.at(read) != at || is_leaf(*read) || read->type != written->type ||
          read->shape.numel() != written->shape.numel() || std::count(item.reads.begin(), item.reads.end(), read) != 1)
        continue;
      const bool where_it_writes =
          std::all_of(product->epilogue.steps.begin(), product->epilogue.steps.end(), [&](const kernel::Step& step) {
            return step.operand != static_cast<int>(i) ||
                   (step.kind == kernel::StepKind::load && step.view == store.view);
          });
      if (where_it_writes) return read;
    }
    return nullptr;
  }

  // ---- Buffers

  std::size_t bytes_of(const Node* node) const {
    return static_cast<std::size_t>(node->shape.numel()) * target_.storage_bytes(node->type);
  }

  Compiled assemble() {
    Compiled result;
    std::unordered_map<const Node*, int> external;
    for (std::size_t i : order_)
      for (const Node* owner : items_[i].reads)
        if (is_leaf(*owner) && external.try_emplace(owner, static_cast<int>(result.leaves.size())).second)
          result.leaves.push_back(owner->shared_from_this());
    for (const NodeRef& output : graph_.outputs)
      if (auto it = in_place_.find(output.get()); it != in_place_.end())
        if (external.try_emplace(it->second, static_cast<int>(result.leaves.size())).second)
          result.leaves.push_back(it->second->shared_from_this());
    int ordinal = static_cast<int>(result.leaves.size());
    for (const NodeRef& output : graph_.outputs) {
      auto it = in_place_.find(output.get());
      const int at =
          it != in_place_.end() ? external.at(it->second) : external.try_emplace(output.get(), ordinal).first->second;
      if (at == ordinal) ++ordinal;
      external[output.get()] = at;
      result.output_external.push_back(at);
    }
    result.external_count = ordinal;
    for (int e = 0; e < ordinal; ++e) result.plan.buffers.push_back({.external = e, .bytes = 0, .label = ""});
    const auto describe = [&](const NodeRef& node) {
      auto& buffer = result.plan.buffers[static_cast<std::size_t>(external.at(node.get()))];
      buffer.bytes = bytes_of(node.get());
      if (buffer.label.empty()) buffer.label = title(*node);
    };
    for (const NodeRef& leaf : result.leaves) describe(leaf);
    for (const NodeRef& output : graph_.outputs) describe(output);
    // Intermediate values: when each is alive, and which must lie apart.
    MemoryRequest memory{{}, {}, target_.offset_alignment, target_.buffer_bytes_max, target_.binding_bytes_max};
    std::unordered_map<const Node*, int> value_of;
    auto value = [&](const Node* owner, int at) -> int {
      if (external.contains(owner)) return -1;
      auto [it, is_new] = value_of.try_emplace(owner, static_cast<int>(memory.values.size()));
      if (is_new) memory.values.push_back({bytes_of(owner), at, at, title(*owner)});
      memory.values[static_cast<std::size_t>(it->second)].last = at;
      return it->second;
    };
    std::unordered_map<const Node*, std::size_t> last_read;
    for (std::size_t k = 0; k < order_.size(); ++k)
      for (const Node* owner : items_[order_[k]].reads) last_read[owner] = k;
    for (std::size_t k = 0; k < order_.size(); ++k) {
      const Item& item = items_[order_[k]];
      std::vector<int> reads, writes;
      for (const Node* owner : item.reads)
        if (const int v = value(owner, static_cast<int>(k)); v >= 0) reads.push_back(v);
      // Where one buffer may be read and written.
      if (!target_.prefers_separate_buffers)
        if (const Node* read = replaced_by(item, k, last_read);
            read && !external.contains(read) && !external.contains(item.writes[0]))
          value_of.emplace(item.writes[0], value_of.at(read));
      for (const Node* owner : item.writes)
        if (const int v = value(owner, static_cast<int>(k)); v >= 0) writes.push_back(v);
      if (target_.prefers_separate_buffers)
        for (int r : reads)
          for (int w : writes)
            if (r != w) memory.apart.emplace_back(r, w);
    }
    // Kernels that run side by side must not write where the other still reads.
    std::size_t all_bytes = 0;
    for (const MemoryValue& v : memory.values) all_bytes += v.bytes;
    if (all_bytes <= kRoomyBytes)
      for (MemoryValue& v : memory.values) v.last += target_.kernels_side_by_side;
    const MemoryPlan planned = plan_memory(memory);
    const int first_scratch = static_cast<int>(result.plan.buffers.size());
    for (std::size_t b = 0; b < planned.buffers.size(); ++b)
      result.plan.buffers.push_back(
          {.external = -1, .bytes = planned.buffers[b], .label = fmt::format("scratch {}", b)});
    for (std::size_t i : order_) {
      Item& item = items_[i];
      std::vector<const Node*> owners = item.reads;
      owners.insert(owners.end(), item.writes.begin(), item.writes.end());
      const std::vector<Operand*> operands = operands_of(item.kernel);
      if (operands.size() != owners.size()) throw InternalError("compile: operands and owners differ in number");
      for (std::size_t o = 0; o < owners.size(); ++o) {
        Operand& operand = *operands[o];
        const Extent within = operand.offset;
        operand.type = owners[o]->type;
        operand.count = owners[o]->shape.numel() - within;
        if (auto it = external.find(owners[o]); it != external.end()) {
          operand.buffer = it->second;
        } else {
          const auto& slot = planned.slots[static_cast<std::size_t>(value_of.at(owners[o]))];
          operand.buffer = first_scratch + slot.buffer;
          operand.offset = static_cast<Extent>(slot.offset / target_.storage_bytes(owners[o]->type)) + within;
        }
      }
      narrow_operands(item.kernel);
      result.plan.kernels.push_back(std::move(item.kernel));
    }
    return result;
  }

  const Request& request_;
  const Target& target_;
  const Settings& settings_;
  OrderedGraph graph_;
  NodeSet stored_, written_elsewhere_, apart_;
  std::vector<const Node*> compute_;
  std::unordered_map<const Node*, Place> place_;
  std::vector<std::pair<const Node*, Place>> extra_parts_;
  std::vector<NodeRef> kept_;  // nodes made while planning
  std::vector<Item> items_;
  std::vector<std::vector<std::size_t>> after_;
  std::unordered_map<const Node*, const Node*> in_place_;
  std::vector<std::size_t> order_;
};

}  // namespace

Compiled compile(const Request& request, const Target& target, const Settings& settings) {
  return Compiler(request, target, settings).run();
}

}  // namespace weft::compiler
