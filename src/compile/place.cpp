#include "compile/place.hpp"

#include <algorithm>

#include "compile/copies.hpp"
#include "compile/sources.hpp"
#include "compile/split_frames.hpp"
#include "compile/strided.hpp"
#include "graph/op.hpp"

namespace weft::compiler {
namespace {

using graph::Kind;
using graph::Node;
using graph::NodeRef;
using Consumers = std::unordered_map<const Node*, std::vector<const Node*>>;

// Strides that put `source`'s elements into the place of `copy`, a reordering of it.
std::optional<std::vector<Extent>> strides_through(const Node* copy, const Node* source, const Place& place) {
  std::vector<Extent> extents = copy->shape.vector(), to = place.strides;  // split axes of the copy and their strides
  auto follow_views = [&]() -> std::optional<std::vector<Extent>> {
    Access access{split_linear(frame_linear(extents, 0, static_cast<int>(extents.size())), copy->shape, extents, copy),
                  {}};
    for (const Node* view = copy->inputs[0].get(); view != source; view = view->inputs[0].get())
      access = through_view(*view, access, extents);
    if (!access.masks.empty()) return std::nullopt;
    std::vector<Extent> strides;
    for (const Affine& dim : access.dims) {
      // The copy's axes that make up this axis of the source must be contiguous in both.
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
  };
  return with_split_frames(extents, follow_views, [&](const SplitFrame& split) {
    repeat_entry(to, split);
    to[static_cast<std::size_t>(split.axis)] *= split.inner;
  });
}

// A part that only reorders another kernel's result (an attention's, a scatter's) is written directly by that
// kernel.
void place_whole_result(Placement& placement, const Node* copy, const Place& place, const Consumers& consumers) {
  const Node* source = base_of(copy->inputs[0].get());
  const bool attention = source->kind == Kind::project && source->shape.rank() == 4 &&
                         graph::has_form(*source->inputs[0], graph::KernelForm::attention);
  if (!(attention || graph::has_form(*source, graph::KernelForm::scatter_add)) || is_leaf(*source) ||
      placement.stored.contains(source) || source->shape.numel() != copy->shape.numel())
    return;
  auto it = consumers.find(source);
  if (it == consumers.end() || it->second.size() != 1) return;
  const auto strides = strides_through(copy, source, place);
  if (!strides ||
      (attention ? source->shape[3] > 1 && (*strides)[3] != 1 : *strides != contiguous_strides(source->shape)))
    return;
  placement.places[source] = {place.owner, place.offset, *strides};
  placement.written_elsewhere.insert(copy);
}

}  // namespace

std::vector<const Node*> in_order(const OrderedGraph& graph) {
  std::vector<const Node*> compute;
  for (const Node* node : graph::topological_order(graph.outputs, [](const Node& n) { return is_leaf(n); }))
    if (is_compute(*node)) compute.push_back(node);
  // Topological by (rank, id): a stable order.
  std::unordered_map<const Node*, int> waiting;
  const Consumers readers = consumers_of(compute);
  auto later = [&](const Node* a, const Node* b) {
    const int ra = rank_of(graph, a), rb = rank_of(graph, b);
    return ra != rb ? ra > rb : a->id > b->id;
  };
  std::vector<const Node*> ready, sorted;
  for (const Node* node : compute) {
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
    const auto found = readers.find(node);
    if (found == readers.end()) continue;
    for (const Node* reader : found->second)
      if (--waiting[reader] == 0) {
        ready.push_back(reader);
        std::push_heap(ready.begin(), ready.end(), later);
      }
  }
  return sorted;
}

Place Placement::of(const Node* node) const {
  auto it = places.find(node);
  return it == places.end() ? contiguous_place(node) : it->second;
}

Placement place_parts(const OrderedGraph& graph, const std::vector<const Node*>& compute) {
  Placement placement;
  for (const NodeRef& output : graph.outputs) placement.stored.insert(output.get());
  const Consumers consumers = consumers_of(compute);
  for (const Node* node : compute) {
    if (node->kind == Kind::project && node->type != node->inputs[0]->type &&
        graph::has_form(*node->inputs[0], graph::KernelForm::attention))
      placement.result_types[{node->inputs[0].get(), static_cast<int>(node->ints[0])}] = node->type;
    if (node->kind != Kind::concat) continue;
    const int axis = static_cast<int>(node->ints[0]);
    const auto strides = contiguous_strides(node->shape);
    Extent start = 0;
    for (const NodeRef& part : node->inputs) {
      const Place place{node, start * strides[static_cast<std::size_t>(axis)], strides};
      start += part->shape[axis];
      auto it = consumers.find(part.get());
      const bool once = std::count(node->inputs.begin(), node->inputs.end(), part) == 1;
      const bool sole = once && !placement.stored.contains(part.get()) && it != consumers.end() &&
                        it->second.size() == 1 && is_copy(*part);
      if (!sole) {
        placement.extra_parts.emplace_back(part.get(), place);
        continue;
      }
      placement.places[part.get()] = place;
      place_whole_result(placement, part.get(), place, consumers);
    }
  }
  return placement;
}

}  // namespace weft::compiler
