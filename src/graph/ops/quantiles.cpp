// Medians and quantiles, of all elements of a line or of those that are not NaN.
#include <fmt/format.h>

#include <cmath>
#include <string>
#include <utility>

#include "graph/describe.hpp"
#include "graph/op_families.hpp"
#include "graph/order.hpp"
#include "weft/ops/indexing.hpp"

namespace weft {

namespace {

Tensor has_nan(const Tensor& x, int axis) { return any(isnan(x), {axis}, {.keepdims = true}); }

/// How many elements along the axis are not NaN, in i32.
Tensor count_of_numbers(const Tensor& x, int axis) {
  return sum(cast(!isnan(x), DType::i32), {axis}, {.keepdims = true});
}

}  // namespace

ValuesAndPositions median(const Tensor& x, int axis, ReduceOptions options, Where where) {
  const int a = graph::filled_axis("median", x, axis, where);
  ValuesAndPositions middle = graph::sorted_ranks("median", x, a, false, (x.dim(a) - 1) / 2, 1, where);
  if (is_float(x.dtype())) {
    // The last rank has a NaN if any has.
    const Tensor broken = has_nan(x, a), at = argmax(isnan(x), a, {.keepdims = true});
    middle = {weft::where(broken, scalar_like(std::nan(""), x), middle.values),
              weft::where(broken, at, middle.positions)};
  }
  return graph::without_axis(middle, a, options, where);
}
Tensor median(const Tensor& x, Where where) { return median(reshape(x, {-1}, where), 0, {}, where).values; }

ValuesAndPositions nanmedian(const Tensor& x, int axis, ReduceOptions options, Where where) {
  const int a = graph::filled_axis("nanmedian", x, axis, where);
  if (!is_float(x.dtype())) return median(x, axis, options, where);
  const auto [values, positions] = sort(x, a, false, where);
  const Tensor last = maximum(count_of_numbers(x, a) - 1.0, 0.0);
  const Tensor rank = cast(floor_divide(last, scalar_like(2, last)), DType::i32);
  return graph::without_axis({take_along_axis(values, rank, a, where), take_along_axis(positions, rank, a, where)}, a,
                             options, where);
}
Tensor nanmedian(const Tensor& x, Where where) { return nanmedian(reshape(x, {-1}, where), 0, {}, where).values; }

namespace {

/// Where a quantile of n sorted elements is: weight of the way from rank `low` to rank `high`.
struct QuantilePlace {
  Extent low, high;
  double weight;
};
QuantilePlace quantile_place(double share, Extent n, QuantileInterpolation interpolation) {
  const double rank = share * static_cast<double>(n - 1);
  QuantilePlace at{static_cast<Extent>(rank), 0, 0};
  at.high = std::min(at.low + 1, n - 1);
  at.weight = rank - static_cast<double>(at.low);
  switch (interpolation) {
    case QuantileInterpolation::linear: break;
    case QuantileInterpolation::lower: at.weight = 0; break;
    case QuantileInterpolation::higher: at.weight = at.weight > 0 ? 1 : 0; break;
    case QuantileInterpolation::nearest: at.weight = std::nearbyint(rank) > static_cast<double>(at.low) ? 1 : 0; break;
    case QuantileInterpolation::midpoint: at.weight = at.weight > 0 ? 0.5 : 0; break;
  }
  if (at.weight == 0) at.high = at.low;
  if (at.weight == 1) at.low = at.high;
  return at;
}

/// The quantile of each sorted line, of which the first `count` elements are numbers and the others NaN.
Tensor quantile_of_numbers(const Tensor& sorted, const Tensor& count, int axis, double share,
                           QuantileInterpolation interpolation, Where where) {
  const DType type = sorted.device().kind == Device::Kind::cpu ? DType::f64 : DType::f32;
  const Tensor last = maximum(cast(count, type, where) - 1.0, 0.0), rank = last * share, low = floor(rank);
  const auto unless_whole = [&](double weight) {
    return weft::where(rank > low, scalar_like(weight, low), scalar_like(0, low));
  };
  Tensor weight;
  switch (interpolation) {
    case QuantileInterpolation::linear: weight = rank - low; break;
    case QuantileInterpolation::lower: weight = zeros_like(low); break;
    case QuantileInterpolation::higher: weight = unless_whole(1); break;
    case QuantileInterpolation::nearest: weight = round(rank) - low; break;
    case QuantileInterpolation::midpoint: weight = unless_whole(0.5); break;
  }
  const auto at = [&](const Tensor& place) {
    return take_along_axis(sorted, cast(place, DType::i32, where), axis, where);
  };
  const Tensor below = at(low), above = at(minimum(low + 1.0, last));
  // One of the two itself where the weight is 0 or 1: between infinities there is nothing to mix.
  const Tensor mixed = below + (above - below) * cast(weight, sorted.dtype(), where);
  const Tensor is_below = eq(weight, scalar_like(0, weight)) | eq(below, above);
  return weft::where(is_below, below, weft::where(eq(weight, scalar_like(1, weight)), above, mixed));
}

Tensor quantiles(std::string_view op, const Tensor& x, const std::vector<double>& q, const Axes& axis,
                 ReduceOptions options, QuantileInterpolation interpolation, bool skips_nan, Where where) {
  if (!x.defined()) throw UsageError(fmt::format("{}: the tensor has no value", op));
  const auto fail = [&](const std::string& fact) { return graph::describe(op, fact, {{"x", x}}, where); };
  if (!is_float(x.dtype())) throw DTypeError(fail("takes floats; cast x"));
  if (axis.size() > 1) throw ShapeError(fail("takes one axis, or none for all elements"));
  for (const double share : q)
    if (!(share >= 0 && share <= 1)) throw UsageError(fail(fmt::format("q is {}, outside of [0, 1]", share)));
  const Tensor lines = axis.empty() ? reshape(x, {x.numel()}, where) : x;
  const int a = graph::filled_axis(op, lines, axis.empty() ? 0 : axis[0], where);
  const Tensor sorted = q.size() == 1 && !skips_nan ? Tensor() : sort(lines, a, false, where).values;
  const Tensor broken = skips_nan ? Tensor() : has_nan(lines, a);
  const Tensor count = skips_nan ? count_of_numbers(lines, a) : Tensor();
  std::vector<Tensor> parts;
  for (const double share : q) {
    Tensor value;
    if (skips_nan) {
      value = quantile_of_numbers(sorted, count, a, share, interpolation, where);
    } else {
      const auto [low, high, weight] = quantile_place(share, lines.dim(a), interpolation);
      const Tensor ranks = sorted.defined()
                               ? narrow(sorted, a, low, high - low + 1, where)
                               : graph::sorted_ranks(op, lines, a, false, low, high - low + 1, where).values;
      const Tensor below = narrow(ranks, a, 0, 1, where);
      value = high > low ? below + (narrow(ranks, a, 1, 1, where) - below) * weight : below;
      value = weft::where(broken, scalar_like(std::nan(""), x), value);
    }
    Shape shape = value.shape();
    if (axis.empty()) shape = Shape(std::vector<Extent>(static_cast<std::size_t>(x.rank()), 1));
    value = reshape(value, shape, where);
    if (!options.keepdims) value = axis.empty() ? reshape(value, {}, where) : squeeze(value, a, where);
    parts.push_back(unsqueeze(value, 0, where));
  }
  return concat(parts, 0, where);
}

}  // namespace

Tensor quantile(const Tensor& x, const std::vector<double>& q, const Axes& axis, ReduceOptions options,
                QuantileInterpolation interpolation, Where where) {
  return quantiles("quantile", x, q, axis, options, interpolation, false, where);
}
Tensor nanquantile(const Tensor& x, const std::vector<double>& q, const Axes& axis, ReduceOptions options,
                   QuantileInterpolation interpolation, Where where) {
  return quantiles("nanquantile", x, q, axis, options, interpolation, true, where);
}
Tensor nanquantile(const Tensor& x, double q, const Axes& axis, ReduceOptions options,
                   QuantileInterpolation interpolation, Where where) {
  return squeeze(nanquantile(x, std::vector<double>{q}, axis, options, interpolation, where), 0, where);
}
Tensor quantile(const Tensor& x, double q, const Axes& axis, ReduceOptions options, QuantileInterpolation interpolation,
                Where where) {
  return squeeze(quantile(x, std::vector<double>{q}, axis, options, interpolation, where), 0, where);
}

namespace graph {
namespace {

CaseInput some_nan() { return {.shape = {2, 4}, .values = {1, std::nan(""), 3, 2, 4, 1, 3, 2}}; }

/// The row of `median`, or of its kin over the elements that are not NaN, which is called by `function`.
template <class F>
OpRow median_row(const std::string& name, std::string doc, F function) {
  return {.name = name,
          .family = "order",
          .inputs = {{"x"}},
          .attributes = {order_axis(), order_keepdims()},
          .result = "that of x; positions i32",
          .several_outputs = true,
          .doc = std::move(doc),
          .torch = fmt::format("(torch.{}(x, axis, keepdims)[0], None)", name),
          .cases = {{"odd rows", {{{6, 51}}}},
                    {"even, over axis 0", {{{36, 5}}}, {{"axis", Extent{0}}}},
                    {"with NaN", {some_nan()}, {{"keepdims", true}}, false},
                    {"integers", {{{6, 11}, -9, 9, DType::i32}}, {}, false}},
          .errors =
              {{"nothing", {{{4, 0}}}, {}, fmt::format("axis -1 is empty, and the {} of nothing has no value", name)}},
          .apply = [function](const Arguments& a) {
            return with_positions(function(a.input(0), a.small("axis"), ReduceOptions{a.boolean("keepdims")}));
          }};
}

/// The row of `quantile`, or of its kin over the elements that are not NaN, which is called by `function`.
template <class F>
OpRow quantile_row(const std::string& name, std::string doc, F function) {
  const auto by = [](double q, const char* interpolation) {
    return CaseAttributes{{"q", q}, {"interpolation", std::string(interpolation)}};
  };
  return {.name = name,
          .family = "order",
          .inputs = {{"x", ops::DTypes::floats}},
          .attributes = {{.name = "q", .type = AttributeType::number, .doc = "share of the elements below"},
                         order_axis(),
                         order_keepdims(),
                         {.name = "interpolation",
                          .type = AttributeType::choice,
                          .default_value = std::string("linear"),
                          .doc = "how to interpolate between two elements",
                          .aliases = {"method"},
                          .choices = {"linear", "lower", "higher", "nearest", "midpoint"}}},
          .doc = std::move(doc),
          .torch = fmt::format("torch.{}(x, q, axis, keepdims, interpolation=interpolation)", name),
          .numpy = fmt::format("np.{}(x, q, axis, method=interpolation)", name),
          .cases = {{"rows", {{{6, 50}}}, {{"q", 0.3}}},
                    {"lower, over axis 0",
                     {{{37, 5}}},
                     {{"q", 0.77}, {"axis", Extent{0}}, {"interpolation", std::string("lower")}}},
                    {"higher", {{{6, 50}}}, {{"q", 0.3}, {"interpolation", std::string("higher")}, {"keepdims", true}}},
                    {"nearest", {{{6, 51}}}, by(0.45, "nearest")},
                    {"midpoint", {{{6, 50}}}, by(0.3, "midpoint")},
                    {"the largest", {{{6, 50}}}, {{"q", 1.0}}},
                    {"with NaN", {some_nan()}, {{"q", 0.5}}, false},
                    {"with NaN, lower", {some_nan()}, by(0.4, "lower"), false}},
          .errors = {{"beyond 1", {{{4}}}, {{"q", 1.5}}, "q is 1.5, outside of [0, 1]"},
                     {"integers", {{{4}, 0, 5, DType::i32}}, {{"q", 0.5}}, "takes floats; cast x"},
                     {"nothing", {{{4, 0}}}, {{"q", 0.5}}, fmt::format("the {} of nothing has no value", name)}},
          .apply = [function](const Arguments& a) {
            return Tensors{function(a.input(0), a.number("q"), a.small("axis"), ReduceOptions{a.boolean("keepdims")},
                                    static_cast<QuantileInterpolation>(a.choice("interpolation")))};
          }};
}

const std::vector<OpRow>& quantile_table() {
  static const std::vector<OpRow> rows = {
      median_row("median",
                 "The element in the middle along an axis, the lower one of two, and where it was; NaN if one is NaN.",
                 [](const auto&... given) { return weft::median(given...); }),
      median_row("nanmedian",
                 "The median of the elements along an axis that are not NaN, and where it was; NaN of none.",
                 [](const auto&... given) { return weft::nanmedian(given...); }),
      quantile_row(
          "quantile",
          "The value below which a share q of the elements along an axis is, at rank q (n - 1); NaN if one is NaN.",
          [](const auto&... given) { return weft::quantile(given...); }),
      quantile_row("nanquantile",
                   "The value below which a share q of the elements along an axis is, NaN left out; NaN of none.",
                   [](const auto&... given) { return weft::nanquantile(given...); }),
  };
  return rows;
}

}  // namespace

OpRows quantile_rows() {
  OpRows rows;
  for (const OpRow& row : quantile_table()) rows.push_back(&row);
  return rows;
}

}  // namespace graph
}  // namespace weft
