// Systems of equations, determinants, decompositions. The CPU has kernels for a few; the others use these.
#include "weft/ops/linear_algebra.hpp"

#include <fmt/format.h>

#include "graph/linear_algebra.hpp"
#include "graph/no_grad.hpp"
#include "graph/op.hpp"
#include "graph/op_families.hpp"
#include "graph/ops/matrices.hpp"
#include "weft/ops.hpp"

namespace weft {
namespace graph {
namespace {

using namespace matrices;
using matrices::turned;  // convolutions have a function of this name

void check_right_side(const Call& c) {
  check_matrix(c, true);
  const Tensor &a = c.input(0), &b = c.input(1);
  if (a.dtype() != b.dtype()) c.dtype_error("the dtypes differ; cast one");
  if (b.rank() != a.rank() || batch_shape(a) != batch_shape(b) || b.dim(-2) != a.dim(-1))
    c.shape_error(fmt::format("b is not [..., {}, columns] with the batch of a", a.dim(-1)));
}

Tensor symmetric(const Tensor& a) { return (a + turned(a)) * 0.5; }

Tensor solve_call(const Tensor& a, const Tensor& b, Where where = Where::current()) {
  return call(solve_row(), {a, b}, Words{}, where);
}
// B T^-1 of a triangle T.
Tensor divided_by_triangle(const Tensor& b, const Tensor& t, bool upper) {
  return turned(triangular_call(turned(t), turned(b), !upper));
}

Tensor or_zeros(const Tensor& gradient, const Tensor& like) { return gradient.defined() ? gradient : zeros_like(like); }

}  // namespace

const OpRow& solve_row() {
  static const OpRow row{.name = "solve",
                         .family = kDecompositionFamily,
                         .inputs = {matrix("a"), matrix("b")},
                         .result = "that of a",
                         .doc = "X with A X = B; NaN where A is singular.",
                         .torch = "torch.linalg.solve(a, b)",
                         .numpy = "np.linalg.solve(a, b)",
                         .infer =
                             [](const Call& c) {
                               check_right_side(c);
                               return std::vector<Result>{like(c.input(1))};
                             },
                         .gradient =
                             [](const GradientCall& g) {
                               const Tensor d_b = solve_call(turned(g.call.input(0)), g.gradients[0]);
                               return Tensors{-weft::matmul(d_b, turned(g.results[0])), d_b};
                             },
                         .form = KernelForm::routine,
                         .cases = {{"a batch", {regular(3, 4, 4), {{3, 4, 2}}}},
                                   {"pivots", {{.shape = {3, 3}, .values = {0, 2, 1, 1, 0, 0, 3, 0, 2}}, {{3, 1}}}},
                                   {"larger", {regular(0, 20, 20), {{20, 3}}}}},
                         .errors = {{"not square", {{{3, 4}}, {{3, 1}}}, {}, "it must be square"},
                                    {"rows that differ", {{{3, 3}}, {{4, 1}}}, {}, "b is not [..., 3, columns]"},
                                    {"integers", {{{3, 3}, 0, 3, DType::i32}, {{3, 1}}}, {}, "takes f32 or f64"}},
                         .apply = [](const Arguments& a) { return Tensors{weft::solve(a.input(0), a.input(1))}; }};
  return row;
}

const OpRow& solve_triangular_row() {
  static const OpRow row{
      .name = "solve_triangular",
      .family = kDecompositionFamily,
      .inputs = {matrix("a"), matrix("b")},
      .attributes = {field("upper", &TriangularAttributes::upper, "whether the upper triangle is read"),
                     field("unit", &TriangularAttributes::unit, "whether its diagonal is 1",
                           {.aliases = {"unitriangular"}})},
      .result = "that of a",
      .doc = "X with T X = B for a triangle T of A.",
      .torch =
          "torch.linalg.solve_triangular(a.triu(1 if unit else 0) if upper else a.tril(-1 if unit else 0), b, "
          "upper=upper, unitriangular=unit)",
      .infer =
          [](const Call& c) {
            check_right_side(c);
            return std::vector<Result>{like(c.input(1))};
          },
      .gradient =
          [](const GradientCall& g) {
            const auto [upper, unit] = g.call.attributes<TriangularAttributes>();
            const Tensor d_b = triangular_call(turned(g.call.input(0)), g.gradients[0], !upper, unit);
            const Tensor d_a = -weft::matmul(d_b, turned(g.results[0]));
            const int edge = unit ? 1 : 0;
            return Tensors{upper ? weft::triu(d_a, edge) : weft::tril(d_a, -edge), d_b};
          },
      .form = KernelForm::routine,
      .cases = {{"lower", {regular(2, 4, 4), {{2, 4, 3}}}},
                {"upper, of ones", {regular(0, 4, 4), {{4, 2}}}, {{"upper", true}, {"unit", true}}}},
      .errors = {{"rows that differ", {{{3, 3}}, {{4, 1}}}, {}, "b is not [..., 3, columns]"}},
      .apply =
          [](const Arguments& a) {
            return Tensors{weft::solve_triangular(a.input(0), a.input(1), a.boolean("upper"), a.boolean("unit"))};
          }};
  return row;
}

const OpRow& slogdet_row() {
  static const OpRow row{
      .name = "slogdet",
      .family = kDecompositionFamily,
      .inputs = {matrix("a")},
      .result = "that of a",
      .several_outputs = true,
      .doc = "Sign of the determinant, and the logarithm of its size.",
      .torch = "tuple(torch.linalg.slogdet(a))",
      .numpy = "np.linalg.slogdet(a)",
      .infer =
          [](const Call& c) {
            check_matrix(c, true);
            const Result each{c.input(0).dtype(), batch_shape(c.input(0))};
            return std::vector<Result>{each, each};
          },
      .gradient =
          [](const GradientCall& g) {
            const Tensor& a = g.call.input(0);
            if (!g.gradients[1].defined()) return Tensors{zeros_like(a)};
            return Tensors{turned(weft::inverse(a)) * weft::unsqueeze(weft::unsqueeze(g.gradients[1], -1), -1)};
          },
      .form = KernelForm::routine,
      .cases = {{"a batch", {regular(3, 4, 4)}},
                {"pivots", {{.shape = {3, 3}, .values = {0, 2, 1, 1, 0, 0, 3, 0, 2}}}}},
      .errors = {kNotSquare, kNoMatrix}};
  return row;
}

const OpRow& cholesky_row() {
  static const OpRow row{
      .name = "cholesky",
      .family = kDecompositionFamily,
      .inputs = {matrix("a")},
      .doc = "The lower triangular L with L L^T = (A + A^T) / 2; NaN where that is not positive definite.",
      .torch = "torch.linalg.cholesky((a + a.mT) / 2)",
      .numpy = "np.linalg.cholesky(a)",
      .infer = like_square_matrix,
      .gradient =
          [](const GradientCall& g) {
            const Tensor& l = g.results[0];
            const Tensor inner = weft::matmul(turned(l), g.gradients[0]);
            const Tensor half = weft::tril(inner) - inner * eye(l.dim(-1), l) * 0.5;
            const Tensor left = triangular_call(turned(l), half, true);  // L^-T half
            return Tensors{symmetric(divided_by_triangle(left, l, false))};
          },
      .form = KernelForm::routine,
      .cases = {{"a batch", {definite(2, 4)}},
                {"one number", {{.shape = {1, 1}, .values = {4}}}},
                {"larger", {definite(0, 12)}}},
      .errors = {kNotSquare, kNoMatrix},
      .apply = [](const Arguments& a) { return Tensors{weft::cholesky(a.input(0))}; }};
  return row;
}

const OpRow& qr_row() {
  static const OpRow row{
      .name = "qr",
      .family = kDecompositionFamily,
      .inputs = {matrix("a")},
      .result = "that of a",
      .several_outputs = true,
      .doc = "Q with orthonormal columns and an upper triangular R with Q R = A [..., m, n].",
      .torch = "tuple(torch.linalg.qr(a))",
      .numpy = "np.linalg.qr(a)",
      .infer =
          [](const Call& c) {
            check_matrix(c, false);
            const Tensor& a = c.input(0);
            const Extent m = a.dim(-2), n = a.dim(-1), k = std::min(m, n);
            return std::vector<Result>{{a.dtype(), with_matrix(batch_shape(a), m, k)},
                                       {a.dtype(), with_matrix(batch_shape(a), k, n)}};
          },
      .gradient =
          [](const GradientCall& g) {
            const Tensor &a = g.call.input(0), &q = g.results[0], &r = g.results[1];
            if (a.dim(-2) < a.dim(-1))
              g.call.usage_error(
                  "has a gradient for at least as many rows as columns only; take that of the transpose");
            const Tensor d_q = or_zeros(g.gradients[0], q), d_r = or_zeros(g.gradients[1], r);
            const Tensor m = weft::matmul(r, turned(d_r)) - weft::matmul(turned(d_q), q);
            const Tensor mirrored = weft::tril(m) + turned(weft::tril(m, -1));
            // Z R^-T, as the transpose of R^-1 Z^T.
            return Tensors{turned(triangular_call(r, turned(d_q + weft::matmul(q, mirrored)), true))};
          },
      .form = KernelForm::routine,
      .cases = {{"tall", {regular(2, 5, 3)}}, {"square", {regular(0, 4, 4)}}, {"wide", {regular(0, 3, 5)}, {}, false}},
      .errors = {kNoMatrix}};
  return row;
}

namespace {
// 1 / (x_j - x_i) in row i and column j, 0 on the diagonal.
Tensor reciprocal_differences(const Tensor& x) {
  const Tensor same = eye(x.dim(-1), x);
  const Tensor difference = weft::unsqueeze(x, -2) - weft::unsqueeze(x, -1);
  const Tensor off = elementwise("eq", {same, scalar_like(0, same)});
  return elementwise("where", {off, 1.0 / elementwise("where", {off, difference, scalar_like(1, difference)}),
                               scalar_like(0, difference)});
}
}  // namespace

const OpRow& eigh_row() {
  static const OpRow row{.name = "eigh",
                         .family = kDecompositionFamily,
                         .inputs = {matrix("a")},
                         .result = "that of a",
                         .several_outputs = true,
                         .doc = "Eigenvalues of (A + A^T) / 2 upwards, and its eigenvectors as columns.",
                         .torch =
                             "(lambda w, v: (w, v * v.gather(-2, v.abs().argmax(-2, "
                             "keepdim=True)).sign()))(*torch.linalg.eigh((a + a.mT) / 2))",
                         .numpy = "np.linalg.eigh(a)",
                         .infer =
                             [](const Call& c) {
                               check_matrix(c, true);
                               const Tensor& a = c.input(0);
                               return std::vector<Result>{{a.dtype(), with_vector(batch_shape(a), a.dim(-1))}, like(a)};
                             },
                         .gradient =
                             [](const GradientCall& g) {
                               const Tensor &w = g.results[0], &v = g.results[1];
                               Tensor inner;
                               if (g.gradients[0].defined())
                                 inner = weft::unsqueeze(g.gradients[0], -1) * eye(w.dim(-1), w);
                               if (g.gradients[1].defined()) {
                                 const Tensor turns =
                                     reciprocal_differences(w) * weft::matmul(turned(v), g.gradients[1]);
                                 inner = inner.defined() ? inner + turns : turns;
                               }
                               return Tensors{symmetric(weft::matmul(weft::matmul(v, inner), turned(v)))};
                             },
                         .form = KernelForm::routine,
                         .cases = {{"a batch", {definite(2, 4)}},
                                   {"larger", {definite(0, 9)}},
                                   {"one number", {{.shape = {1, 1}, .values = {-4}}}}},
                         .errors = {kNotSquare, kNoMatrix},
                         .apply =
                             [](const Arguments& a) {
                               const EigenPairs pairs = weft::eigh(a.input(0));
                               return Tensors{pairs.values, pairs.vectors};
                             }};
  return row;
}

const OpRow& svd_row() {
  static const OpRow row{
      .name = "svd",
      .family = kDecompositionFamily,
      .inputs = {matrix("a")},
      .result = "that of a",
      .several_outputs = true,
      .doc = "U diag(s) Vh = A [..., m, n] with s downwards, and orthonormal columns of U and rows of Vh.",
      .torch =
          "(lambda u, s, vh, tall: (lambda t: (u * t[..., None, :], s, vh * t[..., None]))((vh.gather(-1, "
          "vh.abs().argmax(-1, "
          "keepdim=True))[..., 0] if tall else "
          "u.gather(-2, u.abs().argmax(-2, keepdim=True))[..., 0, :]).detach().sign()))(*torch.linalg.svd(a, "
          "full_matrices=False), a.shape[-2] >= a.shape[-1])",
      .numpy = "np.linalg.svd(a, full_matrices=False)",
      .infer =
          [](const Call& c) {
            check_matrix(c, false);
            const Tensor& a = c.input(0);
            const Shape batch = batch_shape(a);
            const Extent m = a.dim(-2), n = a.dim(-1), k = std::min(m, n);
            return std::vector<Result>{{a.dtype(), with_matrix(batch, m, k)},
                                       {a.dtype(), with_vector(batch, k)},
                                       {a.dtype(), with_matrix(batch, k, n)}};
          },
      .gradient =
          [](const GradientCall& g) {
            const Tensor &u = g.results[0], &s = g.results[1], v = turned(g.results[2]);
            const Extent k = s.dim(-1);
            const Tensor across = weft::unsqueeze(s, -2), down = weft::unsqueeze(s, -1);  // factors of columns, of rows
            Tensor inner = g.gradients[1].defined() ? weft::unsqueeze(g.gradients[1], -1) * eye(k, s) : Tensor();
            Tensor rest;
            const auto add = [](Tensor& sum, const Tensor& part) { sum = sum.defined() ? sum + part : part; };
            const auto turns = [&](const Tensor& basis, const Tensor& d) {
              const Tensor product = weft::matmul(turned(basis), d);
              return reciprocal_differences(s * s) * (product - turned(product));
            };
            const auto outside = [](const Tensor& basis, const Tensor& d) {
              return d - weft::matmul(basis, weft::matmul(turned(basis), d));
            };
            if (const Tensor& d = g.gradients[0]; d.defined()) {
              add(inner, turns(u, d) * across);
              if (u.dim(-2) > k) add(rest, weft::matmul(outside(u, d) / across, turned(v)));
            }
            if (g.gradients[2].defined()) {
              const Tensor d = turned(g.gradients[2]);
              add(inner, down * turns(v, d));
              if (v.dim(-2) > k) add(rest, weft::matmul(u / across, turned(outside(v, d))));
            }
            Tensor d_a = weft::matmul(weft::matmul(u, inner), turned(v));
            if (rest.defined()) d_a = d_a + rest;
            return Tensors{d_a};
          },
      .form = KernelForm::routine,
      .cases = {{"tall", {regular(2, 5, 3)}}, {"wide", {regular(0, 3, 5)}}, {"square", {regular(0, 4, 4)}}},
      .errors = {kNoMatrix}};
  return row;
}

// ---- Made of these -------------------------------------------------------------------------------------------------------

namespace {

struct PseudoAttributes {
  double rcond = 1e-15;
};
struct PowerOfMatrix {
  Extent n = 1;
};

std::vector<Result> a_number(const Call& c) {
  check_matrix(c, true);
  return {{c.input(0).dtype(), batch_shape(c.input(0))}};
}
std::vector<Result> like_square(const Call& c) {
  check_matrix(c, true);
  return {like(c.input(0))};
}

OpRow made_row(std::string name, std::vector<InputSpec> inputs, std::string doc, std::string torch,
               std::vector<Result> (*infer)(const Call&), std::function<Tensor(const Call&)> f,
               std::vector<OpCase> cases, std::vector<ErrorCase> errors) {
  return {.name = std::move(name),
          .family = kDecompositionFamily,
          .inputs = std::move(inputs),
          .result = "that of a",
          .doc = std::move(doc),
          .torch = std::move(torch),
          .infer = infer,
          .decompose = [f](const Call& c) { return Tensors{f(c)}; },
          .cases = std::move(cases),
          .errors = std::move(errors)};
}

Tensor power_of(const Tensor& a, Extent n) {
  Tensor base = a, result;
  for (; n > 0; n /= 2) {
    if (n % 2 == 1) result = result.defined() ? weft::matmul(result, base) : base;
    if (n > 1) base = weft::matmul(base, base);
  }
  return result;
}

const std::vector<OpRow>& made_rows() {
  static const std::vector<OpRow> rows = [] {
    std::vector<OpRow> list;
    list.push_back(made_row("inverse", {matrix("a")}, "A^-1; NaN where A is singular.", "torch.linalg.inv(a)",
                            like_square,
                            [](const Call& c) {
                              const Tensor& a = c.input(0);
                              return solve_call(a, weft::expand(eye(a.dim(-1), a), a.shape()), c.where());
                            },
                            {{"a batch", {regular(3, 4, 4)}}}, {kNotSquare, kNoMatrix}));
    list.back().aliases = {"inv"};
    list.push_back(made_row("det", {matrix("a")}, "The determinant.", "torch.linalg.det(a)", a_number,
                            [](const Call& c) {
                              const SignAndLog d = weft::slogdet(c.input(0), c.where());
                              return d.sign * elementwise("exp", {d.log});
                            },
                            {{"a batch", {regular(3, 4, 4)}},
                             {"pivots", {{.shape = {3, 3}, .values = {0, 2, 1, 1, 0, 0, 3, 0, 2}}}},
                             {"singular", {{.shape = {2, 2}, .values = {1, 2, 2, 4}}}, {}, false}},
                            {kNotSquare}));
    list.push_back(
        made_row("logdet", {matrix("a")}, "ln of the determinant; NaN below 0.", "torch.logdet(a)", a_number,
                 [](const Call& c) {
                   const SignAndLog d = weft::slogdet(c.input(0), c.where());
                   return elementwise("where", {d.sign < scalar_like(0, d.sign), elementwise("sqrt", {d.sign}), d.log});
                 },
                 {{"one matrix", {definite(0, 4)}}}, {kNotSquare}));
    list.push_back(made_row(
        "lstsq", {matrix("a"), matrix("b")}, "X of least |A X - B| for A [..., m, n] of rank n <= m.",
        "torch.linalg.lstsq(a, b)[0]",
        [](const Call& c) {
          check_matrix(c, false);
          const Tensor &a = c.input(0), &b = c.input(1);
          if (a.dtype() != b.dtype()) c.dtype_error("the dtypes differ; cast one");
          if (a.dim(-2) < a.dim(-1)) c.shape_error("a has fewer rows than columns; use pinv");
          if (b.rank() != a.rank() || batch_shape(a) != batch_shape(b) || b.dim(-2) != a.dim(-2))
            c.shape_error(fmt::format("b is not [..., {}, columns] with the batch of a", a.dim(-2)));
          return std::vector<Result>{{a.dtype(), with_matrix(batch_shape(a), a.dim(-1), b.dim(-1))}};
        },
        [](const Call& c) {
          const QrFactors f = weft::qr(c.input(0), c.where());
          return triangular_call(f.r, weft::matmul(turned(f.q), c.input(1)), true);
        },
        {{"tall", {regular(2, 6, 3), {{2, 6, 2}}}}},
        {{"wide", {{{3, 4}}, {{3, 1}}}, {}, "fewer rows than columns"},
         {"rows that differ", {{{4, 3}}, {{3, 1}}}, {}, "b is not [..., 4, columns]"}}));
    list.push_back(made_row(
        "pinv", {matrix("a")}, "The inverse of Moore and Penrose.", "torch.linalg.pinv(a, rcond=rcond)",
        [](const Call& c) {
          check_matrix(c, false);
          return std::vector<Result>{
              {c.input(0).dtype(), with_matrix(batch_shape(c.input(0)), c.input(0).dim(-1), c.input(0).dim(-2))}};
        },
        [](const Call& c) {
          const SingularValues f = weft::svd(c.input(0), c.where());
          const double eps = c.input(0).dtype() == DType::f64 ? 0x1p-52 : 0x1p-23;
          const double rcond = std::max(c.attributes<PseudoAttributes>().rcond, eps);
          if (f.s.numel() == 0) return weft::matmul(turned(f.vh), turned(f.u));
          const Tensor counts = f.s > amax(f.s, {-1}, {.keepdims = true}) * rcond;
          const Tensor reciprocal = elementwise(
              "where", {counts, 1.0 / elementwise("where", {counts, f.s, scalar_like(1, f.s)}), scalar_like(0, f.s)});
          return weft::matmul(turned(f.vh) * weft::unsqueeze(reciprocal, -2), turned(f.u));
        },
        {{"tall", {regular(2, 5, 3)}}, {"wide", {regular(0, 3, 5)}}}, {kNoMatrix}));
    list.back().attributes = {field("rcond", &PseudoAttributes::rcond,
                                    "singular values below it times the greatest count as 0", {.least = 0})};
    list.push_back(made_row("matrix_power", {matrix("a")}, "A^n; a negative n is a power of the inverse.",
                            "torch.linalg.matrix_power(a, n)", like_square,
                            [](const Call& c) {
                              const Tensor& a = c.input(0);
                              const Extent n = c.attributes<PowerOfMatrix>().n;
                              if (n == 0) return weft::expand(eye(a.dim(-1), a), a.shape());
                              return n > 0 ? power_of(a, n) : power_of(weft::inverse(a), -n);
                            },
                            {{"the fifth", {regular(2, 3, 3)}, {{"n", Extent{5}}}},
                             {"none", {regular(0, 3, 3)}, {{"n", Extent{0}}}},
                             {"of the inverse", {regular(0, 3, 3)}, {{"n", Extent{-2}}}}},
                            {{"not square", {{{3, 4}}}, {{"n", Extent{2}}}, "it must be square"}}));
    list.back().attributes = {field("n", &PowerOfMatrix::n, "the power", {.required = true})};
    return list;
  }();
  return rows;
}

}  // namespace

OpRows linear_algebra_rows() {
  OpRows list{&solve_row(), &solve_triangular_row(), &slogdet_row(), &cholesky_row(), &qr_row(), &eigh_row(),
              &svd_row()};
  for (const OpRow& row : made_rows()) list.push_back(&row);
  return list;
}

namespace {
Tensor made(std::size_t i, Tensors inputs, Where where) {
  return call(made_rows()[i], std::move(inputs), Words{}, where);
}
}  // namespace

}  // namespace graph

Tensor solve(const Tensor& a, const Tensor& b, Where where) {
  Shape batch;
  if (!a.defined() || !b.defined() || a.rank() < 2 || b.rank() < 2 ||
      !graph::broadcast_shapes(graph::batch_shape(a), graph::batch_shape(b), batch))
    return graph::solve_call(a, b, where);
  return graph::solve_call(expand(a, graph::with_matrix(batch, a.dim(-2), a.dim(-1))),
                           expand(b, graph::with_matrix(batch, b.dim(-2), b.dim(-1))), where);
}
Tensor solve_triangular(const Tensor& a, const Tensor& b, bool upper, bool unit, Where where) {
  Shape batch;
  if (!a.defined() || !b.defined() || a.rank() < 2 || b.rank() < 2 ||
      !graph::broadcast_shapes(graph::batch_shape(a), graph::batch_shape(b), batch))
    return graph::triangular_call(a, b, upper, unit, where);
  return graph::triangular_call(expand(a, graph::with_matrix(batch, a.dim(-2), a.dim(-1))),
                                expand(b, graph::with_matrix(batch, b.dim(-2), b.dim(-1))), upper, unit, where);
}
SignAndLog slogdet(const Tensor& a, Where where) {
  const graph::Tensors r = graph::results_of(graph::slogdet_row(), a, where);
  return {r[0], r[1]};
}
Tensor cholesky(const Tensor& a, Where where) {
  const bool is_square = a.defined() && a.rank() >= 2 && a.dim(-1) == a.dim(-2);
  return graph::call(graph::cholesky_row(), {is_square ? graph::symmetric(a) : a}, graph::Words{}, where);
}
QrFactors qr(const Tensor& a, Where where) {
  const graph::Tensors r = graph::results_of(graph::qr_row(), a, where);
  return {r[0], r[1]};
}
EigenPairs eigh(const Tensor& a, Where where) {
  const bool is_square = a.defined() && a.rank() >= 2 && a.dim(-1) == a.dim(-2);
  const graph::Tensors r = graph::results_of(graph::eigh_row(), is_square ? graph::symmetric(a) : a, where);
  return {r[0], r[1]};
}
SingularValues svd(const Tensor& a, Where where) {
  const graph::Tensors r = graph::results_of(graph::svd_row(), a, where);
  return {r[0], r[1], r[2]};
}
Tensor inverse(const Tensor& a, Where where) { return graph::made(0, {a}, where); }
Tensor det(const Tensor& a, Where where) { return graph::made(1, {a}, where); }
Tensor logdet(const Tensor& a, Where where) { return graph::made(2, {a}, where); }
Tensor lstsq(const Tensor& a, const Tensor& b, Where where) { return graph::made(3, {a, b}, where); }
Tensor pinv(const Tensor& a, double rcond, Where where) {
  return graph::call(graph::made_rows()[4], {a}, graph::PseudoAttributes{rcond}, where);
}
Tensor matrix_power(const Tensor& a, Extent n, Where where) {
  return graph::call(graph::made_rows()[5], {a}, graph::PowerOfMatrix{n}, where);
}

}  // namespace weft
