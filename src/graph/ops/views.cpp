// Views: validation, then nodes that move no data.
#include <fmt/format.h>

#include <algorithm>

#include "graph/axes.hpp"
#include "graph/describe.hpp"
#include "graph/no_grad.hpp"
#include "graph/op.hpp"
#include "graph/op_families.hpp"
#include "graph/ops/layout_attributes.hpp"
#include "weft/ops.hpp"

namespace weft {

using graph::describe;
using graph::with_value;

Tensor reshape(const Tensor& x, const Shape& shape, Where where) {
  with_value("reshape", x);
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
  with_value("permute", x);
  const auto axes = graph::normalized_axes("permute", x, order, where);
  if (static_cast<int>(axes.size()) != x.rank())
    throw ShapeError(
        describe("permute", fmt::format("order has {} axes, x has {}", axes.size(), x.rank()), {{"x", x}}, where));
  return graph::wrap(graph::permute(x.node(), {axes.begin(), axes.end()}));
}

Tensor transpose(const Tensor& x, int axis_a, int axis_b, Where where) {
  with_value("transpose", x);
  const int a = graph::normalized_axis("transpose", x, axis_a, where),
            b = graph::normalized_axis("transpose", x, axis_b, where);
  Axes order;
  for (int i = 0; i < x.rank(); ++i) order.push_back(i == a ? b : i == b ? a : i);
  return permute(x, order, where);
}

Tensor expand(const Tensor& x, const Shape& shape, Where where) {
  with_value("expand", x);
  Shape joined;
  if (!graph::broadcast_shapes(x.shape(), shape, joined) || joined != shape)
    throw ShapeError(
        describe("expand", fmt::format("x does not broadcast to {}", shape.to_string()), {{"x", x}}, where));
  return graph::wrap(graph::expand(x.node(), shape));
}

Tensor slice(const Tensor& x, int axis, Extent start, Extent stop, Extent step, Where where) {
  with_value("slice", x);
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
  with_value("narrow", x);
  const int a = graph::normalized_axis("narrow", x, axis, where);
  if (start < 0 || length < 0 || start > x.shape()[a] - length)
    throw ShapeError(describe(
        "narrow",
        fmt::format("[{}, {}+{}) is outside of axis {} with extent {}", start, start, length, axis, x.shape()[a]),
        {{"x", x}}, where));
  return slice(x, a, start, start + length, 1, where);
}

Tensor select(const Tensor& x, int axis, Extent index, Where where) {
  with_value("select", x);
  const int a = graph::normalized_axis("select", x, axis, where);
  const Extent n = x.shape()[a];
  if (index < -n || index >= n)
    throw ShapeError(describe("select", fmt::format("index {} is outside of axis {} with extent {}", index, axis, n),
                              {{"x", x}}, where));
  return squeeze(narrow(x, a, index < 0 ? index + n : index, 1, where), a, where);
}

Tensor flip(const Tensor& x, const Axes& axes, Where where) {
  with_value("flip", x);
  std::vector<Extent> starts(static_cast<std::size_t>(x.rank()), 0), steps(static_cast<std::size_t>(x.rank()), 1);
  for (int a : graph::normalized_axes("flip", x, axes, where)) {
    if (x.shape()[a] == 0) continue;
    starts[static_cast<std::size_t>(a)] = x.shape()[a] - 1;
    steps[static_cast<std::size_t>(a)] = -1;
  }
  return graph::wrap(graph::slice(x.node(), starts, steps, x.shape()));
}

Tensor unsqueeze(const Tensor& x, int axis, Where where) {
  with_value("unsqueeze", x);
  const int rank = x.rank();
  if (axis < -rank - 1 || axis > rank)
    throw ShapeError(
        describe("unsqueeze", fmt::format("axis {} is outside of [{}, {}]", axis, -rank - 1, rank), {{"x", x}}, where));
  std::vector<Extent> extents = x.shape().vector();
  extents.insert(extents.begin() + (axis < 0 ? axis + rank + 1 : axis), 1);
  return reshape(x, Shape(std::move(extents)), where);
}

Tensor squeeze(const Tensor& x, int axis, Where where) {
  with_value("squeeze", x);
  const int a = graph::normalized_axis("squeeze", x, axis, where);
  if (x.shape()[a] != 1)
    throw ShapeError(
        describe("squeeze", fmt::format("axis {} has extent {}, not 1", axis, x.shape()[a]), {{"x", x}}, where));
  std::vector<Extent> extents = x.shape().vector();
  extents.erase(extents.begin() + a);
  return reshape(x, Shape(std::move(extents)), where);
}

Tensor flatten(const Tensor& x, int first, int last, Where where) {
  if (with_value("flatten", x).rank() == 0) return reshape(x, {1}, where);
  const int a = graph::normalized_axis("flatten", x, first, where),
            b = graph::normalized_axis("flatten", x, last, where);
  if (a > b)
    throw ShapeError(
        describe("flatten", fmt::format("first axis {} is after last axis {}", first, last), {{"x", x}}, where));
  Shape shape;
  for (int i = 0; i < a; ++i) shape.push_back(x.shape()[i]);
  Extent joined = 1;
  for (int i = a; i <= b; ++i) joined *= x.shape()[i];
  shape.push_back(joined);
  for (int i = b + 1; i < x.rank(); ++i) shape.push_back(x.shape()[i]);
  return reshape(x, shape, where);
}

namespace graph {
namespace {

const std::vector<OpRow>& rows_of_view() {
  static const std::vector<OpRow> rows = {
      {.name = "reshape",
       .aliases = {"view"},
       .family = "view",
       .inputs = {{"x"}},
       .attributes = {shape_attribute("extents; one may be -1")},
       .doc = "The same elements, row-major, in another shape.",
       .torch = "x.reshape(shape)",
       .onnx = "Reshape",
       .cases = {{"to two axes", {{{6, 7, 5}}}, {{"shape", std::vector<Extent>{7, -1}}}}},
       .errors =
           {{"elements that do not divide", {{{6, 7}}}, {{"shape", std::vector<Extent>{4, -1}}}, "do not divide into"},
            {"sizes beyond 64 bits", {{{0, 3}}}, {{"shape", std::vector<Extent>{0, -1}}}, "do not divide into"}},
       .apply = [](const Arguments& a) { return Tensors{reshape(a.input(0), a.shape("shape"))}; }},
      {.name = "permute",
       .family = "view",
       .inputs = {{"x"}},
       .attributes = {{.name = "order",
                       .type = AttributeType::integers,
                       .doc = "axis i of the result is axis order[i] of x",
                       .aliases = {"axes", "dims"}}},
       .doc = "The axes of x in another order.",
       .torch = "x.permute(order)",
       .onnx = "Transpose",
       .cases = {{"three axes", {{{6, 7, 5}}}, {{"order", std::vector<Extent>{2, 0, 1}}}}},
       .errors = {{"an axis twice", {{{6, 7}}}, {{"order", std::vector<Extent>{0, 0}}}, "axis 0 is given twice"},
                  {"too few", {{{6, 7}}}, {{"order", std::vector<Extent>{0}}}, "order has 1 axes"}},
       .apply = [](const Arguments& a) { return Tensors{permute(a.input(0), a.axes("order"))}; }},
      {.name = "transpose",
       .aliases = {"swapaxes"},
       .family = "view",
       .inputs = {{"x"}},
       .attributes = {{.name = "axis_a",
                       .type = AttributeType::integer,
                       .default_value = Extent{-2},
                       .doc = "one axis",
                       .aliases = {"dim0"}},
                      {.name = "axis_b",
                       .type = AttributeType::integer,
                       .default_value = Extent{-1},
                       .doc = "the other",
                       .aliases = {"dim1"}}},
       .doc = "Swaps two axes, the last two by default.",
       .torch = "x.transpose(axis_a, axis_b)",
       .cases = {{"outer axes", {{{6, 7, 5}}}, {{"axis_a", Extent{0}}, {"axis_b", Extent{2}}}}},
       .errors = {{"an axis outside", {{{6, 7}}}, {{"axis_a", Extent{2}}}, "axis 2 is outside"}},
       .apply =
           [](const Arguments& a) { return Tensors{transpose(a.input(0), a.small("axis_a"), a.small("axis_b"))}; }},
      {.name = "expand",
       .aliases = {"broadcast_to"},
       .family = "view",
       .inputs = {{"x"}},
       .attributes = {shape_attribute("extents to broadcast to")},
       .doc = "x repeated along extents of 1 and new leading axes; the gradient sums over the repeats.",
       .torch = "x.expand(shape)",
       .onnx = "Expand",
       .cases = {{"a new axis and an extent of 1", {{{6, 1, 5}}}, {{"shape", std::vector<Extent>{3, 6, 7, 5}}}}},
       .errors = {{"extents that differ", {{{6, 2}}}, {{"shape", std::vector<Extent>{6, 3}}}, "does not broadcast"}},
       .apply = [](const Arguments& a) { return Tensors{expand(a.input(0), a.shape("shape"))}; }},
      {.name = "slice",
       .family = "view",
       .inputs = {{"x"}},
       .attributes = {axis_attribute("axis to cut"),
                      {.name = "start",
                       .type = AttributeType::integer,
                       .default_value = Extent{0},
                       .doc = "first position; negative ones count from the end"},
                      {.name = "stop",
                       .type = AttributeType::integer,
                       .default_value = std::monostate{},
                       .doc = "position to stop before; null: through the end",
                       .aliases = {"end"}},
                      {.name = "step",
                       .type = AttributeType::integer,
                       .default_value = Extent{1},
                       .doc = "distance from one to the next; may be negative"}},
       .doc = "Elements start, start+step, ... before stop along an axis, clipped as in Python.",
       .onnx = "Slice",
       .cases = {{"backwards",
                  {{{6, 7, 5}}},
                  {{"axis", Extent{1}}, {"start", Extent{-2}}, {"stop", Extent{-7}}, {"step", Extent{-2}}}},
                 {"every third", {{{10, 3}}}, {{"axis", Extent{0}}, {"start", Extent{1}}, {"step", Extent{3}}}},
                 {"nothing", {{{4, 3}}}, {{"axis", Extent{0}}, {"start", Extent{3}}, {"stop", Extent{2}}}}},
       .errors = {{"step 0", {{{4}}}, {{"axis", Extent{0}}, {"step", Extent{0}}}, "step is 0"},
                  {"no axis", {{{4}}}, {}, "attribute axis is missing"}},
       .apply =
           [](const Arguments& a) {
             return Tensors{slice(a.input(0), a.small("axis"), a.integer_or("start", 0), a.integer_or("stop", kEnd),
                                  a.integer("step"))};
           }},
      {.name = "narrow",
       .family = "view",
       .inputs = {{"x"}},
       .attributes = {axis_attribute("axis to cut"),
                      {.name = "start", .type = AttributeType::integer, .doc = "first position"},
                      {.name = "length", .type = AttributeType::integer, .doc = "number of elements"}},
       .doc = "`length` elements from `start` along an axis.",
       .torch = "x.narrow(axis, start, length)",
       .cases = {{"in the middle", {{{6, 7}}}, {{"axis", Extent{1}}, {"start", Extent{2}}, {"length", Extent{3}}}}},
       .errors = {{"beyond the end",
                   {{{6, 7}}},
                   {{"axis", Extent{1}}, {"start", Extent{5}}, {"length", Extent{3}}},
                   "is outside of axis 1"}},
       .apply =
           [](const Arguments& a) {
             return Tensors{narrow(a.input(0), a.small("axis"), a.integer("start"), a.integer("length"))};
           }},
      {.name = "select",
       .family = "view",
       .inputs = {{"x"}},
       .attributes = {axis_attribute("axis to remove"),
                      {.name = "index", .type = AttributeType::integer, .doc = "position; may be negative"}},
       .doc = "Element `index` along an axis, the axis removed.",
       .torch = "x.select(axis, index)",
       .cases = {{"from the end", {{{6, 7, 5}}}, {{"axis", Extent{0}}, {"index", Extent{-1}}}}},
       .errors = {{"beyond the end", {{{6}}}, {{"axis", Extent{0}}, {"index", Extent{6}}}, "index 6 is outside"}},
       .apply = [](const Arguments& a) { return Tensors{select(a.input(0), a.small("axis"), a.integer("index"))}; }},
      {.name = "flip",
       .family = "view",
       .inputs = {{"x"}},
       .attributes = {{.name = "axes",
                       .type = AttributeType::integers,
                       .doc = "axes to reverse",
                       .aliases = {"axis", "dims", "dim"}}},
       .doc = "x reversed along the axes.",
       .torch = "x.flip(axes)",
       .cases = {{"two axes", {{{6, 7, 5}}}, {{"axes", std::vector<Extent>{0, 2}}}}},
       .errors = {{"an axis outside", {{{6}}}, {{"axes", std::vector<Extent>{1}}}, "axis 1 is outside"}},
       .apply = [](const Arguments& a) { return Tensors{flip(a.input(0), a.axes("axes"))}; }},
      {.name = "unsqueeze",
       .aliases = {"expand_dims"},
       .family = "view",
       .inputs = {{"x"}},
       .attributes = {axis_attribute("place of the new axis")},
       .doc = "A new axis of extent 1.",
       .torch = "x.unsqueeze(axis)",
       .onnx = "Unsqueeze",
       .cases = {{"at the end", {{{6, 7}}}, {{"axis", Extent{-1}}}}},
       .errors = {{"outside", {{{6}}}, {{"axis", Extent{3}}}, "axis 3 is outside"}},
       .apply = [](const Arguments& a) { return Tensors{unsqueeze(a.input(0), a.small("axis"))}; }},
      {.name = "squeeze",
       .family = "view",
       .inputs = {{"x"}},
       .attributes = {axis_attribute("axis of extent 1 to remove")},
       .doc = "An axis of extent 1 removed.",
       .torch = "x.squeeze(axis)",
       .onnx = "Squeeze",
       .cases = {{"in the middle", {{{6, 1, 7}}}, {{"axis", Extent{1}}}}},
       .errors = {{"an extent that is not 1", {{{6, 2}}}, {{"axis", Extent{1}}}, "axis 1 has extent 2, not 1"}},
       .apply = [](const Arguments& a) { return Tensors{squeeze(a.input(0), a.small("axis"))}; }},
      {.name = "flatten",
       .family = "view",
       .inputs = {{"x"}},
       .attributes = {{.name = "first",
                       .type = AttributeType::integer,
                       .default_value = Extent{0},
                       .doc = "first axis",
                       .aliases = {"start_dim"}},
                      {.name = "last",
                       .type = AttributeType::integer,
                       .default_value = Extent{-1},
                       .doc = "last axis",
                       .aliases = {"end_dim"}}},
       .doc = "Axes [first, last] become one.",
       .torch = "x.flatten(first, last)",
       .onnx = "Flatten",
       .cases = {{"the last two", {{{6, 7, 5}}}, {{"first", Extent{1}}}}},
       .errors =
           {{"in the wrong order", {{{6, 7}}}, {{"first", Extent{1}}, {"last", Extent{0}}}, "is after last axis"}},
       .apply = [](const Arguments& a) { return Tensors{flatten(a.input(0), a.small("first"), a.small("last"))}; }},
  };
  return rows;
}

}  // namespace

OpRows view_rows() {
  OpRows list;
  for (const OpRow& row : rows_of_view()) list.push_back(&row);
  return list;
}

}  // namespace graph

}  // namespace weft
