// Scans: each result along an axis depends on the results before it.
#include "weft/ops/scans.hpp"

#include <fmt/format.h>

#include <cmath>

#include "graph/autocast.hpp"
#include "graph/axes.hpp"
#include "graph/describe.hpp"
#include "graph/no_grad.hpp"
#include "graph/op.hpp"
#include "graph/op_families.hpp"
#include "graph/scan.hpp"
#include "graph/scatter.hpp"

namespace weft {
namespace graph {
namespace {

// Narrow types are combined in their compute type and rounded once.
Tensor call_scan(const OpRow& row, const Tensors& inputs, const ScanAttributes& a, Where where) {
  const bool is_narrow_input = inputs[0].defined() && is_narrow(inputs[0].dtype());
  if (!is_narrow_input) return call(row, inputs, a, where);
  Tensors wide;
  for (const Tensor& x : inputs) wide.push_back(weft::cast(x, compute_type(x.dtype()), where));
  const Tensor result = call(row, wide, a, where);
  const bool stays_wide = autocast_is_on() && is_float(result.dtype());  // the rule of scans in Autocast scopes
  return stays_wide ? result : weft::cast(result, inputs[0].dtype(), where);
}

ValuesAndPositions call_extreme(const OpRow& row, const Tensor& x, const ScanAttributes& a, Where where) {
  if (!x.defined()) throw UsageError(fmt::format("{}: x has no value", row.name));
  const DType type = x.dtype();
  const DType computed = type == DType::boolean ? DType::u32 : compute_type(type);
  const auto nodes = call_nodes(row, {weft::cast(x, computed, where)}, words_of(row.attributes, a), where);
  return {weft::cast(wrap(nodes[0]), type, where), wrap(nodes[1])};
}

/// v moved by `by` places along the axis in the direction of the scan; `fill` comes in.
Tensor moved(const Tensor& v, int axis, bool reverse, Extent by, double fill) {
  const Extent n = v.dim(axis);
  by = std::min(by, n);
  Shape shape = v.shape();
  shape[axis] = by;
  const Tensor kept = weft::narrow(v, axis, reverse ? by : 0, n - by),
               filled = full(shape, fill, v.dtype(), v.device());
  const Tensor parts[] = {reverse ? kept : filled, reverse ? filled : kept};
  return weft::concat(parts, axis);
}

/// Whether a place along the axis has one that is `by` places before it.
Tensor has_before(const Tensor& v, int axis, bool reverse, Extent by) {
  const Tensor place(iota(v.shape(), axis, DType::i32, v.device()));
  return reverse ? place < static_cast<double>(v.dim(axis) - by) : place >= static_cast<double>(by);
}

// By doubling: log2(n) combinations with the values moved by 1, 2, 4, ... places.
template <class Combine>
Tensor by_doubling(const Call& c, double identity, Combine combine) {
  const auto a = c.attributes<ScanAttributes>();
  const int axis = c.axis(a.axis);
  Tensor x = c.input(0);
  if (x.dtype() == DType::boolean) x = weft::cast(x, DType::i32);
  Tensor y = a.exclusive ? moved(x, axis, a.reverse, 1, identity) : x;
  for (Extent by = 1; by < x.dim(axis); by *= 2)
    y = combine(y, moved(y, axis, a.reverse, by, identity), has_before(y, axis, a.reverse, by));
  return y;
}

Tensors extreme_parts(const Call& c, bool largest) {
  const auto a = c.attributes<ScanAttributes>();
  const int axis = c.axis(a.axis);
  const Tensor& x = c.input(0);
  Tensor value = x, position(iota(x.shape(), axis, DType::i32, x.device()));
  for (Extent by = 1; by < x.dim(axis); by *= 2) {
    const Tensor before = moved(value, axis, a.reverse, by, 0);
    Tensor takes = largest ? before > value : before < value;
    if (is_float(x.dtype())) takes = (takes | isnan(before)) & !isnan(value);
    takes = takes & has_before(value, axis, a.reverse, by);
    position = weft::where(takes, moved(position, axis, a.reverse, by, 0), position);
    value = weft::where(takes, before, value);
  }
  return {take_along_axis(x, position, axis), position};
}

std::vector<AttributeSpec> scan_attributes(bool with_exclusive) {
  std::vector<AttributeSpec> specs = {field("axis", &ScanAttributes::axis, "axis of the scan", {.aliases = {"dim"}})};
  if (with_exclusive) specs.push_back(field("exclusive", &ScanAttributes::exclusive, "leaves out the element itself"));
  specs.push_back(field("reverse", &ScanAttributes::reverse, "starts at the end"));
  return specs;
}

std::vector<Result> scan_results(const Call& c) {
  const Tensor& x = c.input(0);
  c.axis(c.attributes<ScanAttributes>().axis);
  return {{x.dtype() == DType::boolean ? DType::i32 : x.dtype(), x.shape()}};
}

std::vector<ErrorCase> scan_errors() {
  return {{"scalar", {{{}}}, {}, "axis -1 is outside of [0, 0)"},
          {"axis beyond the rank", {{{2, 3}}}, {{"axis", Extent{2}}}, "axis 2 is outside of [-2, 2)"}};
}

/// Values of x with a line of distinct numbers, a NaN, and both zeros.
OpCase extremes_with_nan(bool reverse) {
  return {reverse ? "NaN and ties from the end" : "NaN and ties",
          {{.shape = {2, 6}, .values = {1, 3, 3, std::nan(""), 2, 5, -0.0, 0.0, -1, 4, 4, 4}}},
          {{"reverse", reverse}},
          false};
}

// What the row of cummax and that of cummin have in common.
OpRow extreme_row(bool largest, const OpRow& (*row)()) {
  const std::string of = largest ? "cummax" : "cummin";
  return {
      .name = of,
      .aliases = largest ? std::vector<std::string>{"cumulative_max"} : std::vector<std::string>{"cumulative_min"},
      .family = "scan",
      .inputs = {{"x"}},
      .attributes = scan_attributes(false),
      .result = "that of x; positions i32",
      .several_outputs = true,
      .doc = fmt::format("The {} element up to each along an axis, and its position, the last of equal ones.",
                         largest ? "largest" : "smallest"),
      .formula = fmt::format("y_i = {}_{{j <= i}} x_j", largest ? "max" : "min"),
      .torch = fmt::format("(lambda v, i: (v.flip(axis), x.shape[axis] - 1 - i.flip(axis)) if reverse else (v, i))"
                           "(*torch.{}(x.flip(axis) if reverse else x, axis))",
                           of),
      .numpy = largest ? "np.maximum.accumulate(x, axis)" : "np.minimum.accumulate(x, axis)",
      .infer =
          [](const Call& c) {
            c.axis(c.attributes<ScanAttributes>().axis);
            return std::vector<Result>{like(c.input(0)), {DType::i32, c.input(0).shape()}};
          },
      .decompose = [largest](const Call& c) { return extreme_parts(c, largest); },
      .gradient =
          [](const GradientCall& g) {
            const Tensor& x = g.call.input(0);
            const int axis = g.call.axis(g.call.attributes<ScanAttributes>().axis);
            if (!g.gradients[0].defined()) return Tensors{Tensor()};
            return Tensors{Tensor(scatter_add_along(g.results[1].node(), g.gradients[0].node(), axis, x.dim(axis)))};
          },
      .form = KernelForm::routine,
      .cases = {{"rows", {{{6, 50}}}},
                {"over axis 0", {{{37, 5}}}, {{"axis", Extent{0}}}},
                {"in the middle, from the end", {{{3, 9, 4}}}, {{"axis", Extent{1}}, {"reverse", true}}},
                extremes_with_nan(false),
                extremes_with_nan(true),
                {"integers", {{{5, 40}, -9, 9, DType::i32}}, {}, false},
                {"a long row", {{{2, 3000}}}},
                {"nothing", {{{3, 0}}}}},
      .errors = scan_errors(),
      .apply =
          [row](const Arguments& a) {
            const auto [values, positions] =
                call_extreme(row(), a.input(0), {a.integer("axis"), false, a.boolean("reverse")}, {});
            return Tensors{values, positions};
          }};
}

}  // namespace

const OpRow& cumsum_row() {
  static const OpRow row{
      .name = "cumsum",
      .aliases = {"cumulative_sum"},
      .family = "scan",
      .inputs = {{"x"}},
      .attributes = scan_attributes(true),
      .result = "that of x; i32 for bools",
      .doc = "Sums of the elements up to each along an axis. Integers wrap.",
      .formula = "y_i = sum_{j <= i} x_j",
      .torch =
          "(lambda v: v.flip(axis) if reverse else v)((lambda v: v.cumsum(axis) - (v if exclusive else 0))"
          "(x.flip(axis) if reverse else x))",
      .numpy = "np.cumsum(x, axis)",
      .onnx = "CumSum",
      .infer = scan_results,
      .decompose =
          [](const Call& c) {
            return Tensors{
                by_doubling(c, 0, [](const Tensor& y, const Tensor& before, const Tensor&) { return y + before; })};
          },
      .gradient =
          [](const GradientCall& g) {
            auto attributes = g.call.attributes<ScanAttributes>();
            attributes.reverse = !attributes.reverse;
            return Tensors{call(cumsum_row(), {g.gradients[0]}, attributes, g.call.where())};
          },
      .form = KernelForm::routine,
      .cases = {{"rows", {{{6, 50}}}},
                {"over axis 0", {{{37, 5}}}, {{"axis", Extent{0}}}},
                {"in the middle, from the end", {{{3, 9, 4}}}, {{"axis", Extent{1}}, {"reverse", true}}},
                {"exclusive", {{{4, 7}}}, {{"exclusive", true}}},
                {"exclusive from the end", {{{4, 7}}}, {{"exclusive", true}, {"reverse", true}}},
                {"a long row", {{{2, 3000}, -1, 1}}},
                {"integers", {{{5, 40}, -9, 9, DType::i32}}, {}, false},
                {"one element", {{{3, 1}}}},
                {"nothing", {{{3, 0}}}}},
      .errors = scan_errors(),
      .apply =
          [](const Arguments& a) {
            return Tensors{weft::cumsum(a.input(0), a.small("axis"), a.boolean("exclusive"), a.boolean("reverse"))};
          }};
  return row;
}

const OpRow& cumprod_row() {
  static const OpRow row{
      .name = "cumprod",
      .aliases = {"cumulative_prod"},
      .family = "scan",
      .inputs = {{"x"}},
      .attributes = scan_attributes(true),
      .result = "that of x; i32 for bools",
      .doc =
          "Products of the elements up to each along an axis. Integers wrap; the gradient is exact where elements are "
          "0.",
      .formula = "y_i = prod_{j <= i} x_j",
      .torch =
          "(lambda v: v.flip(axis) if reverse else v)((lambda v: torch.cat([torch.ones_like(v.narrow(axis, 0, 1)), "
          "v.cumprod(axis).narrow(axis, 0, v.shape[axis] - 1)], axis) if exclusive else v.cumprod(axis))"
          "(x.flip(axis) if reverse else x))",
      .numpy = "np.cumprod(x, axis)",
      .infer = scan_results,
      .decompose =
          [](const Call& c) {
            return Tensors{
                by_doubling(c, 1, [](const Tensor& y, const Tensor& before, const Tensor&) { return y * before; })};
          },
      .gradient =
          [](const GradientCall& g) {
            // dx_i is the product of the elements before i, times s_i = sum over results j that contain x_i of g_j and the
            // product of the elements after i up to j: s_i = g_i + x_{i+1} s_{i+1}.
            const auto a = g.call.attributes<ScanAttributes>();
            const int axis = g.call.axis(a.axis);
            const Tensor& x = g.call.input(0);
            const Tensor before = call(cumprod_row(), {x}, ScanAttributes{a.axis, true, a.reverse}, g.call.where());
            const Tensor next = moved(x, axis, !a.reverse, 1, 0);
            const Tensor flow = a.exclusive ? moved(g.gradients[0], axis, !a.reverse, 1, 0) : g.gradients[0];
            return Tensors{before * call(linear_recurrence_row(), {next, flow},
                                         ScanAttributes{a.axis, false, !a.reverse}, g.call.where())};
          },
      .form = KernelForm::routine,
      .cases = {{"rows", {{{6, 20}}}},
                {"over axis 0", {{{17, 5}}}, {{"axis", Extent{0}}}},
                {"in the middle, from the end", {{{3, 9, 4}}}, {{"axis", Extent{1}}, {"reverse", true}}},
                {"zeros", {{.shape = {3, 4}, .values = {2, 0, 3, -1, 0, 1.5, 0, 2, 1, 2, -3, 0}}}},
                {"exclusive", {{{4, 7}}}, {{"exclusive", true}}},
                {"exclusive from the end", {{{4, 7}}}, {{"exclusive", true}, {"reverse", true}}},
                {"a long row", {{{2, 3000}, 0.99, 1.01}}},
                {"integers", {{{5, 9}, -9, 9, DType::i32}}, {}, false},
                {"nothing", {{{3, 0}}}}},
      .errors = scan_errors(),
      .apply =
          [](const Arguments& a) {
            return Tensors{weft::cumprod(a.input(0), a.small("axis"), a.boolean("exclusive"), a.boolean("reverse"))};
          }};
  return row;
}

const OpRow& logcumsumexp_row() {
  static const OpRow row{
      .name = "logcumsumexp",
      .family = "scan",
      .inputs = {{"x", ops::DTypes::floats}},
      .attributes = scan_attributes(false),
      .doc = "The logarithm of the sum of e^x up to each element along an axis, without overflow.",
      .formula = "y_i = ln sum_{j <= i} e^x_j",
      .torch = "(lambda v: v.flip(axis) if reverse else v)(torch.logcumsumexp(x.flip(axis) if reverse else x, axis))",
      .numpy = "np.logaddexp.accumulate(x, axis)",
      .infer = scan_results,
      .decompose =
          [](const Call& c) {
            return Tensors{by_doubling(c, 0, [](const Tensor& y, const Tensor& before, const Tensor& has) {
              return weft::where(has, logaddexp(y, before), y);
            })};
          },
      .gradient =
          [](const GradientCall& g) {
            // e^x_i times the sum of g_j e^-y_j from i on. Gradients of either sign are summed in logarithms.
            auto a = g.call.attributes<ScanAttributes>();
            a.reverse = !a.reverse;
            const Tensor &x = g.call.input(0), &flow = g.gradients[0];
            const Tensor none = scalar_like(-kInfinity, x);
            // Where all elements so far are -inf they take no gradient, whatever y is.
            const Tensor y = weft::where(eq(g.results[0], none), scalar_like(0, x), g.results[0]);
            const auto part = [&](double sign) {
              const Tensor size = flow * sign, is_there = size > 0;
              const Tensor logs = weft::where(is_there, log(weft::where(is_there, size, scalar_like(1, x))) - y, none);
              return exp(x + call(logcumsumexp_row(), {logs}, a, g.call.where()));
            };
            return Tensors{part(1) - part(-1)};
          },
      .form = KernelForm::routine,
      .cases = {{"rows", {{{6, 50}, -5, 5}}},
                {"over axis 0", {{{37, 5}}}, {{"axis", Extent{0}}}},
                {"in the middle, from the end", {{{3, 9, 4}}}, {{"axis", Extent{1}}, {"reverse", true}}},
                {"large numbers", {{.shape = {2, 4}, .values = {100, 101, 90, 102, -100, -99, -200, 3}}}},
                {"infinities", {{.shape = {2, 3}, .values = {-INFINITY, -INFINITY, 2, 1, INFINITY, 3}}}, {}, false},
                {"a long row", {{{2, 3000}, -1, 1}}},
                {"nothing", {{{3, 0}}}}},
      .errors = scan_errors(),
      .apply =
          [](const Arguments& a) {
            return Tensors{weft::logcumsumexp(a.input(0), a.small("axis"), a.boolean("reverse"))};
          }};
  return row;
}

const OpRow& cummax_row() {
  static const OpRow row = extreme_row(true, cummax_row);
  return row;
}
const OpRow& cummin_row() {
  static const OpRow row = extreme_row(false, cummin_row);
  return row;
}

const OpRow& linear_recurrence_row() {
  static const OpRow row{
      .name = "linear_recurrence",
      .family = "scan",
      .inputs = {{"a", ops::DTypes::floats}, {"b", ops::DTypes::floats}},
      .attributes = scan_attributes(false),
      .result = "that of a",
      .doc = "Each result is the one before times a, plus b; the first is b.",
      .formula = "y_i = a_i y_{i-1} + b_i",
      .infer =
          [](const Call& c) {
            if (c.input(0).shape() != c.input(1).shape()) c.shape_error("the shapes of a and b differ");
            if (c.input(0).dtype() != c.input(1).dtype()) c.dtype_error("the dtypes of a and b differ; cast one");
            return scan_results(c);
          },
      .decompose =
          [](const Call& c) {  // (a, b) means y -> a y + b; by doubling, as the others
            const auto attributes = c.attributes<ScanAttributes>();
            const int axis = c.axis(attributes.axis);
            Tensor a = c.input(0), b = c.input(1);
            for (Extent by = 1; by < a.dim(axis); by *= 2) {
              b = a * moved(b, axis, attributes.reverse, by, 0) + b;
              a = a * moved(a, axis, attributes.reverse, by, 1);
            }
            return Tensors{b};
          },
      .gradient =
          [](const GradientCall& g) {
            auto a = g.call.attributes<ScanAttributes>();
            const int axis = g.call.axis(a.axis);
            const Tensor before = moved(g.results[0], axis, a.reverse, 1, 0);
            a.reverse = !a.reverse;
            const Tensor next = moved(g.call.input(0), axis, a.reverse, 1, 0);
            const Tensor flow = call(linear_recurrence_row(), {next, g.gradients[0]}, a, g.call.where());
            return Tensors{flow * before, flow};
          },
      .form = KernelForm::routine,
      .cases = {{"rows", {{{6, 50}, -1, 1}, {{6, 50}}}},
                {"over axis 0", {{{37, 5}, -1, 1}, {{37, 5}}}, {{"axis", Extent{0}}}},
                {"in the middle, from the end",
                 {{{3, 9, 4}, -1, 1}, {{3, 9, 4}}},
                 {{"axis", Extent{1}}, {"reverse", true}}},
                {"a long row", {{{2, 3000}, -1, 1}, {{2, 3000}}}},
                {"nothing", {{{3, 0}}, {{3, 0}}}}},
      .errors = {{"shapes that differ", {{{3, 4}}, {{3, 5}}}, {}, "the shapes of a and b differ"},
                 {"axis beyond the rank", {{{2, 3}}, {{2, 3}}}, {{"axis", Extent{2}}}, "axis 2 is outside of"}},
      .apply =
          [](const Arguments& a) {
            return Tensors{weft::linear_recurrence(a.input(0), a.input(1), a.small("axis"), a.boolean("reverse"))};
          }};
  return row;
}

namespace {

const OpRow& diff_row() {
  static const OpRow row{
      .name = "diff",
      .family = "scan",
      .inputs = {{"x"}},
      .attributes = {{.name = "order",
                      .type = AttributeType::integer,
                      .default_value = Extent{1},
                      .doc = "how many times",
                      .aliases = {"n"}},
                     {.name = "axis",
                      .type = AttributeType::integer,
                      .default_value = Extent{-1},
                      .doc = "axis of the neighbours",
                      .aliases = {"dim"}}},
      .doc = "Differences of neighbours along an axis, `order` times.",
      .formula = "y_i = x_{i+1} - x_i",
      .torch = "torch.diff(x, order, axis)",
      .numpy = "np.diff(x, order, axis)",
      .cases = {{"rows", {{{6, 7}}}},
                {"twice over axis 0", {{{6, 7}}}, {{"order", Extent{2}}, {"axis", Extent{0}}}},
                {"none", {{{4}}}, {{"order", Extent{0}}}},
                {"bools", {{{3, 6}, 0, 1, DType::boolean}}, {}, false}},
      .errors = {{"scalar", {{{}}}, {}, "axis -1 is outside of"},
                 {"negative order", {{{4}}}, {{"order", Extent{-1}}}, "order -1 is negative"}},
      .apply = [](const Arguments& a) { return Tensors{weft::diff(a.input(0), a.integer("order"), a.small("axis"))}; }};
  return row;
}

}  // namespace

OpRows scan_rows() {
  return {&cumsum_row(), &cumprod_row(),           &logcumsumexp_row(), &cummax_row(),
          &cummin_row(), &linear_recurrence_row(), &diff_row()};
}

}  // namespace graph

Tensor cumsum(const Tensor& x, int axis, bool exclusive, bool reverse, Where where) {
  return graph::call_scan(graph::cumsum_row(), {x}, {axis, exclusive, reverse}, where);
}
Tensor cumprod(const Tensor& x, int axis, bool exclusive, bool reverse, Where where) {
  return graph::call_scan(graph::cumprod_row(), {x}, {axis, exclusive, reverse}, where);
}
Tensor logcumsumexp(const Tensor& x, int axis, bool reverse, Where where) {
  return graph::call_scan(graph::logcumsumexp_row(), {x}, {axis, false, reverse}, where);
}
ValuesAndPositions cummax(const Tensor& x, int axis, bool reverse, Where where) {
  return graph::call_extreme(graph::cummax_row(), x, {axis, false, reverse}, where);
}
ValuesAndPositions cummin(const Tensor& x, int axis, bool reverse, Where where) {
  return graph::call_extreme(graph::cummin_row(), x, {axis, false, reverse}, where);
}
Tensor linear_recurrence(const Tensor& a, const Tensor& b, int axis, bool reverse, Where where) {
  return graph::call_scan(graph::linear_recurrence_row(), {a, b}, {axis, false, reverse}, where);
}

Tensor diff(const Tensor& x, Extent order, int axis, Where where) {
  if (!x.defined()) throw UsageError("diff: the tensor has no value");
  const int a = graph::normalized_axis("diff", x, axis, where);
  if (order < 0)
    throw UsageError(graph::describe("diff", fmt::format("order {} is negative", order), {{"x", x}}, where));
  Tensor y = x;
  for (Extent i = 0; i < order && y.dim(a) > 0; ++i) {
    const Tensor next = narrow(y, a, 1, y.dim(a) - 1), here = narrow(y, a, 0, y.dim(a) - 1);
    y = x.dtype() == DType::boolean ? next ^ here : next - here;
  }
  return y;
}

}  // namespace weft
