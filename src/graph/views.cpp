// Views: validation, then nodes that move no data.
#include <fmt/format.h>

#include "graph/axes.hpp"
#include "graph/describe.hpp"
#include "graph/no_grad.hpp"
#include "graph/node.hpp"
#include "weft/ops.hpp"

namespace weft {

using graph::describe;

namespace {

const graph::NodeRef& node(const Tensor& x, std::string_view op) {
  if (!x.defined()) throw UsageError(fmt::format("{}: the tensor has no value", op));
  return x.node();
}

}  // namespace

namespace graph {

int normalized_axis(std::string_view op, const Tensor& x, int axis, Where where) {
  const int rank = x.rank();
  if (axis < -rank || axis >= rank)
    throw ShapeError(describe(op, fmt::format("axis {} is outside of [{}, {})", axis, -rank, rank), {{"x", x}}, where));
  return axis < 0 ? axis + rank : axis;
}

std::vector<int> normalized_axes(std::string_view op, const Tensor& x, const Axes& axes, Where where) {
  std::vector<int> result;
  for (int axis : axes) {
    const int a = normalized_axis(op, x, axis, where);
    if (std::find(result.begin(), result.end(), a) != result.end())
      throw ShapeError(describe(op, fmt::format("axis {} is given twice", axis), {{"x", x}}, where));
    result.push_back(a);
  }
  return result;
}

}  // namespace graph

Tensor reshape(const Tensor& x, const Shape& shape, Where where) {
  node(x, "reshape");
  Shape target = shape;
  int unknown = -1;
  Extent known = 1;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] == -1 && unknown < 0)
      unknown = i;
    else if (shape[i] < 0)
      throw ShapeError(describe("reshape",
                                fmt::format("extent {} in {}; only one extent may be -1", shape[i], shape.to_string()),
                                {{"x", x}}, where));
    else
      known *= shape[i];
  }
  if (unknown >= 0) {
    if (known == 0 || x.numel() % known != 0)
      throw ShapeError(describe("reshape",
                                fmt::format("{} elements do not divide into {}", x.numel(), shape.to_string()),
                                {{"x", x}}, where));
    target[unknown] = x.numel() / known;
  }
  if (target.numel() != x.numel())
    throw ShapeError(describe("reshape",
                              fmt::format("{} has {} elements, x has {}", shape.to_string(), target.numel(), x.numel()),
                              {{"x", x}}, where));
  return graph::wrap(graph::reshape(x.node(), target));
}

Tensor permute(const Tensor& x, const Axes& order, Where where) {
  node(x, "permute");
  const auto axes = graph::normalized_axes("permute", x, order, where);
  if (static_cast<int>(axes.size()) != x.rank())
    throw ShapeError(
        describe("permute", fmt::format("order has {} axes, x has {}", axes.size(), x.rank()), {{"x", x}}, where));
  return graph::wrap(graph::permute(x.node(), {axes.begin(), axes.end()}));
}

Tensor transpose(const Tensor& x, int axis_a, int axis_b, Where where) {
  node(x, "transpose");
  const int a = graph::normalized_axis("transpose", x, axis_a, where),
            b = graph::normalized_axis("transpose", x, axis_b, where);
  Axes order;
  for (int i = 0; i < x.rank(); ++i) order.push_back(i == a ? b : i == b ? a : i);
  return permute(x, order, where);
}

Tensor expand(const Tensor& x, const Shape& shape, Where where) {
  node(x, "expand");
  Shape joined;
  if (!graph::broadcast_shapes(x.shape(), shape, joined) || joined != shape)
    throw ShapeError(
        describe("expand", fmt::format("x does not broadcast to {}", shape.to_string()), {{"x", x}}, where));
  return graph::wrap(graph::expand(x.node(), shape));
}

Tensor slice(const Tensor& x, int axis, Extent start, Extent stop, Extent step, Where where) {
  node(x, "slice");
  const int a = graph::normalized_axis("slice", x, axis, where);
  if (step == 0) throw ShapeError(describe("slice", "step is 0", {{"x", x}}, where));
  const Extent n = x.shape()[a];
  auto clip = [&](Extent position, Extent low, Extent high) {
    return std::clamp(position < 0 ? position + n : position, low, high);
  };
  Extent count;
  if (step > 0) {
    start = clip(start, 0, n);
    stop = stop == kEnd ? n : clip(stop, 0, n);
    count = stop > start ? (stop - start + step - 1) / step : 0;
  } else {
    start = start == kEnd ? n - 1 : clip(start, -1, n - 1);
    stop = stop == kEnd || stop < -n ? -1 : clip(stop, -1, n - 1);
    count = start > stop ? (start - stop - step - 1) / -step : 0;
  }
  std::vector<Extent> starts(static_cast<std::size_t>(x.rank()), 0), steps(static_cast<std::size_t>(x.rank()), 1);
  Shape shape = x.shape();
  starts[static_cast<std::size_t>(a)] = count ? start : 0;
  steps[static_cast<std::size_t>(a)] = step;
  shape[a] = count;
  return graph::wrap(graph::slice(x.node(), starts, steps, shape));
}

Tensor narrow(const Tensor& x, int axis, Extent start, Extent length, Where where) {
  node(x, "narrow");
  const int a = graph::normalized_axis("narrow", x, axis, where);
  if (start < 0 || length < 0 || start > x.shape()[a] - length)
    throw ShapeError(describe(
        "narrow",
        fmt::format("[{}, {}+{}) is outside of axis {} with extent {}", start, start, length, axis, x.shape()[a]),
        {{"x", x}}, where));
  return slice(x, a, start, start + length, 1, where);
}

Tensor select(const Tensor& x, int axis, Extent index, Where where) {
  node(x, "select");
  const int a = graph::normalized_axis("select", x, axis, where);
  const Extent n = x.shape()[a];
  if (index < -n || index >= n)
    throw ShapeError(describe("select", fmt::format("index {} is outside of axis {} with extent {}", index, axis, n),
                              {{"x", x}}, where));
  return squeeze(narrow(x, a, index < 0 ? index + n : index, 1, where), a, where);
}

Tensor flip(const Tensor& x, const Axes& axes, Where where) {
  node(x, "flip");
  std::vector<Extent> starts(static_cast<std::size_t>(x.rank()), 0), steps(static_cast<std::size_t>(x.rank()), 1);
  for (int a : graph::normalized_axes("flip", x, axes, where)) {
    if (x.shape()[a] == 0) continue;
    starts[static_cast<std::size_t>(a)] = x.shape()[a] - 1;
    steps[static_cast<std::size_t>(a)] = -1;
  }
  return graph::wrap(graph::slice(x.node(), starts, steps, x.shape()));
}

Tensor pad(const Tensor& x, const std::vector<std::pair<Extent, Extent>>& padding, Where where) {
  node(x, "pad");
  if (static_cast<int>(padding.size()) != x.rank())
    throw ShapeError(describe("pad", fmt::format("{} pairs for {} axes", padding.size(), x.rank()), {{"x", x}}, where));
  std::vector<Extent> ints;
  for (auto [before, after] : padding) {
    if (before < 0 || after < 0)
      throw ShapeError(describe("pad", "negative padding; use slice to remove elements", {{"x", x}}, where));
    ints.push_back(before);
    ints.push_back(after);
  }
  return graph::wrap(graph::pad(x.node(), ints));
}

Tensor unsqueeze(const Tensor& x, int axis, Where where) {
  node(x, "unsqueeze");
  const int rank = x.rank();
  if (axis < -rank - 1 || axis > rank)
    throw ShapeError(
        describe("unsqueeze", fmt::format("axis {} is outside of [{}, {}]", axis, -rank - 1, rank), {{"x", x}}, where));
  std::vector<Extent> extents = x.shape().vector();
  extents.insert(extents.begin() + (axis < 0 ? axis + rank + 1 : axis), 1);
  return reshape(x, Shape(std::move(extents)), where);
}

Tensor squeeze(const Tensor& x, int axis, Where where) {
  node(x, "squeeze");
  const int a = graph::normalized_axis("squeeze", x, axis, where);
  if (x.shape()[a] != 1)
    throw ShapeError(
        describe("squeeze", fmt::format("axis {} has extent {}, not 1", axis, x.shape()[a]), {{"x", x}}, where));
  std::vector<Extent> extents = x.shape().vector();
  extents.erase(extents.begin() + a);
  return reshape(x, Shape(std::move(extents)), where);
}

Tensor flatten(const Tensor& x, int first, int last, Where where) {
  if (node(x, "flatten")->shape.rank() == 0) return reshape(x, {1}, where);
  const int a = graph::normalized_axis("flatten", x, first, where),
            b = graph::normalized_axis("flatten", x, last, where);
  if (a > b)
    throw ShapeError(
        describe("flatten", fmt::format("first axis {} lies after last axis {}", first, last), {{"x", x}}, where));
  Shape shape;
  for (int i = 0; i < a; ++i) shape.push_back(x.shape()[i]);
  Extent joined = 1;
  for (int i = a; i <= b; ++i) joined *= x.shape()[i];
  shape.push_back(joined);
  for (int i = b + 1; i < x.rank(); ++i) shape.push_back(x.shape()[i]);
  return reshape(x, shape, where);
}

Tensor concat(std::span<const Tensor> parts, int axis, Where where) {
  if (parts.empty()) throw UsageError("concat: no tensors given");
  node(parts[0], "concat");
  const int a = graph::normalized_axis("concat", parts[0], axis, where);
  std::vector<graph::NodeRef> nodes;
  for (const Tensor& part : parts) {
    node(part, "concat");
    const std::vector<std::pair<std::string, Tensor>> operands = {{"first", parts[0]}, {"part", part}};
    bool fits = part.rank() == parts[0].rank();
    for (int i = 0; fits && i < part.rank(); ++i) fits = i == a || part.shape()[i] == parts[0].shape()[i];
    if (!fits)
      throw ShapeError(
          describe("concat", fmt::format("extents differ elsewhere than on axis {}", axis), operands, where));
    if (part.dtype() != parts[0].dtype())
      throw DTypeError(describe("concat", "the dtypes differ; cast one", operands, where));
    if (part.device() != parts[0].device())
      throw DeviceError(describe("concat", "the devices differ; move one with .to(device)", operands, where));
    nodes.push_back(part.node());
  }
  return graph::wrap(graph::concat(std::move(nodes), a));
}

Tensor stack(std::span<const Tensor> parts, int axis, Where where) {
  std::vector<Tensor> raised;
  for (const Tensor& part : parts) raised.push_back(unsqueeze(part, axis, where));
  return concat(raised, axis, where);
}

std::vector<Tensor> split(const Tensor& x, std::span<const Extent> lengths, int axis, Where where) {
  node(x, "split");
  const int a = graph::normalized_axis("split", x, axis, where);
  Extent total = 0;
  for (Extent length : lengths) total += length;
  if (total != x.shape()[a])
    throw ShapeError(describe("split",
                              fmt::format("lengths add up to {}, axis {} has extent {}", total, axis, x.shape()[a]),
                              {{"x", x}}, where));
  std::vector<Tensor> parts;
  Extent start = 0;
  for (Extent length : lengths) {
    parts.push_back(narrow(x, a, start, length, where));
    start += length;
  }
  return parts;
}

namespace {

Tensor triangle(const Tensor& x, int diagonal, bool lower, std::string_view op, Where where) {
  node(x, op);
  if (x.rank() < 2) throw ShapeError(describe(op, "needs two axes", {{"x", x}}, where));
  const Extent m = x.dim(-2), n = x.dim(-1);
  const Tensor row(graph::iota({m, n}, 0, DType::i32, x.device())),
      column(graph::iota({m, n}, 1, DType::i32, x.device()));
  const Tensor edge = row + static_cast<double>(diagonal);
  return elementwise("where", {lower ? column <= edge : column >= edge, x, scalar_like(0, x)}, {}, where);
}

}  // namespace

Tensor tril(const Tensor& x, int diagonal, Where where) { return triangle(x, diagonal, true, "tril", where); }
Tensor triu(const Tensor& x, int diagonal, Where where) { return triangle(x, diagonal, false, "triu", where); }

}  // namespace weft
