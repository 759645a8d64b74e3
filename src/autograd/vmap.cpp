// vmap: the graph of one example, made again with an axis that counts examples in front of every value that depends on one.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "autograd/batching.hpp"
#include "autograd/custom_gradient.hpp"
#include "graph/autocast.hpp"
#include "graph/caller.hpp"
#include "graph/describe.hpp"
#include "graph/node.hpp"
#include "graph/op.hpp"
#include "graph/trace_scope.hpp"
#include "weft/ops.hpp"
#include "weft/transforms.hpp"

namespace weft {
namespace {

using graph::Kind;
using graph::Node;
using graph::NodeRef;

Shape with_examples(Extent examples, const Shape& shape) {
  Shape all{examples};
  for (const Extent extent : shape) all.push_back(extent);
  return all;
}

class Batch {
 public:
  explicit Batch(Extent examples) : examples_(examples) {}

  void set(const NodeRef& one, NodeRef all) { batched_[one.get()] = std::move(all); }

  // The value for all examples.
  NodeRef of(const NodeRef& one) {
    const NodeRef roots[] = {one};
    make(roots);
    return mapped(one);
  }

 private:
  bool is_mapped(const NodeRef& x) const { return batched_.contains(x.get()); }

  NodeRef mapped(const NodeRef& x) const {
    const auto found = batched_.find(x.get());
    return found == batched_.end() ? graph::expand(x, with_examples(examples_, x->shape)) : found->second;
  }

  // What is batched in place of a node. Composites are their parts; a function with a gradient of its own keeps it.
  static const std::vector<NodeRef>& sources(const Node& node) {
    const Node& call = node.kind == Kind::project ? *node.inputs[0] : node;
    if (call.parts.empty() || autograd::is_custom_gradient(call)) return node.inputs;
    return call.parts;
  }

  // Batches everything that the roots need and that depends on an example.
  void make(std::span<const NodeRef> roots) {
    static const std::vector<NodeRef> kNone;
    const auto from = [&](const Node& node) -> const std::vector<NodeRef>& {
      return batched_.contains(&node) ? kNone : sources(node);
    };
    for (const Node* node : graph::topological_order_along(roots, from)) {
      if (batched_.contains(node)) continue;
      const std::vector<NodeRef>& list = sources(*node);
      if (std::none_of(list.begin(), list.end(), [&](const NodeRef& x) { return is_mapped(x); }) &&
          !(node->kind == Kind::project && call_results_.contains(node->inputs[0].get())))
        continue;
      const graph::Within within(node->within);
      const graph::CallerLine line(node->where);
      one(*node);
    }
  }

  void one(const Node& n) {
    if (n.kind == Kind::project) {
      const auto index = static_cast<std::size_t>(n.ints[0]);
      const Node& call = *n.inputs[0];
      const auto found = call_results_.find(&call);
      batched_[&n] = found != call_results_.end() ? found->second.at(index) : mapped(call.parts.at(index));
      return;
    }
    if (n.kind == Kind::call) return call(n);
    batched_[&n] = primitive(n);
  }

  NodeRef primitive(const Node& n) const {
    const auto input = [&](std::size_t i) { return mapped(n.inputs[i]); };
    const Shape shape = with_examples(examples_, n.shape);
    switch (n.kind) {
      case Kind::reshape: return graph::reshape(input(0), shape);
      case Kind::permute: {
        std::vector<Extent> order{0};
        for (const Extent axis : n.ints) order.push_back(axis + 1);
        return graph::permute(input(0), order);
      }
      case Kind::expand: return graph::expand(input(0), shape);
      case Kind::slice: {
        std::vector<Extent> starts{0}, steps{1};
        for (std::size_t i = 0; i < n.ints.size(); i += 2) {
          starts.push_back(n.ints[i]);
          steps.push_back(n.ints[i + 1]);
        }
        return graph::slice(input(0), starts, steps, shape);
      }
      case Kind::pad: {
        std::vector<Extent> pads{0, 0};
        pads.insert(pads.end(), n.ints.begin(), n.ints.end());
        return graph::pad(input(0), pads);
      }
      case Kind::window:
        return graph::window(input(0), static_cast<int>(n.ints[0]) + 1, n.shape.dim(-1), n.ints[1], n.ints[2]);
      case Kind::detach: return graph::detach(input(0));
      case Kind::map: {
        graph::NodeFields fields = n;
        for (NodeRef& x : fields.inputs) x = mapped(x);
        fields.shape = shape;
        return graph::make_node(std::move(fields), n.where);
      }
      case Kind::reduce: {
        std::vector<int> axes;
        for (const Extent axis : n.ints) axes.push_back(static_cast<int>(axis) + 1);
        return graph::reduce(n.reduction, input(0), std::move(axes));
      }
      case Kind::matmul: return product(n);
      case Kind::gather: return gather(n);
      case Kind::concat: {
        std::vector<NodeRef> parts;
        for (const NodeRef& part : n.inputs) parts.push_back(mapped(part));
        return graph::concat(std::move(parts), static_cast<int>(n.ints[0]) + 1);
      }
      default: throw InternalError(fmt::format("vmap: a {} depends on an example", graph::name_of(n.kind)));
    }
  }

  // A matrix that all examples share meets the rows, or the columns, of all of them in one product.
  NodeRef product(const Node& n) const {
    const Extent e = examples_, b = n.shape[0], m = n.shape[1], columns = n.shape[2], k = n.inputs[0]->shape[2];
    if (b == 1 && !is_mapped(n.inputs[1])) {
      const NodeRef rows = graph::reshape(mapped(n.inputs[0]), {1, e * m, k});
      return graph::reshape(graph::matmul(rows, n.inputs[1]), {e, 1, m, columns});
    }
    if (b == 1 && !is_mapped(n.inputs[0])) {
      const NodeRef right = graph::permute(graph::reshape(mapped(n.inputs[1]), {e, k, columns}), {1, 0, 2});
      const NodeRef wide = graph::matmul(n.inputs[0], graph::reshape(right, {1, k, e * columns}));
      return graph::reshape(graph::permute(graph::reshape(wide, {m, e, columns}), {1, 0, 2}), {e, 1, m, columns});
    }
    const NodeRef left = graph::reshape(mapped(n.inputs[0]), {e * b, m, k});
    const NodeRef right = graph::reshape(mapped(n.inputs[1]), {e * b, k, columns});
    return graph::reshape(graph::matmul(left, right), {e, b, m, columns});
  }

  NodeRef gather(const Node& n) const {
    const NodeRef &x = n.inputs[0], indices = mapped(n.inputs[1]);
    const auto axis = static_cast<int>(n.ints[0]);
    if (is_mapped(x) || axis > 0) return graph::gather(mapped(x), indices, axis + 1);
    // From a value that all examples share, along axis 0: the examples are more indices.
    Shape joined = n.shape;
    joined[0] *= examples_;
    NodeRef taken;
    if (indices->kind == Kind::expand && n.shape.rank() == 2 && indices->inputs[0]->shape[0] == examples_ &&
        indices->inputs[0]->shape[1] == n.shape[0] && indices->inputs[0]->shape[2] == 1)
      taken =
          graph::expand(graph::reshape(indices->inputs[0], {joined[0], 1}), joined);  // whole rows, as in an embedding
    else
      taken = graph::reshape(indices, joined);
    return graph::reshape(graph::gather(x, taken, 0), with_examples(examples_, n.shape));
  }

  void call(const Node& n) {
    std::vector<NodeRef> results;
    if (autograd::is_custom_gradient(n)) {
      std::vector<NodeRef> inputs, parts;
      for (const NodeRef& x : n.inputs) inputs.push_back(mapped(x));
      for (const NodeRef& part : n.parts) parts.push_back(of(part));
      results = autograd::batched_custom_gradient(n, std::move(inputs), std::move(parts), examples_);
    } else if (!n.parts.empty()) {  // a composite, or a checkpoint
      for (const NodeRef& part : n.parts) results.push_back(mapped(part));
    } else {
      const graph::Call one(n);
      autograd::BatchedCall all{one, {}, {}, examples_};
      for (const Tensor& x : one.inputs()) {
        all.is_mapped.push_back(x.defined() && is_mapped(x.node()));
        all.inputs.push_back(all.is_mapped.back() ? Tensor(mapped(x.node())) : x);
      }
      std::optional<graph::Tensors> found;
      if (const autograd::BatchRule* rule = autograd::batch_rule(*n.op)) found = (*rule)(all);
      if (!found) {
        const std::vector<NodeRef> parts = graph::decompose(n);
        kept_.insert(kept_.end(), parts.begin(), parts.end());
        for (const NodeRef& part : parts) results.push_back(of(part));
        if (parts.empty()) found = looped(all);
      }
      if (found)
        for (const Tensor& y : *found) results.push_back(y.node());
    }
    if (graph::has_several_results(n))
      call_results_[&n] = std::move(results);
    else
      batched_[&n] = results.at(0);
  }

  // For ops that nothing else expresses: a call for each example.
  graph::Tensors looped(const autograd::BatchedCall& all) const {
    std::vector<graph::Tensors> parts;
    for (Extent e = 0; e < examples_; ++e) {
      graph::Tensors inputs;
      for (std::size_t i = 0; i < all.inputs.size(); ++i)
        inputs.push_back(all.is_mapped[i] ? weft::select(all.inputs[i], 0, e) : all.inputs[i]);
      const auto made = graph::call_nodes(all.call.row(), std::move(inputs), all.call.words(), all.call.where());
      parts.resize(made.size());
      for (std::size_t r = 0; r < made.size(); ++r) parts[r].emplace_back(made[r]);
    }
    graph::Tensors results;
    for (const graph::Tensors& list : parts) results.push_back(weft::stack(list, 0));
    return results;
  }

  const Extent examples_;
  std::vector<NodeRef> kept_;  // nodes that only this batch knows: their addresses are keys below
  std::unordered_map<const Node*, NodeRef> batched_;
  std::unordered_map<const Node*, std::vector<NodeRef>> call_results_;  // of calls with several results
};

// Refuses values of an example that were assigned to Variables; nobody could read them.
void check_assignments(const std::vector<NodeRef>& examples, const std::vector<graph::PendingUpdate>& before) {
  const auto depends = [&](const NodeRef& value) {
    if (value->id < examples[0]->id) return false;
    const NodeRef roots[] = {value};
    for (const Node* node : graph::topological_order_along(roots, [&](const Node& n) { return graph::made_of(n); }))
      for (const NodeRef& example : examples)
        if (node == example.get()) return true;
    return false;
  };
  const auto refuse = [](const std::string& name) {
    throw UsageError(
        fmt::format("vmap: the function assigns a value of one example to the Variable \"{}\"; return it, and assign "
                    "what the batch makes of it",
                    name));
  };
  if (graph::TraceScope* scope = graph::TraceScope::current()) {
    for (const std::size_t i : scope->assigned())
      if (depends(scope->entries()[i].next)) refuse(scope->entries()[i].cell->name);
    return;
  }
  for (const graph::PendingUpdate& update : graph::pending_updates())
    if (depends(update.next)) {
      const auto earlier = std::find_if(before.begin(), before.end(),
                                        [&](const graph::PendingUpdate& each) { return each.cell == update.cell; });
      if (earlier == before.end())
        graph::clear_pending(update.cell);
      else
        graph::set_pending(update.cell, earlier->next);
      refuse(update.cell->name);
    }
}

}  // namespace

std::vector<Tensor> vmap(const TensorFunction& f, std::span<const Tensor> arguments, const VmapOptions& options,
                         Where where) {
  const graph::NoAutocast types_are_known;
  if (!options.in_axes.empty() && options.in_axes.size() != arguments.size())
    throw UsageError(fmt::format("vmap: {} axes are given for {} arguments", options.in_axes.size(), arguments.size()));
  Extent examples = -1;
  Tensor counted;
  std::vector<Tensor> ones, alls;
  std::vector<NodeRef> stand_ins;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const Tensor& x = arguments[i];
    if (!x.defined()) throw UsageError(fmt::format("vmap: argument {} has no value", i));
    const std::optional<int> given = options.in_axes.empty() ? std::optional<int>(0) : options.in_axes[i];
    if (!given) {
      ones.push_back(x);
      continue;
    }
    if (*given < -x.rank() || *given >= x.rank())
      throw ShapeError(
          graph::describe("vmap", fmt::format("argument {} has no axis {}", i, *given), {{"x", x}}, where));
    const int axis = *given < 0 ? *given + x.rank() : *given;
    if (examples >= 0 && x.dim(axis) != examples)
      throw ShapeError(graph::describe("vmap", "the arguments have different numbers of examples",
                                       {{"first", counted}, {"other", x}}, where));
    if (x.dim(axis) == 0) throw ShapeError(graph::describe("vmap", "there are no examples", {{"x", x}}, where));
    examples = x.dim(axis);
    counted = x;
    std::vector<Extent> order{axis};
    Shape shape;
    for (int a = 0; a < x.rank(); ++a)
      if (a != axis) {
        order.push_back(a);
        shape.push_back(x.dim(a));
      }
    stand_ins.push_back(graph::make_node(
        {.kind = Kind::input, .type = x.dtype(), .shape = shape, .device = x.device(), .ints = {-1}}, where));
    ones.emplace_back(stand_ins.back());
    alls.emplace_back(graph::permute(x.node(), order));
  }
  if (examples < 0) throw UsageError("vmap: no argument is mapped; give one an axis that counts examples");

  const std::vector<graph::PendingUpdate> before = graph::pending_updates();
  const std::vector<Tensor> results = f(ones);
  check_assignments(stand_ins, before);
  Batch batch(examples);
  for (std::size_t i = 0; i < stand_ins.size(); ++i) batch.set(stand_ins[i], alls[i].node());
  std::vector<Tensor> batched;
  for (const Tensor& y : results) {
    if (!y.defined()) throw UsageError("vmap: the function gave a tensor without a value");
    const int rank = y.rank() + 1, axis = options.out_axis < 0 ? options.out_axis + rank : options.out_axis;
    if (axis < 0 || axis >= rank)
      throw ShapeError(graph::describe("vmap", fmt::format("a result of the batch has no axis {}", options.out_axis),
                                       {{"one example", y}}, where));
    const NodeRef all = batch.of(y.node());
    std::vector<Extent> order;
    for (int a = 1; a < rank; ++a) order.push_back(a);
    order.insert(order.begin() + axis, 0);
    batched.emplace_back(graph::permute(all, order));
  }
  return batched;
}

}  // namespace weft
