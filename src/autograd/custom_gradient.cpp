#include "autograd/custom_gradient.hpp"

#include <fmt/format.h>

#include "graph/autocast.hpp"
#include "graph/describe.hpp"
#include "graph/no_grad.hpp"
#include "graph/op.hpp"
#include "weft/grad.hpp"
#include "weft/hooks.hpp"
#include "weft/ops.hpp"
#include "weft/transforms.hpp"

namespace weft {
namespace {

using graph::NodeRef;
using Backward = std::function<std::vector<Tensor>(const CustomGradient&)>;

// A node has no place for a function but the expression of a map, which a call does not use. It keeps the function as long as
// the node lives, and tells calls of different functions apart.
struct Kept : scalar::Expression {
  explicit Kept(Backward backward) : backward(std::move(backward)) {}
  Backward backward;
};

graph::Tensors checked_gradients(const graph::GradientCall& g) {
  const graph::NodeRef first = g.results[0].node();
  const graph::Node& node = first->kind == graph::Kind::project ? *first->inputs[0] : *first;
  const auto& kept = static_cast<const Kept&>(*node.expression);
  const std::vector<Tensor> given = kept.backward({g.call.inputs(), g.results, g.gradients});
  const graph::Tensors& inputs = g.call.inputs();
  if (given.size() != inputs.size())
    throw UsageError(fmt::format("custom_gradient: {} gradients for {} inputs; an undefined Tensor means none",
                                 given.size(), inputs.size()));
  graph::Tensors gradients;
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (given[i].defined() && given[i].shape() != inputs[i].shape())
      throw ShapeError(graph::describe("custom_gradient",
                                       fmt::format("gradient {} has another shape than its input", i),
                                       {{"input", inputs[i]}, {"gradient", given[i]}}, g.call.where()));
    const bool flows = given[i].defined() && is_float(inputs[i].dtype());
    gradients.push_back(flows ? cast(given[i], inputs[i].dtype()) : Tensor());
  }
  return gradients;
}

// Plans never see this call: it is written out as the results of the function.
const graph::OpRow& custom_gradient_row() {
  static const graph::OpRow row{
      .name = "custom_gradient",
      .family = "gradient",
      .inputs = {{.name = "inputs", .repeated = true}},
      .doc = "A function's results, with a gradient that its user gives.",
      .infer =
          [](const graph::Call& c) {  // after the ids of the results: dtype, rank and extents of each
            const graph::Words& words = c.words();
            std::vector<graph::Result> list;
            for (std::size_t i = 1 + static_cast<std::size_t>(words[0]); i < words.size();) {
              const auto type = static_cast<DType>(words[i]);
              const auto begin = words.begin() + static_cast<std::ptrdiff_t>(i) + 2;
              list.push_back({type, Shape(std::vector<Extent>(begin, begin + words[i + 1]))});
              i += 2 + static_cast<std::size_t>(words[i + 1]);
            }
            return list;
          },
      .gradient = checked_gradients};
  return row;
}

std::vector<NodeRef> call_of(std::vector<NodeRef> inputs, std::vector<NodeRef> results,
                             std::shared_ptr<const Kept> kept, Where where) {
  graph::Words words{static_cast<Extent>(results.size())};
  for (const NodeRef& y : results) words.push_back(static_cast<Extent>(y->id));
  for (const NodeRef& y : results) {
    words.push_back(static_cast<Extent>(y->type));
    words.push_back(y->shape.rank());
    words.insert(words.end(), y->shape.begin(), y->shape.end());
  }
  const std::size_t count = results.size();
  const NodeRef node = graph::make_node({.kind = graph::Kind::call,
                                         .type = results[0]->type,
                                         .shape = results[0]->shape,
                                         .device = results[0]->device,
                                         .inputs = std::move(inputs),
                                         .ints = std::move(words),
                                         .value = static_cast<double>(count),
                                         .expression = std::move(kept),
                                         .name = custom_gradient_row().name,
                                         .op = &custom_gradient_row(),
                                         .parts = std::move(results)},
                                        where);
  if (count == 1) return {node};
  std::vector<NodeRef> list;
  for (std::size_t i = 0; i < count; ++i) list.push_back(graph::project(node, static_cast<int>(i)));
  return list;
}

std::vector<Tensor> applied(const TensorFunction& forward, const std::shared_ptr<const Kept>& kept,
                            std::span<const Tensor> inputs) {
  if (inputs.empty()) throw UsageError("custom_gradient: there are no inputs");
  std::vector<NodeRef> nodes, made;
  for (const Tensor& x : inputs) {
    if (!x.defined()) throw UsageError("custom_gradient: an input has no value");
    nodes.push_back(x.node());
  }
  const std::vector<Tensor> results = [&] {
    const KeepHistory until_asked;
    return forward(inputs);
  }();
  if (results.empty()) throw UsageError("custom_gradient: the function gave no results");
  for (const Tensor& y : results) {
    if (!y.defined()) throw UsageError("custom_gradient: the function gave a tensor without a value");
    if (y.device() != results[0].device())
      throw DeviceError("custom_gradient: the function's results are on different devices");
    made.push_back(y.node());
  }
  if (!grad_enabled()) return results;
  std::vector<Tensor> list;
  for (NodeRef& y : call_of(std::move(nodes), std::move(made), kept, Where::current())) list.emplace_back(std::move(y));
  return list;
}

}  // namespace

TensorFunction custom_gradient(TensorFunction forward, Backward backward) {
  if (!forward || !backward) throw UsageError("custom_gradient: a function is empty");
  return [forward = std::move(forward), kept = std::make_shared<const Kept>(std::move(backward))](
             std::span<const Tensor> inputs) { return applied(forward, kept, inputs); };
}

bool autograd::is_custom_gradient(const graph::Node& call) { return graph::is_call_of(call, custom_gradient_row()); }

std::vector<NodeRef> autograd::batched_custom_gradient(const graph::Node& call, std::vector<NodeRef> inputs,
                                                       std::vector<NodeRef> results, Extent) {
  // backward sees one example, so it runs under vmap itself. Gradients that do not flow are left out of its arguments.
  const auto one = std::static_pointer_cast<const Kept>(call.expression);
  auto backward = [one](const CustomGradient& all) {
    std::vector<Tensor> arguments = all.inputs;
    arguments.insert(arguments.end(), all.results.begin(), all.results.end());
    for (const Tensor& g : all.gradients)
      if (g.defined()) arguments.push_back(g);
    std::vector<bool> flows;  // which of the gradients that `backward` gives are defined
    const TensorFunction each = [&](std::span<const Tensor> in) {
      CustomGradient example;
      std::size_t next = 0;
      for (std::size_t i = 0; i < all.inputs.size(); ++i) example.inputs.push_back(in[next++]);
      for (std::size_t i = 0; i < all.results.size(); ++i) example.results.push_back(in[next++]);
      for (const Tensor& g : all.gradients) example.gradients.push_back(g.defined() ? in[next++] : Tensor());
      std::vector<Tensor> defined;
      for (Tensor& g : one->backward(example)) {
        flows.push_back(g.defined());
        if (g.defined()) defined.push_back(std::move(g));
      }
      return defined;
    };
    const std::vector<Tensor> made = vmap(each, arguments);
    std::vector<Tensor> gradients;
    std::size_t next = 0;
    for (const bool defined : flows) gradients.push_back(defined ? made[next++] : Tensor());
    return gradients;
  };
  return call_of(std::move(inputs), std::move(results), std::make_shared<const Kept>(std::move(backward)), call.where);
}

Tensor with_gradient_hook(const Tensor& x, GradientHook hook) {
  ValueHook of_both;
  if (hook) of_both = [hook = std::move(hook)](const Tensor&, const Tensor& gradient) { return hook(gradient); };
  return detail::with_value_hook(x, std::move(of_both));
}

Tensor detail::with_value_hook(const Tensor& x, ValueHook hook) {
  if (!x.defined()) throw UsageError("with_gradient_hook: the tensor has no value");
  if (!hook) throw UsageError("with_gradient_hook: the hook is empty");
  if (!is_float(x.dtype()))
    throw DTypeError(graph::describe("with_gradient_hook", "x is not a float, so no gradient reaches it", {{"x", x}},
                                     Where::current()));
  const TensorFunction hooked =
      custom_gradient([](std::span<const Tensor> in) { return std::vector<Tensor>{alias(in[0])}; },
                      [hook = std::move(hook)](const CustomGradient& g) {
                        const Tensor replaced = hook(g.inputs[0], g.gradients[0]);
                        return std::vector<Tensor>{replaced.defined() ? replaced : g.gradients[0]};
                      });
  const Tensor inputs[] = {x};
  return hooked(inputs)[0];
}

}  // namespace weft
