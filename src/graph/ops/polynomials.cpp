// Orthogonal polynomials of any degree, and the multivariate gamma function.
#include "graph/polynomials.hpp"

#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "graph/op_families.hpp"
#include "weft/ops.hpp"
#include "weft/ops/special.hpp"

namespace weft {
namespace graph {
namespace {

const std::vector<std::string> kPolynomialKinds{"chebyshev_t", "chebyshev_u", "chebyshev_v", "chebyshev_w",
                                                "hermite_h",   "hermite_he",  "laguerre_l",  "legendre_p"};

Tensor polynomial_call(const Tensor& x, const Tensor& n, PolynomialAttributes attributes, Where where) {
  return call(orthogonal_polynomial_row(), {x, n}, attributes, where);
}

}  // namespace

const OpRow& orthogonal_polynomial_row() {
  static const OpRow row{
      .name = "orthogonal_polynomial",
      .family = "special",
      .inputs = {{.name = "x", .only = {DType::f32, DType::f64}}, {.name = "n", .only = {DType::f32, DType::f64}}},
      .attributes = {field("kind", &PolynomialAttributes::kind, "which polynomial",
                           {.required = true, .choices = kPolynomialKinds}),
                     field("derivative", &PolynomialAttributes::derivative, "which derivative to x", {.least = 0})},
      .doc =
          "A derivative of an orthogonal polynomial of degree n. What chebyshev_polynomial_t and its relatives are "
          "made of.",
      .infer =
          [](const Call& c) {
            if (c.input(0).shape() != c.input(1).shape()) c.shape_error("the shapes of x and n differ");
            if (c.input(0).dtype() != c.input(1).dtype()) c.dtype_error("the dtypes of x and n differ; cast one");
            return std::vector<Result>{like(c.input(0))};
          },
      .gradient =
          [](const GradientCall& g) {
            auto next = g.call.attributes<PolynomialAttributes>();
            ++next.derivative;
            return Tensors{g.gradients[0] * polynomial_call(g.call.input(0), g.call.input(1), next, g.call.where()),
                           Tensor()};
          },
      .form = KernelForm::routine,
      .cases = {{"degrees",
                 {{{2, 7}, -1.2, 1.2}, {.shape = {2, 7}, .values = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 15, 20, -1}}},
                 {{"kind", "chebyshev_t"}},
                 false},
                {"the second derivative",
                 {{{7}, -2, 2}, {.shape = {7}, .values = {0, 1, 2, 3, 4, 5, 6}}},
                 {{"kind", "hermite_he"}, {"derivative", Extent{2}}},
                 false}},
      .errors = {{"shapes that differ", {{{3}}, {{4}}}, {{"kind", "hermite_h"}}, "the shapes of x and n differ"},
                 {"no such kind", {{{3}}, {{3}}}, {{"kind", "jacobi"}}, "kind"}}};
  return row;
}

namespace {

struct NamedPolynomial {
  const char* name;
  const char* doc;
  PolynomialKind kind;
  bool is_shifted;
};
constexpr NamedPolynomial kPolynomials[] = {
    {"chebyshev_polynomial_t", "Chebyshev's polynomial of the first kind", PolynomialKind::chebyshev_t, false},
    {"chebyshev_polynomial_u", "Chebyshev's polynomial of the second kind", PolynomialKind::chebyshev_u, false},
    {"chebyshev_polynomial_v", "Chebyshev's polynomial of the third kind", PolynomialKind::chebyshev_v, false},
    {"chebyshev_polynomial_w", "Chebyshev's polynomial of the fourth kind", PolynomialKind::chebyshev_w, false},
    {"shifted_chebyshev_polynomial_t", "chebyshev_polynomial_t at 2 x - 1,", PolynomialKind::chebyshev_t, true},
    {"shifted_chebyshev_polynomial_u", "chebyshev_polynomial_u at 2 x - 1,", PolynomialKind::chebyshev_u, true},
    {"shifted_chebyshev_polynomial_v", "chebyshev_polynomial_v at 2 x - 1,", PolynomialKind::chebyshev_v, true},
    {"shifted_chebyshev_polynomial_w", "chebyshev_polynomial_w at 2 x - 1,", PolynomialKind::chebyshev_w, true},
    {"hermite_polynomial_h", "Hermite's polynomial of the physicists", PolynomialKind::hermite_h, false},
    {"hermite_polynomial_he", "Hermite's polynomial of probability", PolynomialKind::hermite_he, false},
    {"laguerre_polynomial_l", "Laguerre's polynomial", PolynomialKind::laguerre_l, false},
    {"legendre_polynomial_p", "Legendre's polynomial", PolynomialKind::legendre_p, false},
};

Tensor polynomial_of_degree(const Call& c, const NamedPolynomial& p, const Shape& shape) {
  const DType type = compute_type(c.input(0).dtype());
  const Tensor n = weft::expand(weft::cast(c.input(1), type), shape);
  Tensor x = weft::expand(weft::cast(c.input(0), type), shape);
  if (p.is_shifted) x = x * 2.0 - 1.0;
  return weft::cast(polynomial_call(x, n, {p.kind, 0}, c.where()), c.input(0).dtype());
}

Shape polynomial_shape(const Call& c) {
  Shape shape;
  if (!broadcast_shapes(c.input(0).shape(), c.input(1).shape(), shape)) c.shape_error("x and n do not broadcast");
  return shape;
}

const std::vector<OpRow>& polynomial_rows_of_names() {
  static const std::vector<OpRow> rows = [] {
    std::vector<OpRow> list;
    for (const NamedPolynomial& p : kPolynomials)
      list.push_back(
          {.name = p.name,
           .family = "special",
           .inputs = {{"x", ops::DTypes::floats}, {"n", ops::DTypes::numbers}},
           .doc = fmt::format("{} of degree n, which is cut to a whole number; 0 for n < 0.", p.doc),
           .infer =
               [](const Call& c) {
                 return std::vector<Result>{{c.input(0).dtype(), polynomial_shape(c)}};
               },
           .decompose = [&p](const Call& c) { return Tensors{polynomial_of_degree(c, p, polynomial_shape(c))}; },
           .cases = {{"a degree for each row",
                      {{{5, 6}, -1.5, 1.5}, {.shape = {5, 1}, .type = DType::i32, .values = {0, 1, 2, 5, 9}}}}},
           .errors = {{"shapes", {{{3}}, {{4}, 0, 3, DType::i32}}, {}, "x and n do not broadcast"},
                      {"integers", {{{3}, 0, 3, DType::i32}, {{3}, 0, 3, DType::i32}}, {}, "takes floats"}}});
    return list;
  }();
  return rows;
}

struct DimensionAttributes {
  Extent p = 1;
};

const OpRow& mvlgamma_row() {
  static const OpRow row{
      .name = "mvlgamma",
      .aliases = {"multigammaln"},
      .family = "special",
      .inputs = {{"x", ops::DTypes::floats}},
      .attributes = {field("p", &DimensionAttributes::p, "the dimension", {.required = true, .least = 1})},
      .doc = "The logarithm of the multivariate gamma function of dimension p; NaN for x <= (p - 1) / 2.",
      .formula = "y = p (p - 1) / 4 ln(pi) + sum_(j < p) lgamma(x - j / 2)",
      .torch = "torch.special.multigammaln(x, p)",
      .infer = [](const Call& c) { return std::vector<Result>{like(c.input(0))}; },
      .decompose =
          [](const Call& c) {
            const auto p = c.attributes<DimensionAttributes>().p;
            const double count = static_cast<double>(p);
            const Tensor x = weft::cast(c.input(0), compute_type(c.input(0).dtype()));
            const Tensor steps = weft::cast(arange(p, DType::i32, x.device()), x.dtype()) * 0.5;
            const Tensor each = elementwise("lgamma", {weft::unsqueeze(x, -1) - steps});
            const Tensor total = weft::sum(each, {-1}) + count * (count - 1) / 4 * std::log(std::numbers::pi);
            const Tensor inside = x > scalar_like((count - 1) / 2, x);
            return Tensors{
                weft::cast(elementwise("where", {inside, total, scalar_like(NAN, total)}), c.input(0).dtype())};
          },
      .cases = {{"three dimensions", {{{3, 5}, 1.1, 9}}, {{"p", Extent{3}}}},
                {"one", {{{7}, 0.1, 9}}, {{"p", Extent{1}}}}},
      .errors = {{"no dimension", {{{3}}}, {{"p", Extent{0}}}, "p"}}};
  return row;
}

}  // namespace

OpRows polynomial_rows() {
  OpRows list{&orthogonal_polynomial_row()};
  for (const OpRow& row : polynomial_rows_of_names()) list.push_back(&row);
  list.push_back(&mvlgamma_row());
  return list;
}

}  // namespace graph

#define WEFT_POLYNOMIAL(name, number)                                                             \
  Tensor name(const Tensor& x, const Tensor& n, Where where) {                                    \
    return graph::call(graph::polynomial_rows_of_names()[number], {x, n}, graph::Words{}, where); \
  }
WEFT_POLYNOMIAL(chebyshev_polynomial_t, 0)
WEFT_POLYNOMIAL(chebyshev_polynomial_u, 1)
WEFT_POLYNOMIAL(chebyshev_polynomial_v, 2)
WEFT_POLYNOMIAL(chebyshev_polynomial_w, 3)
WEFT_POLYNOMIAL(shifted_chebyshev_polynomial_t, 4)
WEFT_POLYNOMIAL(shifted_chebyshev_polynomial_u, 5)
WEFT_POLYNOMIAL(shifted_chebyshev_polynomial_v, 6)
WEFT_POLYNOMIAL(shifted_chebyshev_polynomial_w, 7)
WEFT_POLYNOMIAL(hermite_polynomial_h, 8)
WEFT_POLYNOMIAL(hermite_polynomial_he, 9)
WEFT_POLYNOMIAL(laguerre_polynomial_l, 10)
WEFT_POLYNOMIAL(legendre_polynomial_p, 11)
#undef WEFT_POLYNOMIAL

Tensor mvlgamma(const Tensor& x, Extent p, Where where) {
  if (p < 1) throw UsageError(fmt::format("mvlgamma: p is {}; give 1 or more", p));
  return graph::call(graph::mvlgamma_row(), {x}, graph::DimensionAttributes{p}, where);
}

}  // namespace weft
