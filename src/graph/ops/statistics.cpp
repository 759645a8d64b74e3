// Statistics that reductions make together.
#include "weft/ops/statistics.hpp"

#include <fmt/format.h>

#include <cmath>

#include "graph/describe.hpp"
#include "graph/op.hpp"
#include "graph/op_families.hpp"

namespace weft {

VarianceAndMean var_mean(const Tensor& x, const Axes& axes, ReduceOptions options, int correction, Where where) {
  return {var(x, axes, options, correction, where), mean(x, axes, options, where)};
}
DeviationAndMean std_mean(const Tensor& x, const Axes& axes, ReduceOptions options, int correction, Where where) {
  return {stddev(x, axes, options, correction, where), mean(x, axes, options, where)};
}

Tensor nansum(const Tensor& x, const Axes& axes, ReduceOptions options, Where where) {
  if (!x.defined() || !is_float(x.dtype())) return sum(x, axes, options, where);
  return sum(weft::where(isnan(x), scalar_like(0, x), x), axes, options, where);
}
Tensor nanmean(const Tensor& x, const Axes& axes, ReduceOptions options, Where where) {
  if (!x.defined() || !is_float(x.dtype())) return mean(x, axes, options, where);
  const Tensor count = sum(cast(!isnan(x), compute_type(x.dtype())), axes, options, where);
  return cast(nansum(cast(x, compute_type(x.dtype())), axes, options, where) / count, x.dtype(), where);
}

Extremes aminmax(const Tensor& x, const Axes& axes, ReduceOptions options, Where where) {
  return {amin(x, axes, options, where), amax(x, axes, options, where)};
}

Tensor vector_norm(const Tensor& x, double p, const Axes& axes, ReduceOptions options, Where where) {
  if (!x.defined()) throw UsageError("vector_norm: the tensor has no value");
  if (std::isnan(p)) throw UsageError(graph::describe("vector_norm", "p is NaN", {{"x", x}}, where));
  if (p == 2) return norm(x, axes, options, where);
  const DType type = is_float(x.dtype()) ? x.dtype() : DType::f32;
  // Sums of narrow floats are rounded once, at the end.
  const Tensor size = abs(cast(x, compute_type(type), where));
  Tensor result;
  if (p == kInfinity) {
    result = amax(size, axes, options, where);
  } else if (p == -kInfinity) {
    result = amin(size, axes, options, where);
  } else if (p == 0) {
    result = sum(cast(ne(size, scalar_like(0, size)), size.dtype()), axes, options, where);
  } else if (p == 1) {
    result = sum(size, axes, options, where);
  } else {
    // A power of 0 may have an infinite slope, which the zero that flows back would make NaN; no gradient goes there.
    const Tensor nothing = eq(size, scalar_like(0, size));
    const Tensor powers = pow(weft::where(nothing, scalar_like(1, size), size), scalar_like(p, size));
    const Tensor total =
        sum(weft::where(nothing, scalar_like(p > 0 ? 0 : kInfinity, powers), powers), axes, options, where);
    const Tensor is_zero = eq(total, scalar_like(p > 0 ? 0 : kInfinity, total));
    const Tensor root = pow(weft::where(is_zero, scalar_like(1, total), total), scalar_like(1 / p, total));
    result = weft::where(is_zero, scalar_like(0, total), root);
  }
  return cast(result, type, where);
}

namespace {

Tensor covariance(std::string_view op, const Tensor& x, int correction, Where where) {
  if (!x.defined()) throw UsageError(fmt::format("{}: the tensor has no value", op));
  const auto fail = [&](const char* fact) { return graph::describe(op, fact, {{"x", x}}, where); };
  if (x.rank() > 2) throw ShapeError(fail("x has more than two axes; it is [variables, n]"));
  if (!is_float(x.dtype())) throw DTypeError(fail("takes floats; cast x"));
  const Tensor rows = x.rank() == 2 ? x : reshape(x, {1, x.numel()}, where);
  const Tensor wide = cast(rows, compute_type(x.dtype()), where);
  const Tensor centred = wide - mean(wide, 1, {.keepdims = true}, where);
  const double n = static_cast<double>(rows.dim(1));
  return matmul(centred, transpose(centred), where) / std::max(n - correction, 0.0);
}

}  // namespace

Tensor cov(const Tensor& x, int correction, Where where) {
  const Tensor c = covariance("cov", x, correction, where);
  return cast(x.rank() == 2 ? c : reshape(c, {}, where), x.dtype(), where);
}

Tensor corrcoef(const Tensor& x, Where where) {
  const Tensor c = covariance("corrcoef", x, 1, where);
  const Extent n = c.dim(0);
  const Tensor variance = slice(reshape(c, {n * n}), 0, 0, kEnd, n + 1, where);
  const Tensor deviation = sqrt(variance);
  const Tensor r = clamp(c / unsqueeze(deviation, 1) / deviation, -1, 1);
  return cast(x.rank() == 2 ? r : reshape(r, {}, where), x.dtype(), where);
}

namespace graph {
namespace {

std::vector<AttributeSpec> reduced_axes() {
  return {{.name = "axes",
           .type = AttributeType::integers,
           .default_value = std::vector<Extent>{},
           .doc = "axes to reduce; none given: all of them",
           .aliases = {"axis", "dim", "dims"}},
          {.name = "keepdims",
           .type = AttributeType::boolean,
           .default_value = false,
           .doc = "whether reduced axes stay, with extent 1",
           .aliases = {"keepdim"}}};
}
std::vector<AttributeSpec> reduced_axes_and(AttributeSpec first) {
  std::vector<AttributeSpec> specs = reduced_axes();
  specs.insert(specs.begin(), std::move(first));
  return specs;
}
ReduceOptions options_of(const Arguments& a) { return {a.boolean("keepdims")}; }

AttributeSpec correction_attribute() {
  return {.name = "correction",
          .type = AttributeType::integer,
          .default_value = Extent{1},
          .doc = "subtracted from the number of elements: 1 for a sample, 0 for a population",
          .aliases = {"ddof"}};
}

// PyTorch takes no empty list of axes for all of them.
constexpr const char* kTorchAxes = "axes or list(range(x.dim()))";
std::vector<OpCase> cases_of_axes() {
  using Ints = std::vector<Extent>;
  return {{"all axes", {{{6, 50}}}},
          {"one axis", {{{6, 5, 7}}}, {{"axes", Ints{1}}}},
          {"two axes, kept", {{{6, 5, 7}}}, {{"axes", Ints{0, 2}}, {"keepdims", true}}}};
}
std::vector<ErrorCase> errors_of_axes() {
  return {{"an axis outside", {{{2, 3}}}, {{"axes", std::vector<Extent>{2}}}, "axis 2 is outside of [-2, 2)"}};
}

std::vector<OpCase> with_nan(std::vector<OpCase> cases) {
  cases.push_back({"with NaN", {{.shape = {2, 3}, .values = {1, std::nan(""), 3, -2, 0.5, std::nan("")}}}, {}, false});
  return cases;
}

std::vector<OpCase> norms_of_several_p() {
  std::vector<OpCase> cases;
  for (const double p : {3.0, 1.5, 1.0, 0.0, -1.0, kInfinity, -kInfinity, 2.0})
    cases.push_back({fmt::format("p = {}", p), {{{6, 5, 7}}}, {{"p", p}, {"axes", std::vector<Extent>{1}}}});
  cases.push_back({"zeros",
                   {{.shape = {2, 3}, .values = {0, 0, 0, 1, 0, 2}}},
                   {{"p", 3.0}, {"axes", std::vector<Extent>{1}}},
                   false});
  return cases;
}

const std::vector<OpRow>& rows_of_statistics() {
  static const std::vector<OpRow> rows = {
      {.name = "var_mean",
       .family = "statistics",
       .inputs = {{"x", ops::DTypes::floats}},
       .attributes = reduced_axes_and(correction_attribute()),
       .several_outputs = true,
       .doc = "Variance and mean over the same axes.",
       .torch = fmt::format("torch.var_mean(x, {}, correction=correction, keepdim=keepdims)", kTorchAxes),
       .cases = cases_of_axes(),
       .errors = errors_of_axes(),
       .apply =
           [](const Arguments& a) {
             const auto [variance, mean] =
                 weft::var_mean(a.input(0), a.axes("axes"), options_of(a), a.small("correction"));
             return Tensors{variance, mean};
           }},
      {.name = "std_mean",
       .family = "statistics",
       .inputs = {{"x", ops::DTypes::floats}},
       .attributes = reduced_axes_and(correction_attribute()),
       .several_outputs = true,
       .doc = "Standard deviation and mean over the same axes.",
       .torch = fmt::format("torch.std_mean(x, {}, correction=correction, keepdim=keepdims)", kTorchAxes),
       .cases = cases_of_axes(),
       .errors = errors_of_axes(),
       .apply =
           [](const Arguments& a) {
             const auto [deviation, mean] =
                 weft::std_mean(a.input(0), a.axes("axes"), options_of(a), a.small("correction"));
             return Tensors{deviation, mean};
           }},
      {.name = "nansum",
       .family = "statistics",
       .inputs = {{"x"}},
       .attributes = reduced_axes(),
       .doc = "Sum of the elements that are not NaN.",
       .torch = fmt::format("torch.nansum(x, {}, keepdims)", kTorchAxes),
       .numpy = "np.nansum(x, axes, keepdims=keepdims)",
       .cases = with_nan(cases_of_axes()),
       .errors = errors_of_axes(),
       .apply = [](const Arguments& a) { return Tensors{weft::nansum(a.input(0), a.axes("axes"), options_of(a))}; }},
      {.name = "nanmean",
       .family = "statistics",
       .inputs = {{"x"}},
       .attributes = reduced_axes(),
       .result = "float",
       .doc = "Mean of the elements that are not NaN; NaN of none.",
       .torch = fmt::format("torch.nanmean(x, {}, keepdims)", kTorchAxes),
       .numpy = "np.nanmean(x, axes, keepdims=keepdims)",
       .cases = with_nan(cases_of_axes()),
       .errors = errors_of_axes(),
       .apply = [](const Arguments& a) { return Tensors{weft::nanmean(a.input(0), a.axes("axes"), options_of(a))}; }},
      {.name = "aminmax",
       .family = "statistics",
       .inputs = {{"x"}},
       .attributes = reduced_axes(),
       .several_outputs = true,
       .doc = "The least and the largest element over the same axes.",
       .torch = fmt::format("(torch.amin(x, {0}, keepdims), torch.amax(x, {0}, keepdims))", kTorchAxes),
       .cases = cases_of_axes(),
       .errors = {{"nothing", {{{0}}}, {}, "the amin of nothing has no value"}},
       .apply =
           [](const Arguments& a) {
             const auto [least, largest] = weft::aminmax(a.input(0), a.axes("axes"), options_of(a));
             return Tensors{least, largest};
           }},
      {.name = "vector_norm",
       .aliases = {"p_norm"},
       .family = "statistics",
       .inputs = {{"x"}},
       .attributes = reduced_axes_and(
           {.name = "p", .default_value = 2.0, .doc = "the power; 0, inf and -inf too", .aliases = {"ord"}}),
       .result = "float",
       .doc = "The p-norm: the p-th root of the sum of |x|^p, the largest |x| for inf, how many are not 0 for 0.",
       .formula = "y = (sum |x|^p)^(1/p)",
       .torch = "torch.linalg.vector_norm(x, p, axes or None, keepdims)",
       .numpy = "np.linalg.norm(x, p, axes, keepdims)",
       .cases = norms_of_several_p(),
       .errors = {{"NaN", {{{4}}}, {{"p", std::nan("")}}, "p is NaN"}},
       .apply =
           [](const Arguments& a) {
             return Tensors{weft::vector_norm(a.input(0), a.number("p"), a.axes("axes"), options_of(a))};
           }},
      {.name = "cov",
       .family = "statistics",
       .inputs = {{"x", ops::DTypes::floats}},
       .attributes = {correction_attribute()},
       .doc = "Covariances of the rows of x [variables, n].",
       .formula = "c_ij = sum_k (x_ik - mean_i) (x_jk - mean_j) / (n - correction)",
       .torch = "torch.cov(x, correction=correction)",
       .numpy = "np.cov(x, ddof=correction)",
       .cases = {{"rows", {{{4, 30}}}},
                 {"a population", {{{3, 8}}}, {{"correction", Extent{0}}}},
                 {"one variable", {{{30}}}}},
       .errors = {{"three axes", {{{2, 3, 4}}}, {}, "x has more than two axes"},
                  {"integers", {{{2, 3}, 0, 4, DType::i32}}, {}, "takes floats; cast x"}},
       .apply = [](const Arguments& a) { return Tensors{weft::cov(a.input(0), a.small("correction"))}; }},
      {.name = "corrcoef",
       .family = "statistics",
       .inputs = {{"x", ops::DTypes::floats}},
       .doc = "Correlations of the rows of x [variables, n], in [-1, 1].",
       .torch = "torch.corrcoef(x)",
       .numpy = "np.corrcoef(x)",
       .cases = {{"rows", {{{4, 30}}}, {}, false}},  // those on the diagonal are at the bound
       .errors = {{"three axes", {{{2, 3, 4}}}, {}, "x has more than two axes"}},
       .apply = [](const Arguments& a) { return Tensors{weft::corrcoef(a.input(0))}; }},
  };
  return rows;
}

}  // namespace

OpRows statistics_rows() {
  OpRows list;
  for (const OpRow& row : rows_of_statistics()) list.push_back(&row);
  return list;
}

}  // namespace graph

}  // namespace weft
