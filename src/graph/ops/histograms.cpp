// Histograms: the bin of each element, and how many elements are in each bin.
#include <fmt/format.h>

#include <cmath>

#include "graph/describe.hpp"
#include "graph/op.hpp"
#include "graph/op_families.hpp"
#include "weft/ops/order.hpp"

namespace weft {

using graph::describe;

namespace {

using HistogramOperands = std::vector<std::pair<std::string, Tensor>>;

/// The bin of each element, -1 outside of all; the edges of the bins.
struct Binned {
  Tensor at, edges;
  Extent bins;
};

DType type_of_bins(const Tensor& x) { return is_float(x.dtype()) ? compute_type(x.dtype()) : DType::f32; }

void check_range(std::string_view op, Extent bins, double low, double high, const HistogramOperands& operands,
                 Where where) {
  if (bins < 1) throw ShapeError(describe(op, fmt::format("{} bins", bins), operands, where));
  if (!(low <= high) || !std::isfinite(high - low))
    throw UsageError(describe(op, fmt::format("the range is [{}, {}]", low, high), operands, where));
}

/// `bins` equal parts of [low, high], or of the range of v [n] where both are equal.
Binned equal_bins(const Tensor& v, Extent bins, double low, double high) {
  const DType type = v.dtype();
  Tensor from = full({}, low, type, v.device()), to = full({}, high, type, v.device());
  if (low == high && v.numel() > 0) {
    from = amin(v), to = amax(v);
    const Tensor widened = weft::where(eq(from, to), full({}, 0.5, type, v.device()), full({}, 0, type, v.device()));
    from = from - widened, to = to + widened;
  } else if (low == high) {
    to = to + 1.0;
  }
  const Tensor width = to - from, count = full({}, static_cast<double>(bins), type, v.device());
  const Tensor bin = minimum(cast((v - from) / width * count, DType::i32),
                             full({}, static_cast<double>(bins - 1), DType::i32, v.device()));
  const Tensor at = weft::where((v >= from) & (v <= to), bin, scalar_like(-1, bin));
  const Tensor edge = cast(arange(bins + 1, DType::i32, v.device()), type);
  return {at, from + edge / count * width, bins};
}

/// The bins between neighbouring edges, the last one closed.
Binned bins_between(std::string_view op, const Tensor& v, const Tensor& edges, const HistogramOperands& operands,
                    Where where) {
  if (edges.rank() != 1 || edges.dim(0) < 2)
    throw ShapeError(describe(op, "edges are not [bins + 1]", operands, where));
  if (edges.device() != v.device())
    throw DeviceError(describe(op, "operands on different devices; move one with .to(device)", operands, where));
  const Tensor sorted = cast(edges, v.dtype(), where);
  const Extent bins = edges.dim(0) - 1;
  const Tensor at = searchsorted(sorted, v, /*right=*/true, where) - 1.0;
  const Tensor last = narrow(sorted, 0, bins, 1, where);
  const Tensor bin = minimum(at, static_cast<double>(bins - 1));
  return {weft::where(v <= last, bin, scalar_like(-1, bin)), sorted, bins};
}

/// Counts, or sums of weights, over the sum of all and the sizes of the bins.
Tensor as_density(const Tensor& counts, const std::vector<Binned>& axes, DType type, Where where) {
  Tensor density = cast(counts, type, where);
  density = density / sum(density);
  for (std::size_t a = 0; a < axes.size(); ++a) {
    const Tensor& edges = axes[a].edges;
    const Tensor width = narrow(edges, 0, 1, axes[a].bins, where) - narrow(edges, 0, 0, axes[a].bins, where);
    Shape along(std::vector<Extent>(axes.size(), 1));
    along[static_cast<int>(a)] = axes[a].bins;
    density = density / reshape(width, along, where);
  }
  return density;
}

/// Sums over the elements of each bin of all axes.
Tensor counted(const std::vector<Binned>& axes, const Tensor& weights, Where where) {
  Tensor at;
  Shape shape;
  for (const Binned& each : axes) {
    if (at.defined()) {
      const Tensor next = at * static_cast<double>(each.bins) + each.at;
      at = weft::where((at < 0.0) | (each.at < 0.0), scalar_like(-1, next), next);
    } else {
      at = each.at;
    }
    shape.push_back(each.bins);
  }
  const Tensor each =
      weights.defined() ? reshape(weights, {at.dim(0)}, where) : ones({at.dim(0)}, DType::i32, at.device());
  return reshape(scatter_add(at, each, shape.numel(), where), shape, where);
}

HistogramOperands histogram_operands(std::string_view op, const Tensor& x, const Tensor& weights) {
  if (!x.defined()) throw UsageError(fmt::format("{}: the tensor has no value", op));
  HistogramOperands operands = {{"x", x}};
  if (weights.defined()) operands.emplace_back("weights", weights);
  return operands;
}
void check_weights(std::string_view op, const Shape& shape, const Tensor& weights, const HistogramOperands& operands,
                   Where where) {
  if (weights.defined() && weights.shape() != shape)
    throw ShapeError(describe(op, "the shapes of x and weights differ", operands, where));
}
Tensor flat_in_type(const Tensor& x, Where where) {
  return cast(reshape(x, {x.numel()}, where), type_of_bins(x), where);
}

Histogram histogram_of(const Binned& binned, const Tensor& weights, bool density, Where where) {
  const Tensor counts = counted({binned}, weights, where);
  return {density ? as_density(counts, {binned}, binned.edges.dtype(), where) : counts, binned.edges};
}

}  // namespace

Histogram histogram(const Tensor& x, Extent bins, double low, double high, const Tensor& weights, bool density,
                    Where where) {
  const HistogramOperands operands = histogram_operands("histogram", x, weights);
  check_range("histogram", bins, low, high, operands, where);
  check_weights("histogram", x.shape(), weights, operands, where);
  return histogram_of(equal_bins(flat_in_type(x, where), bins, low, high), weights, density, where);
}

Histogram histogram(const Tensor& x, const Tensor& edges, const Tensor& weights, bool density, Where where) {
  HistogramOperands operands = histogram_operands("histogram", x, weights);
  check_weights("histogram", x.shape(), weights, operands, where);
  if (!edges.defined()) throw UsageError("histogram: edges have no value");
  operands.emplace_back("edges", edges);
  return histogram_of(bins_between("histogram", flat_in_type(x, where), edges, operands, where), weights, density,
                      where);
}

Tensor histc(const Tensor& x, Extent bins, double low, double high, Where where) {
  const HistogramOperands operands = histogram_operands("histc", x, {});
  check_range("histc", bins, low, high, operands, where);
  return cast(counted({equal_bins(flat_in_type(x, where), bins, low, high)}, {}, where), x.dtype(), where);
}

HistogramOfPoints histogramdd(const Tensor& x, const HistogramOptions& o, Where where) {
  HistogramOperands operands = histogram_operands("histogramdd", x, o.weights);
  const auto fail = [&](const std::string& fact) { return ShapeError(describe("histogramdd", fact, operands, where)); };
  if (x.rank() < 2 || x.dim(-1) == 0) throw fail("points are rows: x is [..., coordinates]");
  const auto d = static_cast<std::size_t>(x.dim(-1));
  check_weights("histogramdd", Shape(std::vector<Extent>(x.shape().begin(), x.shape().end() - 1)), o.weights, operands,
                where);
  if (!o.edges.empty() && o.edges.size() != d)
    throw fail(fmt::format("edges of {} axes for {} coordinates", o.edges.size(), d));
  if (o.edges.empty() && o.bins.size() != 1 && o.bins.size() != d)
    throw fail(fmt::format("bins of {} axes for {} coordinates", o.bins.size(), d));
  if (o.ranges.size() > 1 && o.ranges.size() != d)
    throw fail(fmt::format("ranges of {} axes for {} coordinates", o.ranges.size(), d));
  const Tensor points = reshape(x, {x.numel() / x.dim(-1), x.dim(-1)}, where);
  std::vector<Binned> axes;
  for (std::size_t i = 0; i < d; ++i) {
    const Tensor v = cast(select(points, 1, static_cast<Extent>(i), where), type_of_bins(x), where);
    if (!o.edges.empty()) {
      if (!o.edges[i].defined()) throw UsageError("histogramdd: edges have no value");
      axes.push_back(bins_between("histogramdd", v, o.edges[i], operands, where));
      continue;
    }
    const Extent bins = o.bins[o.bins.size() == 1 ? 0 : i];
    const auto [low, high] = o.ranges.empty() ? std::pair(0.0, 0.0) : o.ranges[o.ranges.size() == 1 ? 0 : i];
    check_range("histogramdd", bins, low, high, operands, where);
    axes.push_back(equal_bins(v, bins, low, high));
  }
  double places = 1;
  for (const Binned& each : axes) places *= static_cast<double>(each.bins);
  if (places > 0x1p31) throw fail(fmt::format("{} bins are too many", places));
  HistogramOfPoints result{counted(axes, o.weights, where), {}};
  if (o.density) result.counts = as_density(result.counts, axes, type_of_bins(x), where);
  for (const Binned& each : axes) result.edges.push_back(each.edges);
  return result;
}

namespace graph {
namespace {

AttributeSpec edge_number(std::string name, std::string doc, std::vector<std::string> aliases) {
  return {.name = std::move(name), .default_value = 0.0, .doc = std::move(doc), .aliases = std::move(aliases)};
}
AttributeSpec low_edge() { return edge_number("low", "where the first bin begins", {"min"}); }
AttributeSpec high_edge() {
  return edge_number("high", "where the last bin ends; as low: that of the elements", {"max"});
}
AttributeSpec edge_numbers(std::string name, std::string doc, std::string alias) {
  return {.name = std::move(name),
          .type = AttributeType::numbers,
          .default_value = Numbers{0},
          .doc = std::move(doc),
          .aliases = {std::move(alias)}};
}
// One range, or one for each axis; none if both are one equal number.
std::vector<std::pair<double, double>> ranges_of(const Numbers& low, const Numbers& high) {
  if (low.size() == 1 && high.size() == 1 && low[0] == high[0]) return {};
  if (low.empty() || high.empty() || (low.size() != high.size() && low.size() != 1 && high.size() != 1))
    throw ShapeError(fmt::format("histogramdd: {} values of low and {} of high; give one, or one for each axis",
                                 low.size(), high.size()));
  std::vector<std::pair<double, double>> ranges;
  for (std::size_t i = 0; i < std::max(low.size(), high.size()); ++i)
    ranges.emplace_back(low[low.size() == 1 ? 0 : i], high[high.size() == 1 ? 0 : i]);
  return ranges;
}
AttributeSpec density_flag() {
  return {.name = "density",
          .type = AttributeType::boolean,
          .default_value = false,
          .doc = "whether counts are divided by their sum and the sizes of their bins"};
}
AttributeSpec number_of_bins(Extent fallback) {
  return {.name = "bins", .type = AttributeType::integer, .default_value = fallback, .doc = "how many parts"};
}
CaseInput without() { return {.shape = {}, .absent = true}; }

const std::vector<OpRow>& rows_of_histograms() {
  static const std::vector<OpRow> rows = {
      {.name = "histogram",
       .family = "order",
       .inputs = {{"x"}, {.name = "weights", .optional = true}, {.name = "edges", .optional = true}},
       .attributes = {number_of_bins(10), low_edge(), high_edge(), density_flag()},
       .result = "i32, or that of weights; edges float",
       .differentiable = false,
       .several_outputs = true,
       .doc = "How many elements are in each of equal parts of a range, or between edges, the last one closed; and the "
              "edges.",
       .torch = "tuple(torch.histogram(x, bins, **({} if low == high else {'range': (low, high)}), weight=weights, "
                "density=density) if edges is None else torch.histogram(x, edges, weight=weights, density=density))",
       .numpy = "np.histogram(x, bins, None if low == high else (low, high), weights=weights)",
       .cases = {{"a range", {{{30, 9}}, without(), without()}, {{"bins", Extent{7}}, {"low", -1.0}, {"high", 1.5}}},
                 {"that of the elements", {{{300}}, without(), without()}},
                 {"weights", {{{300}}, {{300}, 0, 1}, without()}, {{"bins", Extent{5}}}},
                 {"between edges, as a density",
                  {{{300}}, {{300}, 0, 1}, {.shape = {4}, .values = {-1.5, -0.25, 0.5, 1}}},
                  {{"density", true}}}},
       .errors = {{"no bins", {{{4}}}, {{"bins", Extent{0}}}, "0 bins"},
                  {"a range backwards", {{{4}}}, {{"low", 1.0}}, "the range is [1, 0]"},
                  {"weights of another shape", {{{4}}, {{5}}}, {}, "the shapes of x and weights differ"},
                  {"one edge", {{{4}}, without(), {{1}}}, {}, "edges are not [bins + 1]"}},
       .apply =
           [](const Arguments& a) {
             const Histogram h = a.input(2).defined()
                                     ? weft::histogram(a.input(0), a.input(2), a.input(1), a.boolean("density"))
                                     : weft::histogram(a.input(0), a.integer("bins"), a.number("low"), a.number("high"),
                                                       a.input(1), a.boolean("density"));
             return Tensors{h.counts, h.edges};
           }},
      {.name = "histc",
       .family = "order",
       .inputs = {{"x"}},
       .attributes = {number_of_bins(100), low_edge(), high_edge()},
       .differentiable = false,
       .doc = "How many elements are in each of equal parts of a range, in the dtype of x.",
       .torch = "torch.histc(x, bins, low, high)",
       .cases = {{"a range", {{{30, 9}}}, {{"bins", Extent{7}}, {"low", -1.0}, {"high", 1.5}}},
                 {"that of the elements", {{{300}}}, {{"bins", Extent{10}}}}},
       .errors = {{"no bins", {{{4}}}, {{"bins", Extent{0}}}, "0 bins"},
                  {"a range backwards", {{{4}}}, {{"low", 1.0}}, "the range is [1, 0]"}},
       .apply =
           [](const Arguments& a) {
             return Tensors{weft::histc(a.input(0), a.integer("bins"), a.number("low"), a.number("high"))};
           }},
      {.name = "histogramdd",
       .family = "order",
       .inputs = {{"x"}, {.name = "weights", .optional = true}, {.name = "edges", .optional = true, .repeated = true}},
       .attributes = {{.name = "bins",
                       .type = AttributeType::integers,
                       .default_value = std::vector<Extent>{10},
                       .doc = "parts along each axis, one number for all or one for each"},
                      edge_numbers("low",
                                   "where the first bin along each axis begins, one number for all or one for each",
                                   "min"),
                      edge_numbers("high", "where the last bin ends; as low: that of the elements", "max"),
                      density_flag()},
       .result = "i32, or that of weights; edges float",
       .differentiable = false,
       .several_outputs = true,
       .doc = "How many points, the rows of x, are in each cell of a grid; then the edges along each axis, an output "
              "each.",
       .torch = "(lambda h: (h[0], *h[1]))(torch.histogramdd(x, bins * x.shape[-1] if len(bins) == 1 else bins, "
                "**({} if low == high else {'range': [(e * x.shape[-1] if len(e) == 1 else e)[i] for i in "
                "range(x.shape[-1]) for e in (low, high)]}), weight=weights, density=density) if "
                "any(e is None for e in edges) else torch.histogramdd(x, edges, weight=weights, density=density))",
       .numpy = "np.histogramdd(x, bins, weights=weights, density=density)",
       .cases = {{"a range",
                  {{{90, 2}}, without(), without()},
                  {{"bins", std::vector<Extent>{3, 4}}, {"low", Numbers{-1}}, {"high", Numbers{1.5}}}},
                 {"a range for each axis",
                  {{{90, 2}}, without(), without()},
                  {{"bins", std::vector<Extent>{3, 4}}, {"low", Numbers{-1, 0.25}}, {"high", Numbers{1.5, 2}}}},
                 {"ranges with one beginning",
                  {{{60, 2}}, without(), without()},
                  {{"low", Numbers{-1}}, {"high", Numbers{0.5, 1.75}}}},
                 {"weights, as a density",
                  {{{90, 2}}, {{90}, 0, 1}, without()},
                  {{"bins", std::vector<Extent>{3}}, {"density", true}}},
                 {"between edges",
                  {{{90, 2}},
                   {{90}, 0, 1},
                   {.shape = {3}, .values = {-1.5, 0.25, 1}},
                   {.shape = {4}, .values = {-1, -0.25, 0.5, 1.75}}}}},
       .errors = {{"one point", {{{4}}}, {}, "points are rows"},
                  {"bins of other axes",
                   {{{4, 2}}},
                   {{"bins", std::vector<Extent>{3, 4, 5}}},
                   "bins of 3 axes for 2 coordinates"},
                  {"ranges of other axes",
                   {{{4, 2}}},
                   {{"low", Numbers{0, 0, 0}}, {"high", Numbers{1}}},
                   "ranges of 3 axes for 2 coordinates"},
                  {"a low edge too many",
                   {{{4, 2}}},
                   {{"low", Numbers{0, 0, 0}}, {"high", Numbers{1, 1}}},
                   "3 values of low and 2 of high"},
                  {"edges of other axes", {{{4, 2}}, without(), {{3}}}, {}, "edges of 1 axes for 2 coordinates"},
                  {"weights of another shape", {{{4, 2}}, {{4, 2}}}, {}, "the shapes of x and weights differ"}},
       .apply =
           [](const Arguments& a) {
             HistogramOptions options{
                 .bins = a.integers("bins"), .weights = a.input(1), .density = a.boolean("density")};
             options.ranges = ranges_of(a.numbers("low"), a.numbers("high"));
             for (std::size_t i = 2; i < a.inputs().size(); ++i)
               if (a.input(i).defined()) options.edges.push_back(a.input(i));
             HistogramOfPoints h = weft::histogramdd(a.input(0), options);
             Tensors results{h.counts};
             results.insert(results.end(), h.edges.begin(), h.edges.end());
             return results;
           }},
  };
  return rows;
}

}  // namespace

OpRows histogram_rows() {
  OpRows list;
  for (const OpRow& row : rows_of_histograms()) list.push_back(&row);
  return list;
}

}  // namespace graph

}  // namespace weft
