// Windows along an axis, and the sum of overlapping windows.
#include <fmt/format.h>

#include "graph/axes.hpp"
#include "graph/describe.hpp"
#include "graph/no_grad.hpp"
#include "graph/op.hpp"
#include "graph/op_families.hpp"
#include "weft/ops.hpp"

namespace weft {

using graph::describe;

Tensor unfold(const Tensor& x, int axis, Extent size, Extent step, Extent dilation, Where where) {
  if (!x.defined()) throw UsageError("unfold: the tensor has no value");
  const int a = graph::normalized_axis("unfold", x, axis, where);
  const auto fail = [&](const std::string& fact) { throw ShapeError(describe("unfold", fact, {{"x", x}}, where)); };
  if (size < 1) fail(fmt::format("windows of {} elements", size));
  if (step < 1) fail(fmt::format("step is {}; it must be at least 1", step));
  if (dilation < 1) fail(fmt::format("dilation is {}; it must be at least 1", dilation));
  const Extent n = x.dim(a);
  if (n == 0 || (size - 1) > (n - 1) / dilation)
    fail(fmt::format("a window of {} elements, {} apart, is longer than axis {} with extent {}; pad x", size, dilation,
                     axis, n));
  return graph::wrap(graph::window(x.node(), a, size, step, dilation));
}

namespace graph {
namespace {

struct OverlapAddAttributes {
  Extent axis = 0, extent = 0, step = 1, dilation = 1;
};

/// `axis` counted from the start, in a result with one axis less than the input.
int result_axis(const Call& c, Extent axis) {
  const int rank = c.input(0).rank() - 1;
  if (rank < 1) c.shape_error("x needs an axis of windows and an axis of their elements");
  if (axis < -rank || axis >= rank) c.shape_error(fmt::format("axis {} is outside of [{}, {})", axis, -rank, rank));
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

Tensor padded_along(const Tensor& x, int axis, Extent before, Extent after) {
  Pairs padding(static_cast<std::size_t>(x.rank()), {0, 0});
  padding[static_cast<std::size_t>(axis)] = {before, after};
  return weft::pad(x, padding);
}

Tensor with_last_axis_at(const Tensor& x, int axis) {
  Axes order;
  for (int i = 0; i + 1 < x.rank(); ++i) order.push_back(i);
  order.insert(order.begin() + axis, x.rank() - 1);
  return weft::permute(x, order);
}

/// Sum over t of x[.., q - t * shift, .., t]: `parts` rows along the last axis, each moved by `shift` more than the one
/// before, with q along `axis` of a result with `extent` elements there.
Tensor shifted_sum(const Tensor& x, int axis, Extent extent, Extent shift) {
  const Extent parts = x.dim(-1), count = x.dim(axis);
  // A few parts are padded and added in one kernel.
  constexpr Extent kAddedPartsMax = 16;
  if (parts <= kAddedPartsMax) {
    Tensor sum;
    for (Extent t = 0; t < parts; ++t) {
      const Tensor part = padded_along(weft::select(x, -1, t), axis, t * shift, extent - count - t * shift);
      sum = sum.defined() ? sum + part : part;
    }
    return sum;
  }
  // Many parts become the rows of a matrix. Rows of `extent + shift` elements, read as rows of `extent`, are each shifted by
  // `shift` from the row before.
  Axes order;
  for (int i = 0; i + 1 < x.rank(); ++i)
    if (i != axis) order.push_back(i);
  order.insert(order.end(), {x.rank() - 1, axis});
  Tensor rows = weft::permute(x, order);
  rows = padded_along(rows, rows.rank() - 1, 0, extent + shift - count);
  Shape shape = rows.shape();
  rows = weft::narrow(weft::flatten(rows, -2, -1), -1, 0, parts * extent);
  shape[shape.rank() - 1] = extent;
  return with_last_axis_at(weft::sum(weft::reshape(rows, shape), {-2}), axis);
}

Tensors overlap_add_parts(const Call& c) {
  const auto a = c.attributes<OverlapAddAttributes>();
  const int axis = result_axis(c, a.axis);
  Tensor x = c.input(0);
  Shape shape = x.shape();
  shape[axis] = a.extent;
  shape = Shape(std::vector<Extent>(shape.begin(), shape.end() - 1));
  if (x.numel() == 0) return {zeros(shape, x.dtype(), x.device())};
  const DType type = x.dtype();
  x = cast(x, compute_type(type));
  if (a.step == 1) return {cast(shifted_sum(x, axis, a.extent, a.dilation), type)};
  // Zeros between the elements turn a dilated window into a plain one.
  if (a.dilation > 1) {
    const Extent span = (x.dim(-1) - 1) * a.dilation + 1;
    x = weft::flatten(padded_along(weft::unsqueeze(x, -1), x.rank(), 0, a.dilation - 1), -2, -1);
    x = weft::narrow(x, -1, 0, span);
  }
  // A position is `step q + r`: element r of part t of window q - t.
  const Extent size = x.dim(-1), parts = (size + a.step - 1) / a.step, blocks = (a.extent + a.step - 1) / a.step;
  x = padded_along(x, x.rank() - 1, 0, parts * a.step - size);
  Shape split = x.shape();
  split[split.rank() - 1] = parts;
  split.push_back(a.step);
  x = weft::transpose(weft::reshape(x, split));  // [.., window, .., r, t]
  const Tensor sums = with_last_axis_at(shifted_sum(x, axis, blocks, 1), axis + 1);
  return {cast(weft::narrow(weft::flatten(sums, axis, axis + 1), axis, 0, a.extent), type)};
}

const OpRow& overlap_add_row() {
  static const OpRow row{
      .name = "overlap_add",
      .family = "window",
      .inputs = {{"x", ops::DTypes::numbers}},
      .attributes = {field("axis", &OverlapAddAttributes::axis, "axis of the windows, and of the result",
                           {.aliases = {"dim"}}),
                     field("extent", &OverlapAddAttributes::extent, "of the result along the axis", {.required = true}),
                     field("step", &OverlapAddAttributes::step, "elements from one window to the next"),
                     field("dilation", &OverlapAddAttributes::dilation, "distance between the elements of a window")},
      .doc = "Adds windows up at their places along an axis; the last axis holds the elements of each.",
      .formula = "y_p = sum_{step i + dilation j = p} x_ij",
      .infer =
          [](const Call& c) {
            const auto a = c.attributes<OverlapAddAttributes>();
            const Tensor& x = c.input(0);
            const int axis = result_axis(c, a.axis);
            if (a.step < 1) c.shape_error(fmt::format("step is {}; it must be at least 1", a.step));
            if (a.dilation < 1) c.shape_error(fmt::format("dilation is {}; it must be at least 1", a.dilation));
            if (a.extent < 0) c.shape_error(fmt::format("extent {} is negative", a.extent));
            // (count - 1) step + (size - 1) dilation < extent, where no product may overflow.
            const Extent gaps = x.dim(axis) - 1, within = x.dim(-1) - 1;
            const bool has_windows = x.numel() > 0;
            if (has_windows && (gaps > a.extent / a.step || within > a.extent / a.dilation ||
                                gaps * a.step + within * a.dilation >= a.extent))
              c.shape_error(
                  fmt::format("{} windows of {} elements, with step {} and dilation {}, do not fit into {} elements",
                              x.dim(axis), x.dim(-1), a.step, a.dilation, a.extent));
            Shape shape = x.shape();
            shape[axis] = a.extent;
            return std::vector<Result>{{x.dtype(), Shape(std::vector<Extent>(shape.begin(), shape.end() - 1))}};
          },
      .decompose = overlap_add_parts,
      .gradient =
          [](const GradientCall& g) {
            const auto a = g.call.attributes<OverlapAddAttributes>();
            const Tensor& x = g.call.input(0);
            const int axis = result_axis(g.call, a.axis);
            if (x.numel() == 0) return Tensors{zeros_like(x)};
            const Tensor windows = weft::unfold(g.gradients[0], axis, x.dim(-1), a.step, a.dilation, g.call.where());
            return Tensors{weft::narrow(windows, axis, 0, x.dim(axis))};
          },
      .cases = {{"overlapping", {{{3, 5, 4}}}, {{"axis", Extent{1}}, {"extent", Extent{8}}}},
                {"with steps and a rest",
                 {{{2, 5, 3, 7}}},
                 {{"axis", Extent{1}}, {"extent", Extent{18}}, {"step", Extent{2}}}},
                {"side by side", {{{2, 5, 3}}}, {{"axis", Extent{-1}}, {"extent", Extent{15}}, {"step", Extent{3}}}},
                {"gaps", {{{4, 2}}}, {{"extent", Extent{13}}, {"step", Extent{3}}}},
                {"dilated", {{{6, 2, 3}}}, {{"extent", Extent{10}}, {"dilation", Extent{2}}}},
                {"dilated with steps",
                 {{{4, 3}}},
                 {{"extent", Extent{16}}, {"step", Extent{2}}, {"dilation", Extent{3}}}},
                {"long windows", {{{2, 9, 40}}}, {{"axis", Extent{1}}, {"extent", Extent{50}}}},
                {"long dilated windows", {{{5, 2, 20}}}, {{"extent", Extent{45}}, {"dilation", Extent{2}}}},
                {"long windows with steps", {{{7, 60}}}, {{"extent", Extent{80}}, {"step", Extent{3}}}},
                {"integers", {{{4, 3}, -9, 9, DType::i32}}, {{"extent", Extent{6}}}, false},
                {"no windows", {{{0, 3}}}, {{"extent", Extent{4}}}}},
      .errors = {{"windows beyond the end", {{{5, 4}}}, {{"extent", Extent{7}}}, "do not fit into 7 elements"},
                 {"one axis", {{{4}}}, {{"extent", Extent{7}}}, "needs an axis of windows"},
                 {"an axis outside", {{{5, 4}}}, {{"axis", Extent{1}}, {"extent", Extent{8}}}, "axis 1 is outside of"},
                 {"no step", {{{5, 4}}}, {{"extent", Extent{8}}, {"step", Extent{0}}}, "step is 0"},
                 {"bools", {{{5, 4}, 0, 1, DType::boolean}}, {{"extent", Extent{8}}}, "bool"}}};
  return row;
}

const OpRow& unfold_row() {
  static const OpRow row{
      .name = "unfold",
      .aliases = {"sliding_window", "sliding_window_view"},
      .family = "window",
      .inputs = {{"x"}},
      .attributes = {{.name = "axis",
                      .type = AttributeType::integer,
                      .doc = "axis to cut windows from",
                      .aliases = {"dim", "dimension"}},
                     {.name = "size", .type = AttributeType::integer, .doc = "elements of a window"},
                     {.name = "step",
                      .type = AttributeType::integer,
                      .default_value = Extent{1},
                      .doc = "elements from one window to the next"},
                     {.name = "dilation",
                      .type = AttributeType::integer,
                      .default_value = Extent{1},
                      .doc = "distance between the elements of a window"}},
      .doc = "Windows along an axis as a view; the elements of each are the last axis.",
      .formula = "y_ij = x_{step i + dilation j}",
      .torch = "x.unfold(axis, (size - 1) * dilation + 1, step)[..., ::dilation]",
      .numpy = "np.lib.stride_tricks.sliding_window_view(x, (size - 1) * dilation + 1, axis)[..., ::dilation]",
      .cases = {{"overlapping", {{{3, 8, 2}}}, {{"axis", Extent{1}}, {"size", Extent{4}}}},
                {"with steps", {{{3, 11}}}, {{"axis", Extent{-1}}, {"size", Extent{3}}, {"step", Extent{2}}}},
                {"side by side", {{{12, 2}}}, {{"axis", Extent{0}}, {"size", Extent{3}}, {"step", Extent{3}}}},
                {"dilated",
                 {{{2, 13}}},
                 {{"axis", Extent{1}}, {"size", Extent{3}}, {"step", Extent{2}}, {"dilation", Extent{4}}}},
                {"one window", {{{5}}}, {{"axis", Extent{0}}, {"size", Extent{5}}}}},
      .errors =
          {{"too long", {{{3, 4}}}, {{"axis", Extent{1}}, {"size", Extent{5}}}, "is longer than axis 1 with extent 4"},
           {"too long dilated",
            {{{3, 4}}},
            {{"axis", Extent{1}}, {"size", Extent{3}}, {"dilation", Extent{2}}},
            "is longer than axis 1"},
           {"no elements", {{{4}}}, {{"axis", Extent{0}}, {"size", Extent{0}}}, "windows of 0 elements"},
           {"no step", {{{4}}}, {{"axis", Extent{0}}, {"size", Extent{2}}, {"step", Extent{0}}}, "step is 0"},
           {"no dilation",
            {{{4}}},
            {{"axis", Extent{0}}, {"size", Extent{2}}, {"dilation", Extent{-1}}},
            "dilation is -1"},
           {"a scalar", {{{}}}, {{"axis", Extent{0}}, {"size", Extent{1}}}, "axis 0 is outside"}},
      .apply = [](const Arguments& a) {
        return Tensors{
            weft::unfold(a.input(0), a.small("axis"), a.integer("size"), a.integer("step"), a.integer("dilation"))};
      }};
  return row;
}

}  // namespace

OpRows window_rows() { return {&unfold_row(), &overlap_add_row()}; }

}  // namespace graph

Tensor overlap_add(const Tensor& x, int axis, Extent extent, Extent step, Extent dilation, Where where) {
  return graph::call(graph::overlap_add_row(), {x}, graph::OverlapAddAttributes{axis, extent, step, dilation}, where);
}

}  // namespace weft
