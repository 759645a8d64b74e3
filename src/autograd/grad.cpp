// Reverse accumulation: a gradient is a transform of the graph, made of the same nodes.
#include "weft/grad.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "autograd/reverse.hpp"
#include "graph/autocast.hpp"
#include "graph/caller.hpp"
#include "graph/describe.hpp"
#include "graph/history.hpp"
#include "graph/map_row.hpp"
#include "graph/node.hpp"
#include "graph/op.hpp"
#include "graph/scatter.hpp"
#include "ops/derivative.hpp"
#include "ops/table.hpp"
#include "weft/ops.hpp"

namespace weft {
namespace {

using graph::Kind;
using graph::Node;
using graph::NodeRef;

// Gradient expressions of a map: its row's, or derived from its expression and kept as long as that exists.
std::shared_ptr<const std::vector<scalar::Expression>> gradients_of(const Node& map) {
  if (map.row) return {std::shared_ptr<void>(), &ops::gradients(*map.row)};
  struct Derived {
    std::weak_ptr<const scalar::Expression> of;
    std::shared_ptr<const std::vector<scalar::Expression>> gradients;
  };
  static std::mutex mutex;
  static auto& derived = *new std::unordered_map<const scalar::Expression*, Derived>;
  static std::size_t sweep_at = 256;
  std::lock_guard lock(mutex);
  Derived& entry = derived[map.expression.get()];
  if (entry.of.expired()) {  // new, or of another expression at the same address
    entry.of = map.expression;
    entry.gradients = std::make_shared<const std::vector<scalar::Expression>>(scalar::gradient(*map.expression));
  }
  const auto result = entry.gradients;
  // Removes entries whose expressions are freed whenever the map has doubled.
  if (derived.size() >= sweep_at) {
    std::erase_if(derived, [](const auto& each) { return each.second.of.expired(); });
    sweep_at = std::max<std::size_t>(256, derived.size() * 2);
  }
  return result;
}

// Sums g over the elements that expanding `from` to g's shape repeated.
NodeRef sum_to(const NodeRef& g, const Shape& from) {
  std::vector<int> axes;
  for (int i = 0; i < from.rank(); ++i)
    if (from[i] != g->shape[i]) axes.push_back(i);
  return graph::reshape(graph::reduce(scalar::Reduction::sum, g, axes), from);
}

// Whether the map only casts a float to another float.
bool is_float_cast(const Node& n) {
  return n.kind == Kind::map && n.inputs.size() == 1 && n.expression->code.size() == 2 &&
         n.expression->code[1].op == scalar::Op::cast && is_float(n.type) && is_float(n.inputs[0]->type);
}

// Whether no op made the value: a view of a Variable, say.
bool is_given(const NodeRef& x) {
  const Node* n = x.get();
  while (graph::is_view(n->kind) && n->kind != Kind::detach) n = n->inputs[0].get();
  return n->kind == Kind::data || n->kind == Kind::input || n->kind == Kind::detach;
}

// The gradient through a cast. That of an f16 or bf16 value stays f32 while it is summed, and is rounded once, where the
// value was rounded itself: so products going backward read narrow operands too. That of a parameter, whose narrow copy
// was read, is not rounded at all.
NodeRef cast_gradient(const Node& n, const NodeRef& g) {
  const NodeRef& x = n.inputs[0];
  if (is_narrow(x->type)) return graph::cast(g, compute_type(x->type));
  return graph::cast(is_narrow(n.type) && !is_given(x) ? graph::cast(g, n.type) : g, x->type);
}

class Reverse {
 public:
  /// Gradients of the wanted values. With `ends_there` their inputs get no gradients and do not contribute to others.
  Reverse(const NodeRef& output, const std::unordered_set<const Node*>& wanted, bool ends_there = false)
      : wanted_(wanted), ends_there_(ends_there) {
    const NodeRef roots[] = {output};
    // Only nodes between a wanted value and the output take part; a wanted value may be below another.
    order_ = graph::topological_order_along(roots, sources);
    for (const Node* node : order_) {
      bool needed = wanted_.contains(node);
      for (const NodeRef& source : sources(*node)) needed |= needed_.contains(source.get());
      if (needed && (is_float(node->type))) needed_.insert(node);
    }
  }

  void run(const NodeRef& output, const NodeRef& seed) {
    add(output, seed);
    for (auto it = order_.rbegin(); it != order_.rend(); ++it) {
      const Node* node = *it;
      if (!needed_.contains(node) || (ends_there_ && wanted_.contains(node))) continue;
      const graph::CallerLine line(node->where);
      auto found = gradients_.find(node);
      if (node->kind == Kind::call && !is_parts(*node)) {
        if (found != gradients_.end()) call_gradients_[node].emplace_back(0, found->second);
        call(*node);
        continue;
      }
      if (found != gradients_.end()) propagate(*node, found->second);
    }
  }

  /// A value below the output that was made from a wanted value and has let go of it, or null; and that wanted value.
  std::pair<const Node*, const Node*> lost() const {
    for (const Node* node : order_)
      if (node->inputs.empty() && is_float(node->type))
        if (const auto past = graph::past_of(*node))
          if (const Node* wanted = past->find(wanted_)) return {node, wanted};
    return {};
  }

  NodeRef of(const Node* node) const {
    auto it = gradients_.find(node);
    return it == gradients_.end() ? nullptr : it->second;
  }

 private:
  bool needs(const NodeRef& x) const { return needed_.contains(x.get()); }

  // Whether the node's gradients are those of its parts: it is a composite, and its row gives no gradient.
  static bool is_parts(const Node& node) { return !node.parts.empty() && !node.op->gradient; }

  // The nodes to which a gradient flows on. For a composite call they are its parts. No gradient flows below a detached value,
  // such as a pending assignment, so the walk ends there.
  static const std::vector<NodeRef>& sources(const Node& node) {
    static const std::vector<NodeRef> kNone;
    if (node.kind == Kind::detach) return kNone;
    if (node.kind == Kind::project && is_parts(*node.inputs[0])) return node.inputs[0]->parts;
    return is_parts(node) ? node.parts : node.inputs;
  }

  void add(const NodeRef& x, const NodeRef& g) {
    if (!needs(x)) return;
    NodeRef& slot = gradients_[x.get()];
    slot = slot ? (Tensor(slot) + Tensor(g)).node() : g;
  }

  void propagate(const Node& n, const NodeRef& g) {
    const NodeRef self = n.shared_from_this();
    const graph::Within gradient({n.within.op, true});
    auto input = [&](std::size_t i) -> const NodeRef& { return n.inputs[i]; };
    switch (n.kind) {
      case Kind::constant:
      case Kind::data:
      case Kind::input:
      case Kind::iota:
      case Kind::detach: break;
      case Kind::reshape: add(input(0), graph::reshape(g, input(0)->shape)); break;
      case Kind::permute: {
        std::vector<Extent> inverse(n.ints.size());
        for (std::size_t i = 0; i < n.ints.size(); ++i)
          inverse[static_cast<std::size_t>(n.ints[i])] = static_cast<Extent>(i);
        add(input(0), graph::permute(g, inverse));
        break;
      }
      case Kind::expand: add(input(0), sum_to(g, input(0)->shape)); break;
      case Kind::slice: add(input(0), slice_gradient(n, g)); break;
      case Kind::pad: {
        std::vector<Extent> starts, steps;
        for (std::size_t i = 0; i < n.ints.size(); i += 2) {
          starts.push_back(n.ints[i]);
          steps.push_back(1);
        }
        add(input(0), graph::slice(g, starts, steps, input(0)->shape));
        break;
      }
      case Kind::window: {
        const auto axis = static_cast<int>(n.ints[0]);
        add(input(0), overlap_add(Tensor(g), axis, input(0)->shape[axis], n.ints[1], n.ints[2]).node());
        break;
      }
      case Kind::map: map_gradient(n, self, g); break;
      case Kind::reduce: reduce_gradient(n, self, g); break;
      case Kind::matmul:
        if (needs(input(0))) add(input(0), graph::matmul(g, graph::permute(input(1), {0, 2, 1})));
        if (needs(input(1))) add(input(1), graph::matmul(graph::permute(input(0), {0, 2, 1}), g));
        break;
      case Kind::gather: gather_gradient(n, g); break;
      case Kind::concat: {
        const int axis = static_cast<int>(n.ints[0]);
        Extent start = 0;
        for (const NodeRef& part : n.inputs) {
          std::vector<Extent> starts(static_cast<std::size_t>(n.shape.rank()), 0),
              steps(static_cast<std::size_t>(n.shape.rank()), 1);
          starts[static_cast<std::size_t>(axis)] = start;
          add(part, graph::slice(g, starts, steps, part->shape));
          start += part->shape[axis];
        }
        break;
      }
      case Kind::call: add(n.parts[0], g); break;  // the others are handled by `call`
      case Kind::project: {
        const auto index = static_cast<int>(n.ints[0]);
        if (!is_parts(*input(0)))
          call_gradients_[input(0).get()].emplace_back(index, g);
        else
          add(input(0)->parts[static_cast<std::size_t>(index)], g);
        break;
      }
    }
  }

  void map_gradient(const Node& n, const NodeRef& self, const NodeRef& g) {
    if (is_float_cast(n)) return add(n.inputs[0], cast_gradient(n, g));
    const auto kept = gradients_of(n);
    const std::vector<scalar::Expression>& texts = *kept;
    const bool has_calls = n.row && !n.row->gradient_ops.empty();
    for (std::size_t i = 0; i < n.inputs.size(); ++i) {
      if (!needs(n.inputs[i]) || scalar::is_zero(texts[i])) continue;
      std::vector<NodeRef> operands = n.inputs;
      operands.push_back(self);
      operands.push_back(g);
      if (has_calls)
        for (const scalar::OpCall& call : ops::gradients_of_calls(*n.row)[i].calls)
          operands.push_back(result_of(call, operands));
      const scalar::Expression text =
          compact(has_calls ? ops::gradients_of_calls(*n.row)[i].gradient : texts[i], operands);
      NodeRef part = graph::map(text, std::move(operands), n.name.empty() ? "map.grad" : n.name + ".grad");
      add(n.inputs[i], graph::cast(part, n.inputs[i]->type));
    }
  }

  // The call of an op that a gradient text contains. Its arguments have no narrow types, so that no x + 1 is rounded to f16.
  static NodeRef result_of(const scalar::OpCall& call, std::span<const NodeRef> operands) {
    const ops::ElementwiseRow& row = ops::elementwise_row(call.function);
    std::vector<NodeRef> arguments;
    for (const scalar::Expression& expression : call.arguments) {
      std::vector<NodeRef> of(operands.begin(), operands.end());
      const scalar::Expression text = compact(expression, of);
      for (NodeRef& operand : of) operand = graph::cast(operand, compute_type(operand->type));
      arguments.push_back(graph::map(text, std::move(of), call.function + ".argument"));
    }
    std::vector<DType> types;
    for (std::size_t i = 0; i < row.inputs.size(); ++i) types.push_back(arguments[i]->type);
    const scalar::Expression& typed = ops::typed_forward(row, types);
    for (std::size_t i = types.size(); i < arguments.size(); ++i)
      arguments[i] = graph::cast(arguments[i], ops::attribute_type(row, types));
    return graph::map_row(row, typed, std::move(arguments), Where::current());
  }

  // Drops the operands that a gradient text does not read, so that it does not keep them alive.
  static scalar::Expression compact(scalar::Expression e, std::vector<NodeRef>& operands) {
    std::vector<int> slot_of(operands.size(), -1);
    std::vector<NodeRef> used;
    for (auto& instruction : e.code)
      if (instruction.op == scalar::Op::input) {
        int& slot = slot_of[static_cast<std::size_t>(instruction.slot)];
        if (slot < 0) {
          slot = static_cast<int>(used.size());
          used.push_back(operands[static_cast<std::size_t>(instruction.slot)]);
        }
        instruction.slot = slot;
      }
    if (used.empty()) used.push_back(operands.back());  // a constant: g still gives its shape
    // The result must have the shape of g even if only smaller operands are read.
    operands = std::move(used);
    e.inputs = static_cast<int>(operands.size());
    return e;
  }

  void reduce_gradient(const Node& n, const NodeRef& self, const NodeRef& g) {
    const NodeRef& x = n.inputs[0];
    Shape kept = x->shape;
    for (Extent a : n.ints) kept[static_cast<int>(a)] = 1;
    auto back = [&](const NodeRef& v) { return graph::expand(graph::reshape(v, kept), x->shape); };
    switch (n.reduction) {
      case scalar::Reduction::sum: add(x, back(g)); break;
      case scalar::Reduction::max:
      case scalar::Reduction::min: {
        // Equal extremes share the gradient evenly, as in PyTorch's amax.
        const Tensor winner = elementwise("eq", {Tensor(x), Tensor(back(self))});
        const Tensor share = cast(winner, x->type);
        std::vector<int> axes(n.ints.begin(), n.ints.end());
        const Tensor winners(graph::reduce(scalar::Reduction::sum, share.node(), axes));
        add(x, (share * Tensor(back((Tensor(g) / winners).node()))).node());
        break;
      }
      case scalar::Reduction::prod: add(x, (Tensor(back(g)) * product_of_others(x, n.ints)).node()); break;
      case scalar::Reduction::argmax:
      case scalar::Reduction::argmin: break;
    }
  }

  // For each element the product of the other elements along the reduced axes, correct with any number of zeros. Computes
  // exclusive products of prefixes and suffixes by doubling: log2(n) shifted multiplications.
  static Tensor product_of_others(const NodeRef& x, const std::vector<Extent>& axes) {
    std::vector<Extent> order, shape_kept;
    Extent n = 1;
    const int rank = x->shape.rank();
    for (int i = 0; i < rank; ++i)
      if (std::find(axes.begin(), axes.end(), i) == axes.end()) order.push_back(i);
    const Extent outer = [&] {
      Extent o = 1;
      for (Extent i : order) o *= x->shape[static_cast<int>(i)];
      return o;
    }();
    for (Extent a : axes) {
      order.push_back(a);
      n *= x->shape[static_cast<int>(a)];
    }
    const NodeRef permuted = graph::permute(x, order);
    const Tensor rows(graph::reshape(permuted, {outer, n}));
    auto shifted = [&](const Tensor& v, Extent by, bool forward) {  // moved by `by` places, shifting ones in
      const Tensor one = ones({outer, std::min(by, n)}, x->type, x->device);
      if (by >= n) return ones({outer, n}, x->type, x->device);
      const Tensor parts[] = {forward ? one : narrow(v, 1, by, n - by), forward ? narrow(v, 1, 0, n - by) : one};
      return concat(parts, 1);
    };
    auto exclusive = [&](bool forward) {
      Tensor v = shifted(rows, 1, forward);
      for (Extent by = 1; by < n; by *= 2) v = v * shifted(v, by, forward);
      return v;
    };
    const Tensor others = exclusive(true) * exclusive(false);
    std::vector<Extent> inverse(order.size());
    for (std::size_t i = 0; i < order.size(); ++i) inverse[static_cast<std::size_t>(order[i])] = static_cast<Extent>(i);
    return Tensor(graph::permute(graph::reshape(others.node(), permuted->shape), inverse));
  }

  static NodeRef slice_gradient(const Node& n, const NodeRef& g) {
    const Shape& shape = n.inputs[0]->shape;
    NodeRef v = g;
    for (int axis = 0; axis < shape.rank(); ++axis) {
      const Extent start = n.ints[static_cast<std::size_t>(2 * axis)],
                   step = n.ints[static_cast<std::size_t>(2 * axis + 1)];
      const Extent count = v->shape[axis], extent = shape[axis];
      std::vector<Extent> padding(static_cast<std::size_t>(2 * shape.rank()), 0);
      auto pad_axis = [&](Extent before, Extent after) {
        padding[static_cast<std::size_t>(2 * axis)] = before;
        padding[static_cast<std::size_t>(2 * axis + 1)] = after;
        v = graph::pad(v, padding);
      };
      if (count == 0) {
        pad_axis(0, extent);
        continue;
      }
      Extent first = start;
      const Extent stride = step < 0 ? -step : step;
      if (step < 0) {  // the same elements, ascending
        std::vector<Extent> starts(static_cast<std::size_t>(shape.rank()), 0),
            steps(static_cast<std::size_t>(shape.rank()), 1);
        starts[static_cast<std::size_t>(axis)] = count - 1;
        steps[static_cast<std::size_t>(axis)] = -1;
        v = graph::slice(v, starts, steps, v->shape);
        first = start + (count - 1) * step;
      }
      if (stride > 1 && count > 1) {  // zeros between: [count, 1] padded to [count, stride], flattened
        std::vector<Extent> split_extents = v->shape.vector();
        split_extents.insert(split_extents.begin() + axis + 1, 1);
        std::vector<Extent> split_padding(split_extents.size() * 2, 0);
        split_padding[static_cast<std::size_t>(2 * (axis + 1) + 1)] = stride - 1;
        Shape joined = v->shape;
        joined[axis] = count * stride;
        v = graph::reshape(graph::pad(graph::reshape(v, Shape(split_extents)), split_padding), joined);
        std::vector<Extent> starts(static_cast<std::size_t>(shape.rank()), 0),
            steps(static_cast<std::size_t>(shape.rank()), 1);
        joined[axis] = (count - 1) * stride + 1;
        v = graph::slice(v, starts, steps, joined);
      }
      pad_axis(first, extent - first - v->shape[axis]);
    }
    return v;
  }

  void gather_gradient(const Node& n, const NodeRef& g) {
    const NodeRef &x = n.inputs[0], &indices = n.inputs[1];
    if (!needs(x)) return;
    const int axis = static_cast<int>(n.ints[0]);
    // Rows by one index each (embedding): add the rows up.
    if (axis == 0 && x->shape.rank() == 2 && indices->kind == Kind::expand && indices->inputs[0]->shape[1] == 1) {
      const Extent count = indices->shape[0];  // one index may serve for all rows too
      const NodeRef rows = graph::reshape(graph::expand(indices->inputs[0], {count, 1}), {count});
      return add(x, graph::scatter_add(rows, g, x->shape[0]));
    }
    // One index for each element: sums updates for each place. If few elements are taken, compares the indices with every
    // position along the axis instead, which fuses with neighbouring ops.
    constexpr Extent kComparedMax = 4;
    if (g->shape[axis] > kComparedMax) return add(x, graph::scatter_add_along(indices, g, axis, x->shape[axis]));
    std::vector<Extent> grown = g->shape.vector();
    grown.insert(grown.begin() + axis, x->shape[axis]);  // [.., position, taken, ..]
    std::vector<Extent> taken = g->shape.vector();
    taken.insert(taken.begin() + axis, 1);
    const Tensor position(graph::iota(Shape(grown), axis, indices->type, x->device));
    const Tensor hit =
        elementwise("eq", {position, Tensor(graph::expand(graph::reshape(indices, Shape(taken)), Shape(grown)))});
    const Tensor spread(graph::expand(graph::reshape(g, Shape(taken)), Shape(grown)));
    const Tensor routed = elementwise("where", {hit, spread, scalar_like(0, spread)});
    add(x, graph::reduce(scalar::Reduction::sum, routed.node(), {axis + 1}));
  }

  // A call whose row has a gradient, or whose decomposition is differentiated.
  void call(const Node& n) {
    auto found = call_gradients_.find(&n);
    if (found == call_gradients_.end()) return;
    const graph::OpRow& row = *n.op;
    const NodeRef self = n.shared_from_this();
    if (!row.differentiable || (!row.gradient && !row.decompose))
      throw UsageError(
          fmt::format("grad: {} has no gradient{}{}", row.name, row.no_gradient.empty() ? "" : ": ", row.no_gradient));
    if (row.gradient) {
      const graph::Call call(n);
      const std::size_t count = row.infer(call).size();
      graph::Tensors results, gradients(count);
      for (std::size_t i = 0; i < count; ++i)
        results.emplace_back(count == 1 ? self : graph::project(self, static_cast<int>(i)));
      for (const auto& [index, g] : found->second) {
        Tensor& sum = gradients[static_cast<std::size_t>(index)];
        sum = sum.defined() ? sum + Tensor(g) : Tensor(g);
      }
      for (std::size_t i = 0; i < count; ++i)
        if (gradients[i].defined()) gradients[i] = cast(gradients[i], results[i].dtype());
      const graph::Tensors given = row.gradient({call, results, gradients});
      for (std::size_t i = 0; i < given.size(); ++i)
        if (given[i].defined() && call.input(i).defined()) add(call.input(i).node(), given[i].node());
      if (!given.empty()) return;
    }
    // Differentiates the decomposition with placeholders for the inputs. The inputs may be equal or depend on each other, and
    // views of them may cancel; placeholders are separate nodes.
    graph::NodeFields fields = n;
    fields.parts.clear();  // those of a composite are made of its own inputs
    std::unordered_set<const Node*> wanted;
    for (std::size_t i = 0; i < fields.inputs.size(); ++i) {
      const NodeRef& x = n.inputs[i];
      fields.inputs[i] = graph::make_node({.kind = Kind::reshape,
                                           .type = x->type,
                                           .shape = x->shape,
                                           .device = x->device,
                                           .inputs = {x},
                                           .ints = {static_cast<Extent>(i)}});
      wanted.insert(fields.inputs[i].get());
    }
    const NodeRef stand_in = graph::make_node(fields);
    const std::vector<NodeRef> parts = graph::decompose(*stand_in);
    for (const auto& [index, g] : found->second) {
      const NodeRef& part = parts[static_cast<std::size_t>(index)];
      Reverse reverse(part, wanted, true);
      reverse.run(part, g);
      for (std::size_t i = 0; i < fields.inputs.size(); ++i)
        if (const NodeRef part_of = reverse.of(fields.inputs[i].get())) add(n.inputs[i], part_of);
    }
  }

  const std::unordered_set<const Node*>& wanted_;
  const bool ends_there_;
  std::vector<const Node*> order_;
  std::unordered_set<const Node*> needed_;
  std::unordered_map<const Node*, NodeRef> gradients_;
  std::unordered_map<const Node*, std::vector<std::pair<int, NodeRef>>> call_gradients_;
};

NodeRef seed_for(const Tensor& output, const Tensor& seed, std::string_view op, Where where) {
  if (!output.defined()) throw UsageError(fmt::format("{}: the output has no value", op));
  if (!is_float(output.dtype()))
    throw DTypeError(
        graph::describe(op, "the output is not a float, so it has no gradient", {{"output", output}}, where));
  if (!seed.defined()) {
    if (output.numel() != 1)
      throw UsageError(graph::describe(op, "the output has more than one element; sum it, or give a seed of its shape",
                                       {{"output", output}}, where));
    return ones_like(output).node();
  }
  if (seed.shape() != output.shape())
    throw ShapeError(
        graph::describe(op, "the seed's shape differs from the output's", {{"output", output}, {"seed", seed}}, where));
  return graph::cast(seed.node(), output.dtype());
}

}  // namespace

std::vector<NodeRef> autograd::gradients_up_to(std::span<const NodeRef> ends, const NodeRef& output,
                                               const NodeRef& seed) {
  std::unordered_set<const Node*> wanted;
  for (const NodeRef& end : ends) wanted.insert(end.get());
  Reverse reverse(output, wanted, true);
  reverse.run(output, seed);
  std::vector<NodeRef> gradients;
  for (const NodeRef& end : ends) gradients.push_back(reverse.of(end.get()));
  return gradients;
}

std::vector<Tensor> grad(const Tensor& output, std::span<const Tensor> inputs, const Tensor& seed, Where where) {
  const graph::NoAutocast types_are_known;
  const NodeRef start = seed_for(output, seed, "grad", where);
  // The output may refer to a Variable by its other node, from before or after its value was computed.
  std::unordered_set<const Node*> wanted;
  std::vector<NodeRef> twins;
  for (const Tensor& input : inputs) {
    if (!input.defined()) throw UsageError("grad: an input has no value");
    wanted.insert(input.node().get());
    twins.push_back(graph::twin_of(*input.node()));
    if (twins.back()) wanted.insert(twins.back().get());
  }
  Reverse reverse(output.node(), wanted);
  if (const auto [value, from] = reverse.lost(); value)
    throw UsageError(graph::describe(
        "grad",
        "eval() of a value that was made from the input has let go of how it was made; take the gradient before eval, "
        "make "
        "the input a Variable, hold a KeepHistory around eval, or detach the value if it is a constant",
        {{"input", Tensor(from->shared_from_this())}, {"value", Tensor(value->shared_from_this())}}, where));
  reverse.run(output.node(), start);
  std::vector<Tensor> results;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Tensor sum;
    for (const Node* node : {inputs[i].node().get(), twins[i].get()})
      if (const NodeRef g = node ? reverse.of(node) : nullptr) {
        const Tensor part(graph::cast(g, inputs[i].dtype()));
        sum = sum.defined() ? sum + part : part;
      }
    results.push_back(sum.defined() ? sum : zeros_like(inputs[i]));
  }
  return results;
}

Tensor grad(const Tensor& output, const Tensor& input, Where where) {
  const Tensor inputs[] = {input};
  return grad(output, inputs, Tensor(), where)[0];
}

std::vector<Tensor> grad(const Tensor& output, std::span<const Variable> inputs, Where where) {
  std::vector<Tensor> values(inputs.begin(), inputs.end());
  return grad(output, values, Tensor(), where);
}

}  // namespace weft
