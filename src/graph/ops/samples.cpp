// Integrals and derivatives of samples: sums and differences of neighbours.
#include "weft/ops/samples.hpp"

#include <fmt/format.h>

#include <cmath>

#include "graph/axes.hpp"
#include "graph/describe.hpp"
#include "graph/op.hpp"
#include "graph/op_families.hpp"

namespace weft {

using graph::describe;

namespace {

/// Samples along an axis, and the distance of each from the next.
struct SampledLine {
  int axis;
  DType type;       // of the result
  Tensor y;         // in the type that is computed in
  Tensor distance;  // undefined: `step`
  double step;
};

Tensor coordinates_of(std::string_view op, const Tensor& y, const Spacing& spacing, Where where) {
  const Tensor& x = spacing.coordinates;
  if (x.device() != y.device())
    throw DeviceError(
        describe(op, "operands on different devices; move one with .to(device)", {{"y", y}, {"x", x}}, where));
  return x;
}

DType type_of_samples(const Tensor& y) { return is_float(y.dtype()) ? y.dtype() : DType::f32; }

SampledLine sampled_line(std::string_view op, const Tensor& y, const Spacing& spacing, int axis, Where where) {
  if (!y.defined()) throw UsageError(fmt::format("{}: y has no value", op));
  if (y.dtype() == DType::boolean) throw DTypeError(describe(op, "takes numbers; cast y", {{"y", y}}, where));
  SampledLine line{graph::normalized_axis(op, y, axis, where), type_of_samples(y), {}, {}, spacing.distance};
  line.y = cast(y, compute_type(line.type), where);
  if (!spacing.coordinates.defined()) return line;
  Tensor x = coordinates_of(op, y, spacing, where);
  if (is_float(x.dtype())) line.type = promote(line.type, x.dtype());
  x = cast(x, compute_type(line.type), where);
  const Extent n = y.dim(line.axis);
  if (x.rank() == 1) {
    Shape along(std::vector<Extent>(static_cast<std::size_t>(y.rank()), 1));
    along[line.axis] = x.dim(0);
    x = reshape(x, along, where);
  }
  Shape shape;
  const auto fail = [&] {
    return ShapeError(describe(op, fmt::format("the coordinates do not fit {} samples along axis {} of y", n, axis),
                               {{"y", y}, {"x", spacing.coordinates}}, where));
  };
  if (!graph::broadcast_shapes(y.shape(), x.shape(), shape) || shape.rank() != y.rank() || shape[line.axis] != n)
    throw fail();
  const int own = line.axis - (y.rank() - x.rank());  // the axis of x
  if (own < 0 || x.dim(own) != n) throw fail();
  line.distance = n > 0 ? narrow(x, own, 1, n - 1, where) - narrow(x, own, 0, n - 1, where) : x;
  return line;
}

/// The areas between neighbours.
Tensor areas(const SampledLine& line, Where where) {
  const Extent n = line.y.dim(line.axis), count = n > 0 ? n - 1 : 0;
  const Tensor pairs = narrow(line.y, line.axis, n - count, count, where) + narrow(line.y, line.axis, 0, count, where);
  return line.distance.defined() ? pairs * line.distance * 0.5 : pairs * (0.5 * line.step);
}

/// The derivative along one axis, for distances that are a number, a scalar, or one for each pair of neighbours.
Tensor derivative(const SampledLine& line, int edge_order, Where where) {
  const int axis = line.axis;
  const Extent n = line.y.dim(axis);
  const auto samples = [&](Extent from, Extent count) { return narrow(line.y, axis, from, count, where); };
  std::vector<Tensor> parts(3);
  if (!line.distance.defined() || line.distance.rank() == 0) {
    const auto over = [&](const Tensor& difference, double steps) {
      return line.distance.defined() ? difference / (line.distance * steps) : difference * (1 / (line.step * steps));
    };
    parts[1] = over(samples(2, n - 2) - samples(0, n - 2), 2);
    if (edge_order == 1) {
      parts[0] = over(samples(1, 1) - samples(0, 1), 1);
      parts[2] = over(samples(n - 1, 1) - samples(n - 2, 1), 1);
    } else {
      parts[0] = over(samples(1, 1) * 4.0 - samples(0, 1) * 3.0 - samples(2, 1), 2);
      parts[2] = over(samples(n - 1, 1) * 3.0 - samples(n - 2, 1) * 4.0 + samples(n - 3, 1), 2);
    }
  } else {
    const int own = axis - (line.y.rank() - line.distance.rank());
    const auto gaps = [&](Extent from, Extent count) { return narrow(line.distance, own, from, count, where); };
    // The slope at an end or in the middle of the parabola through three samples, from the two slopes between them.
    const auto slope = [&](Extent from, Extent count) {
      return (samples(from + 1, count) - samples(from, count)) / gaps(from, count);
    };
    {
      const Tensor before = gaps(0, n - 2), after = gaps(1, n - 2);
      parts[1] = (slope(0, n - 2) * after + slope(1, n - 2) * before) / (before + after);
    }
    if (edge_order == 1) {
      parts[0] = slope(0, 1);
      parts[2] = slope(n - 2, 1);
    } else {
      const Tensor first = gaps(0, 1), second = gaps(1, 1), next = gaps(n - 3, 1), last = gaps(n - 2, 1);
      parts[0] = slope(0, 1) - (slope(1, 1) - slope(0, 1)) * first / (first + second);
      parts[2] = slope(n - 2, 1) + (slope(n - 2, 1) - slope(n - 3, 1)) * last / (next + last);
    }
  }
  return concat(parts, axis, where);
}

}  // namespace

Tensor trapezoid(const Tensor& y, const Spacing& spacing, int axis, Where where) {
  const SampledLine line = sampled_line("trapezoid", y, spacing, axis, where);
  return cast(sum(areas(line, where), line.axis, {}, where), line.type, where);
}

Tensor cumulative_trapezoid(const Tensor& y, const Spacing& spacing, int axis, Where where) {
  const SampledLine line = sampled_line("cumulative_trapezoid", y, spacing, axis, where);
  return cast(cumsum(areas(line, where), line.axis, false, false, where), line.type, where);
}

std::vector<Tensor> gradient(const Tensor& y, const std::vector<Spacing>& spacings, const Axes& axes, int edge_order,
                             Where where) {
  if (!y.defined()) throw UsageError("gradient: y has no value");
  const auto fail = [&](const std::string& fact) { return describe("gradient", fact, {{"y", y}}, where); };
  if (edge_order != 1 && edge_order != 2)
    throw UsageError(fail(fmt::format("edge_order is {}; it must be 1 or 2", edge_order)));
  Axes all = axes;
  for (int a = 0; axes.empty() && a < y.rank(); ++a) all.push_back(a);
  const std::vector<int> along = graph::normalized_axes("gradient", y, all, where);
  if (spacings.size() > 1 && spacings.size() != along.size())
    throw UsageError(fail(fmt::format("{} spacings for {} axes", spacings.size(), along.size())));
  std::vector<Tensor> results;
  for (std::size_t i = 0; i < along.size(); ++i) {
    Spacing spacing = spacings.empty() ? Spacing() : spacings[spacings.size() == 1 ? 0 : i];
    if (y.dim(along[i]) <= edge_order)
      throw ShapeError(fail(fmt::format("axis {} has {} samples; edge_order {} takes at least {}", along[i],
                                        y.dim(along[i]), edge_order, edge_order + 1)));
    Tensor distance;  // a spacing of rank 0
    if (spacing.coordinates.defined() && spacing.coordinates.rank() == 0) std::swap(distance, spacing.coordinates);
    if (spacing.coordinates.defined() && spacing.coordinates.rank() != 1)
      throw ShapeError(describe("gradient", "coordinates are not [n]", {{"y", y}, {"x", spacing.coordinates}}, where));
    SampledLine line = sampled_line("gradient", y, spacing, along[i], where);
    if (distance.defined()) {
      if (is_float(distance.dtype())) line.type = promote(line.type, distance.dtype());
      line.distance = cast(distance, compute_type(line.type), where);
    }
    results.push_back(cast(derivative(line, edge_order, where), line.type, where));
  }
  return results;
}

namespace graph {
namespace {

AttributeSpec axis_of_samples() {
  return {.name = "axis",
          .type = AttributeType::integer,
          .default_value = Extent{-1},
          .doc = "axis of the samples",
          .aliases = {"dim"}};
}
AttributeSpec distance_of_samples(std::string name, std::vector<std::string> aliases) {
  return {.name = std::move(name),
          .default_value = 1.0,
          .doc = "distance from one sample to the next, without coordinates",
          .aliases = std::move(aliases)};
}
Spacing spacing_of(const Arguments& a, std::string_view distance) {
  return a.input(1).defined() ? Spacing(a.input(1)) : Spacing(a.number(distance));
}
CaseInput some_coordinates(Shape shape) {
  CaseInput input{.shape = std::move(shape)};
  const Extent n = input.shape.numel();
  for (Extent i = 0; i < n; ++i) input.values.push_back(static_cast<double>(i) + static_cast<double>(i * 5 % 7) / 8);
  return input;
}
CaseInput no_coordinates() { return {.shape = {}, .absent = true}; }

std::vector<OpCase> cases_of_trapezoids() {
  return {{"at equal distances", {{{6, 5}}, no_coordinates()}, {{"dx", 0.5}}},
          {"at coordinates", {{{6, 5}}, some_coordinates({5})}},
          {"along axis 0", {{{6, 5}}, some_coordinates({6, 1})}, {{"axis", Extent{0}}}},
          {"at coordinates of each line", {{{3, 4}}, some_coordinates({3, 4})}},
          {"one sample", {{{6, 1}}, no_coordinates()}}};
}
std::vector<ErrorCase> errors_of_trapezoids() {
  return {{"an axis outside", {{{5}}, no_coordinates()}, {{"axis", Extent{1}}}, "axis 1 is outside of [-1, 1)"},
          {"coordinates of another length",
           {{{6, 5}}, {{4}}},
           {},
           "the coordinates do not fit 5 samples along axis -1 of y"},
          {"bools", {{{5}, 0, 1, DType::boolean}, no_coordinates()}, {}, "takes"}};
}

const std::vector<OpRow>& rows_of_samples() {
  static const std::vector<OpRow> rows = {
      {.name = "trapezoid",
       .aliases = {"trapz"},
       .family = "statistics",
       .inputs = {{"y", ops::DTypes::numbers}, {.name = "x", .dtypes = ops::DTypes::numbers, .optional = true}},
       .attributes = {distance_of_samples("dx", {}), axis_of_samples()},
       .result = "float",
       .doc = "The area below lines through samples along an axis, at coordinates x or at equal distances.",
       .formula = "a = sum_i (x_{i+1} - x_i) (y_i + y_{i+1}) / 2",
       .torch = "torch.trapezoid(y, x, dim=axis) if x is not None else torch.trapezoid(y, dx=dx, dim=axis)",
       .numpy = "np.trapz(y, x, dx, axis)",
       .cases = cases_of_trapezoids(),
       .errors = errors_of_trapezoids(),
       .apply =
           [](const Arguments& a) {
             return Tensors{weft::trapezoid(a.input(0), spacing_of(a, "dx"), a.small("axis"))};
           }},
      {.name = "cumulative_trapezoid",
       .family = "statistics",
       .inputs = {{"y", ops::DTypes::numbers}, {.name = "x", .dtypes = ops::DTypes::numbers, .optional = true}},
       .attributes = {distance_of_samples("dx", {}), axis_of_samples()},
       .result = "float",
       .doc = "The areas below lines through samples along an axis, up to each sample but the first.",
       .formula = "a_k = sum_{i <= k} (x_{i+1} - x_i) (y_i + y_{i+1}) / 2",
       .torch = "torch.cumulative_trapezoid(y, x, dim=axis) if x is not None else "
                "torch.cumulative_trapezoid(y, dx=dx, dim=axis)",
       .cases = cases_of_trapezoids(),
       .errors = errors_of_trapezoids(),
       .apply =
           [](const Arguments& a) {
             return Tensors{weft::cumulative_trapezoid(a.input(0), spacing_of(a, "dx"), a.small("axis"))};
           }},
      {.name = "gradient",
       .family = "statistics",
       .inputs = {{"y", ops::DTypes::numbers},
                  {.name = "coordinates", .dtypes = ops::DTypes::numbers, .optional = true, .repeated = true}},
       .attributes = {distance_of_samples("spacing", {"dx"}),
                      {.name = "axes",
                       .type = AttributeType::integers,
                       .default_value = std::vector<Extent>{},
                       .doc = "axes to differentiate along; none given: all of them",
                       .aliases = {"axis", "dim"}},
                      {.name = "edge_order",
                       .type = AttributeType::integer,
                       .default_value = Extent{1},
                       .doc = "1: a line at the ends; 2: a parabola"}},
       .result = "float",
       .several_outputs = true,
       .doc = "Derivatives of samples along axes, an output each; coordinates [n], or a distance, for each axis.",
       .formula = "d_i = (y_{i+1} - y_{i-1}) / 2h",
       .torch = "torch.gradient(y, spacing=coordinates or spacing, dim=axes or None, edge_order=edge_order) if not "
                "any(c is None for c in coordinates) else torch.gradient(y, spacing=spacing, dim=axes or None, "
                "edge_order=edge_order)",
       .numpy = "np.gradient(y, *coordinates, axis=axes, edge_order=edge_order)",
       .cases = {{"both axes", {{{6, 5}}, no_coordinates()}, {{"spacing", 0.5}}},
                 {"parabolas at the ends",
                  {{{6, 5}}, no_coordinates()},
                  {{"axes", std::vector<Extent>{1}}, {"edge_order", Extent{2}}}},
                 {"at coordinates", {{{6, 5}}, some_coordinates({6}), some_coordinates({5})}},
                 {"at coordinates, parabolas at the ends",
                  {{{2, 6}}, some_coordinates({6})},
                  {{"axes", std::vector<Extent>{1}}, {"edge_order", Extent{2}}}},
                 {"two samples", {{{2, 3}}, no_coordinates()}, {{"axes", std::vector<Extent>{0}}}}},
       .errors = {{"another order",
                   {{{5}}, no_coordinates()},
                   {{"edge_order", Extent{3}}},
                   "edge_order is 3; it must be 1 or 2"},
                  {"too few samples",
                   {{{6, 2}}, no_coordinates()},
                   {{"edge_order", Extent{2}}},
                   "axis 1 has 2 samples; edge_order 2 takes at least 3"},
                  {"too many spacings", {{{6}}, {{6}}, {{6}}}, {}, "2 spacings for 1 axes"},
                  {"coordinates of another length", {{{6}}, {{5}}}, {}, "the coordinates do not fit 6 samples"},
                  {"a grid of coordinates", {{{6, 5}}, {{6, 5}}}, {}, "coordinates are not [n]"}},
       .apply =
           [](const Arguments& a) {
             std::vector<Spacing> spacings;
             for (std::size_t i = 1; i < a.inputs().size(); ++i)
               if (a.input(i).defined()) spacings.emplace_back(a.input(i));
             if (spacings.empty()) spacings.emplace_back(a.number("spacing"));
             return weft::gradient(a.input(0), spacings, a.axes("axes"), a.small("edge_order"));
           }},
  };
  return rows;
}

}  // namespace

OpRows sample_rows() {
  OpRows list;
  for (const OpRow& row : rows_of_samples()) list.push_back(&row);
  return list;
}

}  // namespace graph

}  // namespace weft
