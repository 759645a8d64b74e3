// Reductions by their rows: post(reduce(pre(x))) over axes.
#include <fmt/format.h>

#include <numeric>

#include "graph/autocast.hpp"
#include "graph/axes.hpp"
#include "graph/describe.hpp"
#include "graph/no_grad.hpp"
#include "graph/node.hpp"
#include "ops/table.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"

namespace weft {

using graph::describe;
using graph::NodeRef;

namespace {

Shape kept_shape(const Shape& shape, const std::vector<int>& axes) {
  Shape kept = shape;
  for (int a : axes) kept[a] = 1;
  return kept;
}

// Applies the row over `axes`, which are kept with extent 1.
NodeRef apply(const ops::ReduceRow& row, const NodeRef& x, const std::vector<int>& axes,
              std::span<const double> attributes) {
  const Shape kept = kept_shape(x->shape, axes);
  Extent count = 1;
  for (int a : axes) count *= x->shape[a];
  const DType scalar_type = ops::reduce_scalar_type(x->type);
  std::vector<NodeRef> pre_inputs{x}, post_inputs;
  NodeRef center;
  if (!row.center.empty()) {
    center = apply(ops::reduce_row(row.center), x, axes, {});
    if (row.center_is_constant) center = graph::detach(center);
    pre_inputs.push_back(center);
  }
  std::vector<NodeRef> attribute_nodes;
  for (double value : attributes) attribute_nodes.push_back(graph::constant(value, scalar_type, {}, x->device));
  pre_inputs.insert(pre_inputs.end(), attribute_nodes.begin(), attribute_nodes.end());
  // The row says how x is typed; texts that are the identity make no node.
  const scalar::Expression pre = ops::typed_pre(row, x->type);
  const bool identity = pre.code.back().op == scalar::Op::input && pre.code.back().slot == 0;
  const NodeRef prepared = identity ? x : graph::map_typed(pre, std::move(pre_inputs), fmt::format("{}.pre", row.name));
  const NodeRef reduced = graph::reshape(graph::reduce(row.reduction, prepared, axes), kept);
  post_inputs = {reduced, graph::constant(static_cast<double>(count), scalar_type, {}, x->device)};
  if (center) post_inputs.push_back(center);
  post_inputs.insert(post_inputs.end(), attribute_nodes.begin(), attribute_nodes.end());
  const scalar::Expression post = ops::typed_post(row, x->type);
  if (post.code.back().op == scalar::Op::input && post.code.back().slot == 0) return reduced;
  return graph::map_typed(post, std::move(post_inputs), fmt::format("{}.post", row.name));
}

Tensor reduce_by_row(std::string_view name, const Tensor& x, const Axes& axes, ReduceOptions options,
                     std::span<const double> attributes, Where where) {
  const ops::ReduceRow& row = ops::reduce_row(name);
  if (!x.defined()) throw UsageError(fmt::format("{}: the tensor has no value", name));
  std::vector<int> reduced = graph::normalized_axes(row.name, x, axes, where);
  if (axes.empty()) {
    reduced.resize(static_cast<std::size_t>(x.rank()));
    std::iota(reduced.begin(), reduced.end(), 0);
  }
  std::sort(reduced.begin(), reduced.end());
  NodeRef from = x.node();
  if (graph::autocast_is_on()) from = graph::autocast_input(graph::autocast_rule_of(row.name, "reduction"), from);
  const bool position = row.reduction == scalar::Reduction::argmax || row.reduction == scalar::Reduction::argmin;
  if (!row.allows_empty)
    for (int a : reduced)
      if (x.shape()[a] == 0)
        throw ShapeError(describe(row.name,
                                  fmt::format("axis {} is empty, and the {} of nothing has no value", a, row.name),
                                  {{"x", x}}, where));
  if (position && reduced.size() != 1) {  // over all: the position in row-major order
    if (!axes.empty()) throw ShapeError(describe(row.name, "takes one axis, or none for all", {{"x", x}}, where));
    from = graph::reshape(from, {x.numel()});
    reduced = {0};
  }
  std::vector<double> values(attributes.begin(), attributes.end());
  for (std::size_t i = values.size(); i < row.attributes.size(); ++i) values.push_back(row.attributes[i].default_value);
  try {
    const ops::ReduceTypes types = ops::reduce_types(row, from->type);
    const NodeRef result = graph::cast(apply(row, graph::cast(from, types.computed), reduced, values), types.result);
    Shape shape;
    if (options.keepdims) {
      for (int i = 0; i < x.rank(); ++i)
        shape.push_back(axes.empty() || std::find(reduced.begin(), reduced.end(), i) != reduced.end() ? 1
                                                                                                      : x.shape()[i]);
    } else if (!axes.empty()) {
      for (int i = 0; i < x.rank(); ++i)
        if (std::find(reduced.begin(), reduced.end(), i) == reduced.end()) shape.push_back(x.shape()[i]);
    }
    return graph::wrap(graph::reshape(result, shape));
  } catch (const DTypeError& error) {
    throw DTypeError(describe(row.name, error.what(), {{"x", x}}, where));
  }
}

}  // namespace

Tensor reduce(std::string_view name, const Tensor& x, const Axes& axes, ReduceOptions options, Where where) {
  return reduce_by_row(name, x, axes, options, {}, where);
}
Tensor reduce(std::string_view name, const Tensor& x, const Axes& axes, ReduceOptions options,
              std::span<const double> attributes, Where where) {
  const std::size_t known = ops::reduce_row(name).attributes.size();
  if (attributes.size() > known)
    throw UsageError(fmt::format("{}: {} attributes are given, it has {}", name, attributes.size(), known));
  return reduce_by_row(name, x, axes, options, attributes, where);
}
Tensor sum(const Tensor& x, const Axes& axes, ReduceOptions options, Where where) {
  return reduce("sum", x, axes, options, where);
}
Tensor mean(const Tensor& x, const Axes& axes, ReduceOptions options, Where where) {
  return reduce("mean", x, axes, options, where);
}
Tensor prod(const Tensor& x, const Axes& axes, ReduceOptions options, Where where) {
  return reduce("prod", x, axes, options, where);
}
Tensor amax(const Tensor& x, const Axes& axes, ReduceOptions options, Where where) {
  return reduce("amax", x, axes, options, where);
}
Tensor amin(const Tensor& x, const Axes& axes, ReduceOptions options, Where where) {
  return reduce("amin", x, axes, options, where);
}
Tensor argmax(const Tensor& x, int axis, ReduceOptions options, Where where) {
  return reduce("argmax", x, {axis}, options, where);
}
Tensor argmin(const Tensor& x, int axis, ReduceOptions options, Where where) {
  return reduce("argmin", x, {axis}, options, where);
}
Tensor var(const Tensor& x, const Axes& axes, ReduceOptions options, int correction, Where where) {
  const double value = correction;
  return reduce_by_row("var", x, axes, options, {&value, 1}, where);
}
Tensor stddev(const Tensor& x, const Axes& axes, ReduceOptions options, int correction, Where where) {
  const double value = correction;
  return reduce_by_row("std", x, axes, options, {&value, 1}, where);
}
Tensor norm(const Tensor& x, const Axes& axes, ReduceOptions options, Where where) {
  return reduce("norm", x, axes, options, where);
}
Tensor logsumexp(const Tensor& x, const Axes& axes, ReduceOptions options, Where where) {
  return reduce("logsumexp", x, axes, options, where);
}
Tensor all(const Tensor& x, const Axes& axes, ReduceOptions options, Where where) {
  return reduce("all", x, axes, options, where);
}
Tensor any(const Tensor& x, const Axes& axes, ReduceOptions options, Where where) {
  return reduce("any", x, axes, options, where);
}
Tensor count_nonzero(const Tensor& x, const Axes& axes, ReduceOptions options, Where where) {
  return reduce("count_nonzero", x, axes, options, where);
}

}  // namespace weft
