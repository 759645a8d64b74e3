#include "weft/checkpoint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "autograd/reverse.hpp"
#include "graph/autocast.hpp"
#include "graph/node.hpp"
#include "graph/op.hpp"
#include "graph/recompute.hpp"
#include "weft/grad.hpp"

namespace weft {
namespace {

using graph::Kind;
using graph::Node;
using graph::NodeRef;

const graph::OpRow& checkpoint_row();

bool is_checkpoint(const Node& node) { return graph::is_call_of(node, checkpoint_row()); }

// The nodes between values and a result that was computed from them.
class Region {
 public:
  Region(const NodeRef& result, std::span<const NodeRef> inputs) : result_(result) {
    for (const NodeRef& input : inputs) inside_.insert(input.get());
    const auto sources = [&](const Node& node) -> const std::vector<NodeRef>& {
      static const std::vector<NodeRef> kNone;
      return inside_.contains(&node) ? kNone : sources_of(node);
    };
    const NodeRef roots[] = {result};
    for (const Node* node : graph::topological_order_along(roots, sources)) {
      const std::vector<NodeRef>& from = sources(*node);
      if (std::none_of(from.begin(), from.end(), [&](const NodeRef& x) { return inside_.contains(x.get()); })) continue;
      inside_.insert(node);
      order_.push_back(node);
    }
  }

  bool depends_on_inputs() const { return !order_.empty(); }

  // Floats from outside that the region reads, in the order in which they were made. Packed weights never train.
  std::vector<NodeRef> outside() const {
    std::vector<NodeRef> found;
    std::unordered_set<const Node*> seen;
    for (const Node* node : order_)
      for (const NodeRef& x : sources_of(*node))
        if (!inside_.contains(x.get()) && is_float(x->type) && x->kind != Kind::constant &&
            !graph::has_packed_layout(*x) && seen.insert(x.get()).second)
          found.push_back(x);
    return found;
  }

  // The result made again, of others in the inputs' places.
  NodeRef again(std::unordered_map<const Node*, NodeRef> replaced) const {
    const auto of = [&](const NodeRef& x) {
      const auto it = replaced.find(x.get());
      return it == replaced.end() ? x : it->second;
    };
    for (const Node* node : order_) {
      if (is_checkpoint(*node)) {
        replaced[node] = of(node->parts[0]);
      } else if (node->kind == Kind::call) {
        const graph::Call call(*node);
        graph::Tensors inputs = call.inputs();
        for (Tensor& x : inputs)
          if (x.defined()) x = Tensor(of(x.node()));
        const NodeRef made = graph::call_nodes(*node->op, std::move(inputs), call.words(), node->where)[0];
        replaced[node] = graph::has_several_results(*node) ? made->inputs[0] : made;
      } else {
        graph::NodeFields fields = *node;
        for (NodeRef& x : fields.inputs) x = of(x);
        replaced[node] = graph::make_node(std::move(fields), node->where);
      }
    }
    return of(result_);
  }

 private:
  static const std::vector<NodeRef>& sources_of(const Node& node) {
    return is_checkpoint(node) ? node.parts : node.inputs;
  }

  NodeRef result_;
  std::unordered_set<const Node*> inside_;  // the inputs, and what depends on them
  std::vector<const Node*> order_;          // the latter
};

// Words of a call: the node of the call, which tells calls apart; how many inputs are the function's; dtype, shape.
graph::Words words_of(const NodeRef& result, std::size_t inputs) {
  graph::Words words{static_cast<Extent>(result->id), static_cast<Extent>(inputs), static_cast<Extent>(result->type)};
  words.insert(words.end(), result->shape.begin(), result->shape.end());
  return words;
}

// The same value as a node of its own, which comes after the gradient that is on its way back.
NodeRef kept(const NodeRef& x, const NodeRef& gradient) {
  if (gradient->shape.numel() == 0) return x;
  const std::vector<Extent> first(gradient->shape.size(), 0), step(gradient->shape.size(), 1);
  const NodeRef one = graph::slice(gradient, first, step, Shape(step));
  scalar::Expression identity{2, {{.op = scalar::Op::input, .type = x->type, .slot = 0}}};
  return graph::map_typed(std::move(identity), {x, graph::reshape(one, {})}, "copy");
}

graph::Tensors gradients_again(const graph::GradientCall& g) {
  const NodeRef node = g.results[0].node(), result = node->parts[0];
  const auto count = static_cast<std::size_t>(g.call.words()[1]);
  const std::span<const NodeRef> inputs(node->inputs.data(), count);
  std::unordered_map<const Node*, NodeRef> copies;
  std::vector<NodeRef> ends = node->inputs;
  for (std::size_t i = 0; i < count; ++i)
    if (!graph::has_packed_layout(*inputs[i]))
      copies[inputs[i].get()] = ends[i] = kept(inputs[i], g.gradients[0].node());
  const NodeRef again = Region(result, inputs).again(std::move(copies));
  graph::Tensors gradients;
  std::unordered_set<const Node*> seen;  // an input that was given twice gets its gradient once
  for (const NodeRef& x : autograd::gradients_up_to(ends, again, g.gradients[0].node()))
    gradients.push_back(x && seen.insert(ends[gradients.size()].get()).second ? Tensor(x) : Tensor());
  return gradients;
}

// A call of no kernel that is written out as the function's ops, so plans never see it; only gradients do.
const graph::OpRow& checkpoint_row() {
  static const graph::OpRow row{
      .name = "checkpoint",
      .family = "gradient",
      .inputs = {{.name = "inputs", .repeated = true}},
      .doc = "A function's result, whose intermediate values are computed again for gradients.",
      .infer =
          [](const graph::Call& c) {
            const graph::Words& words = c.words();
            return std::vector<graph::Result>{
                {static_cast<DType>(words[2]), Shape(std::vector<Extent>(words.begin() + 3, words.end()))}};
          },
      .gradient = gradients_again,
      .reads_packed = true};
  return row;
}

}  // namespace

Tensor checkpoint(const std::function<Tensor(std::span<const Tensor>)>& function, std::span<const Tensor> inputs,
                  Where where) {
  std::vector<NodeRef> nodes;
  for (const Tensor& input : inputs) {
    if (!input.defined()) throw UsageError("checkpoint: an input has no value");
    nodes.push_back(input.node());
  }
  const Tensor result = [&] {
    const KeepHistory until_repeated;
    return function(inputs);
  }();
  if (!result.defined()) throw UsageError("checkpoint: the function gave a tensor without a value");
  const NodeRef& made = result.node();
  if (!grad_enabled() || !is_float(made->type)) return result;
  const Region region(made, nodes);
  if (!region.depends_on_inputs() || std::find(nodes.begin(), nodes.end(), made) != nodes.end()) return result;
  const std::size_t count = nodes.size();
  for (NodeRef& x : region.outside()) nodes.push_back(std::move(x));
  return Tensor(graph::make_node({.kind = Kind::call,
                                  .type = made->type,
                                  .shape = made->shape,
                                  .device = made->device,
                                  .inputs = std::move(nodes),
                                  .ints = words_of(made, count),
                                  .value = 1,
                                  .name = checkpoint_row().name,
                                  .op = &checkpoint_row(),
                                  .parts = {made}},
                                 where));
}

}  // namespace weft
