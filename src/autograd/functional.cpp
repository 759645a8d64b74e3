// Transforms of functions, made of `grad` and `vmap`.
#include <fmt/format.h>

#include <atomic>

#include "graph/describe.hpp"
#include "graph/node.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"
#include "weft/ops/layout.hpp"
#include "weft/ops/making.hpp"
#include "weft/transforms.hpp"

namespace weft {

Tensor alias(const Tensor& x) {
  if (!x.defined()) throw UsageError("alias: the tensor has no value");
  // A view of the same shape. Its number keeps it apart from other aliases; plans do not depend on it.
  static std::atomic<Extent> count = 0;
  const graph::NodeRef& node = x.node();
  if (graph::has_packed_layout(*node)) return x;  // such weights have no views, and no gradient
  return Tensor(graph::make_node({.kind = graph::Kind::reshape,
                                  .type = node->type,
                                  .shape = node->shape,
                                  .device = node->device,
                                  .inputs = {node},
                                  .ints = {++count}}));
}

namespace {

std::vector<Tensor> aliases(std::span<const Tensor> inputs, std::string_view transform) {
  if (inputs.empty()) throw UsageError(fmt::format("{}: there are no inputs", transform));
  std::vector<Tensor> list;
  for (const Tensor& x : inputs) {
    if (!x.defined()) throw UsageError(fmt::format("{}: input {} has no value", transform, list.size()));
    list.push_back(alias(x));
  }
  return list;
}

std::vector<Tensor> results_of(const TensorFunction& f, std::span<const Tensor> inputs, std::string_view transform) {
  const KeepHistory until_asked;
  std::vector<Tensor> results = f(inputs);
  for (std::size_t i = 0; i < results.size(); ++i)
    if (!results[i].defined())
      throw UsageError(fmt::format("{}: result {} of the function has no value", transform, i));
  return results;
}

void check_floats(std::string_view transform, const Tensor& x, const char* name, Where where) {
  if (!is_float(x.dtype()))
    throw DTypeError(graph::describe(transform, fmt::format("{} is not a float, so it has no derivative", name),
                                     {{name, x}}, where));
}

// Gradients of the inputs that are floats; zeros for the others.
std::vector<Tensor> gradients_of(const Tensor& output, const std::vector<Tensor>& inputs, const Tensor& seed,
                                 Where where) {
  std::vector<Tensor> floats;
  for (const Tensor& x : inputs)
    if (is_float(x.dtype())) floats.push_back(x);
  const std::vector<Tensor> found = grad(output, floats, seed, where);
  std::vector<Tensor> all;
  std::size_t next = 0;
  for (const Tensor& x : inputs) all.push_back(is_float(x.dtype()) ? found[next++] : zeros_like(x));
  return all;
}

}  // namespace

Pullback vjp(const TensorFunction& f, std::span<const Tensor> inputs, Where where) {
  const std::vector<Tensor> at = aliases(inputs, "vjp");
  std::vector<Tensor> results = results_of(f, at, "vjp");
  auto gradients = [at, results, where](const std::vector<Tensor>& seeds) {
    if (seeds.size() != results.size())
      throw UsageError(fmt::format("vjp: {} seeds are given for {} results", seeds.size(), results.size()));
    std::vector<Tensor> sums(at.size());
    for (std::size_t r = 0; r < results.size(); ++r) {
      if (!seeds[r].defined() || !is_float(results[r].dtype())) continue;
      const std::vector<Tensor> part = gradients_of(results[r], at, seeds[r], where);
      for (std::size_t i = 0; i < at.size(); ++i) sums[i] = sums[i].defined() ? sums[i] + part[i] : part[i];
    }
    for (std::size_t i = 0; i < at.size(); ++i)
      if (!sums[i].defined()) sums[i] = zeros_like(at[i]);
    return sums;
  };
  return {std::move(results), std::move(gradients)};
}

Pushforward jvp(const TensorFunction& f, std::span<const Tensor> inputs, std::span<const Tensor> tangents,
                Where where) {
  if (tangents.size() != inputs.size())
    throw UsageError(fmt::format("jvp: {} tangents are given for {} inputs", tangents.size(), inputs.size()));
  const std::vector<Tensor> at = aliases(inputs, "jvp");
  std::vector<Tensor> moved, along;
  for (std::size_t i = 0; i < at.size(); ++i) {
    if (!tangents[i].defined()) continue;
    check_floats("jvp", at[i], "input", where);
    if (tangents[i].shape() != at[i].shape())
      throw ShapeError(graph::describe("jvp", "the tangent's shape differs from the input's",
                                       {{"input", at[i]}, {"tangent", tangents[i]}}, where));
    moved.push_back(at[i]);
    along.push_back(tangents[i]);
  }
  Pushforward made;
  made.results = results_of(f, at, "jvp");
  for (const Tensor& y : made.results) {
    Tensor tangent;
    if (is_float(y.dtype()) && !moved.empty()) {
      // The gradient is linear in its seed, so its own gradient with respect to the seed is the same for any. Few ops compute it
      // in a way that reads the seed; logcumsumexp takes its logarithm.
      const Tensor seed = alias(ones_like(y));
      const std::vector<Tensor> back = grad(y, moved, seed, where);
      for (std::size_t i = 0; i < back.size(); ++i) {
        const Tensor wanted[] = {seed};
        const Tensor part = grad(back[i], wanted, along[i], where)[0];
        tangent = tangent.defined() ? tangent + part : part;
      }
    }
    made.tangents.push_back(tangent.defined() ? tangent : zeros_like(y));
  }
  return made;
}

namespace {

// The unit tensors of x's shape, [numel, x's shape...].
Tensor basis_of(const Tensor& x) {
  Shape shape{x.numel()};
  for (const Extent extent : x.shape()) shape.push_back(extent);
  return reshape(eye(x.numel(), x.numel(), x.dtype(), x.device()), shape);
}

Shape joined(const Shape& a, const Shape& b) {
  Shape shape = a;
  for (const Extent extent : b) shape.push_back(extent);
  return shape;
}

}  // namespace

Tensor jacobian(const std::function<Tensor(const Tensor&)>& f, const Tensor& x, bool forward, Where where) {
  if (!x.defined()) throw UsageError("jacobian: x has no value");
  check_floats("jacobian", x, "x", where);
  const TensorFunction listed = [&](std::span<const Tensor> in) { return std::vector<Tensor>{f(in[0])}; };
  const Tensor inputs[] = {x};
  const Pullback made = vjp(listed, inputs, where);
  const Tensor& y = made.results[0];
  check_floats("jacobian", y, "f(x)", where);
  const Shape shape = joined(y.shape(), x.shape());
  if (shape.numel() == 0) return zeros(shape, x.dtype(), x.device());
  if (!forward) {
    const Tensor seeds[] = {basis_of(y)};
    const TensorFunction row = [&](std::span<const Tensor> seed) { return made.gradients({seed[0]}); };
    return reshape(vmap(row, seeds, {}, where)[0], shape);
  }
  const Tensor tangents[] = {basis_of(x)};
  const TensorFunction column = [&](std::span<const Tensor> tangent) {
    return jvp(listed, inputs, tangent, where).tangents;
  };
  const Tensor columns = vmap(column, tangents, {}, where)[0];  // [x's elements, y's shape...]
  return reshape(movedim(columns, {0}, {-1}), shape);
}

Tensor hessian(const std::function<Tensor(const Tensor&)>& f, const Tensor& x, Where where) {
  return jacobian(
      [&](const Tensor& at) {
        const Tensor y = f(at);
        if (y.defined() && y.numel() != 1)
          throw ShapeError(graph::describe("hessian", "f(x) has more than one element; use jacobian of jacobian",
                                           {{"f(x)", y}}, where));
        return grad(y, at, where);
      },
      x, false, where);
}

}  // namespace weft
