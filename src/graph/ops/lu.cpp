// Factors L U of matrices with rows exchanged, and what is solved or built from factors that are known.
#include <fmt/format.h>

#include "graph/op_families.hpp"
#include "graph/ops/matrices.hpp"
#include "weft/ops/linear_algebra.hpp"

namespace weft {
namespace graph {
namespace {

using namespace matrices;
using matrices::turned;  // convolutions have a function of this name

struct PivotAttributes {
  Extent rows = 0;
};

// L with ones on its diagonal and U, from both in one matrix.
Tensor lower_of(const Tensor& lu) {
  const Extent k = std::min(lu.dim(-2), lu.dim(-1));
  return weft::tril(weft::narrow(lu, -1, 0, k), -1) + eye(lu.dim(-2), k, lu);
}
Tensor upper_of(const Tensor& lu) { return weft::triu(weft::narrow(lu, -2, 0, std::min(lu.dim(-2), lu.dim(-1)))); }
// P with A = P L U: column i has its 1 in the row of A that row i of L U is.
Tensor permutation_of(const Tensor& pivots, Extent rows, const Tensor& like) {
  const Tensor order = call(pivot_order_row(), {pivots}, PivotAttributes{rows}, Where::current());
  const Tensor row = weft::reshape(arange(rows, DType::i32, like.device()), {rows, 1});
  return weft::cast(elementwise("eq", {row, weft::unsqueeze(order, -2)}), like.dtype());
}

void check_factors(const Call& c) {
  const Tensor &lu = c.input(0), &pivots = c.input(1);
  check_matrix(c, false);
  if (pivots.rank() != lu.rank() - 1 || pivots.dim(-1) != std::min(lu.dim(-2), lu.dim(-1)))
    c.shape_error(fmt::format("pivots is not [..., {}] with the batch of lu", std::min(lu.dim(-2), lu.dim(-1))));
  for (int axis = 0; axis + 1 < pivots.rank(); ++axis)
    if (pivots.dim(axis) != lu.dim(axis)) c.shape_error("the batches of lu and pivots differ");
}

InputSpec pivots_input() { return {.name = "pivots", .only = {DType::i32}}; }

std::vector<Result> matrices_of_lu(const Tensor& lu) {
  const Shape batch = batch_shape(lu);
  const Extent m = lu.dim(-2), n = lu.dim(-1), k = std::min(m, n);
  return {{lu.dtype(), with_matrix(batch, m, m)},
          {lu.dtype(), with_matrix(batch, m, k)},
          {lu.dtype(), with_matrix(batch, k, n)}};
}

CaseInput pivoted() { return {.shape = {3, 3}, .values = {0, 2, 1, 1, 0, 0, 3, 0, 2}}; }

}  // namespace

const OpRow& lu_factor_row() {
  static const OpRow row{
      .name = "lu_factor",
      .family = kDecompositionFamily,
      .inputs = {matrix("a")},
      .result = "that of a, i32",
      .several_outputs = true,
      .doc =
          "L (below the diagonal, whose ones are left out) and U in one matrix, and for each step the row, from 1, "
          "that "
          "was exchanged with the step's own.",
      .torch = "tuple(torch.linalg.lu_factor(a))",
      .infer =
          [](const Call& c) {
            check_matrix(c, false);
            const Tensor& a = c.input(0);
            return std::vector<Result>{like(a),
                                       {DType::i32, with_vector(batch_shape(a), std::min(a.dim(-2), a.dim(-1)))}};
          },
      // With M = L^-1 dA U^-1 of square matrices, dL = L tril(M, -1) and dU = triu(M) U. Further rows of L are A2 U^-1,
      // further columns of U are L^-1 A2.
      .gradient =
          [](const GradientCall& g) {
            const Tensor& lu = g.results[0];
            if (!g.gradients[0].defined()) return Tensors{zeros_like(g.call.input(0))};
            const Extent m = lu.dim(-2), n = lu.dim(-1), k = std::min(m, n);
            const Tensor l = lower_of(lu), u = upper_of(lu);
            const Tensor d_l = weft::tril(weft::narrow(g.gradients[0], -1, 0, k), -1);
            const Tensor d_u = weft::triu(weft::narrow(g.gradients[0], -2, 0, k));
            const auto rows = [](const Tensor& x, Extent from, Extent count) {
              return weft::narrow(x, -2, from, count);
            };
            const auto columns = [](const Tensor& x, Extent from, Extent count) {
              return weft::narrow(x, -1, from, count);
            };
            const Tensor square_l = rows(l, 0, k), square_u = columns(u, 0, k);
            Tensor below = weft::matmul(turned(square_l), rows(d_l, 0, k));
            Tensor above = weft::matmul(columns(d_u, 0, k), turned(square_u));
            if (n > k) below = below - weft::matmul(columns(d_u, k, n - k), turned(columns(u, k, n - k)));
            if (m > k) above = above - weft::matmul(turned(rows(l, k, m - k)), rows(d_l, k, m - k));
            const auto after_l = [&](const Tensor& x) { return triangular_call(turned(square_l), x, true, true); };
            const auto after_u = [&](const Tensor& x) { return turned(triangular_call(square_u, turned(x), true)); };
            Tensor d_a = after_u(after_l(weft::tril(below, -1) + weft::triu(above)));
            if (n > k) d_a = weft::concat({d_a, after_l(columns(d_u, k, n - k))}, -1);
            if (m > k) d_a = weft::concat({d_a, after_u(rows(d_l, k, m - k))}, -2);
            return Tensors{weft::matmul(permutation_of(g.results[1], m, lu), d_a)};
          },
      .form = KernelForm::routine,
      .cases = {{"a batch", {regular(3, 4, 4)}},
                {"pivots", {pivoted()}},
                {"tall", {regular(2, 5, 3)}},
                {"wide", {regular(0, 3, 5)}}},
      .errors = {kNoMatrix},
      .apply =
          [](const Arguments& a) {
            const LuFactors f = weft::lu_factor(a.input(0));
            return Tensors{f.lu, f.pivots};
          }};
  return row;
}

const OpRow& pivot_order_row() {
  static const OpRow row{
      .name = "pivot_order",
      .family = kDecompositionFamily,
      .inputs = {pivots_input()},
      .attributes = {field("rows", &PivotAttributes::rows, "rows of the matrix", {.required = true, .least = 0})},
      .result = "i32",
      .differentiable = false,
      .doc = "Which row of A each row of L U is, from the pivots of lu_factor; -1 for pivots outside.",
      .infer =
          [](const Call& c) {
            const Tensor& pivots = c.input(0);
            if (pivots.rank() < 1) c.shape_error("pivots has no axis");
            Shape shape = pivots.shape();
            shape[shape.rank() - 1] = c.attributes<PivotAttributes>().rows;
            return std::vector<Result>{{DType::i32, shape}};
          },
      .no_gradient = "positions do not change with the matrix; detach it",
      .form = KernelForm::routine,
      .cases = {{"three exchanges",
                 {{.shape = {3}, .type = DType::i32, .values = {3, 2, 5}}},
                 {{"rows", Extent{5}}},
                 false}},
      .errors = {{"floats", {{{3}}}, {{"rows", Extent{3}}}, "pivots"}}};
  return row;
}

namespace {

struct LuSolveAttributes {
  bool left = true, adjoint = false;
};

const OpRow& lu_row() {
  static const OpRow row{
      .name = "lu",
      .family = kDecompositionFamily,
      .inputs = {matrix("a")},
      .result = "that of a",
      .several_outputs = true,
      .doc =
          "P L U = A [..., m, n]: a permutation, a lower triangle with ones on its diagonal, an upper "
          "triangle.",
      .torch = "tuple(torch.linalg.lu(a))",
      .numpy = "scipy.linalg.lu(a)",
      .infer =
          [](const Call& c) {
            check_matrix(c, false);
            return matrices_of_lu(c.input(0));
          },
      .decompose =
          [](const Call& c) {
            const Tensors f = results_of(lu_factor_row(), c.input(0), c.where());
            return Tensors{permutation_of(f[1], f[0].dim(-2), f[0]), lower_of(f[0]), upper_of(f[0])};
          },
      .cases = {{"a batch", {regular(2, 4, 4)}},
                {"pivots", {pivoted()}},
                {"tall", {regular(0, 5, 3)}},
                {"wide", {regular(0, 3, 5)}}},
      .errors = {kNoMatrix}};
  return row;
}

const OpRow& lu_unpack_row() {
  static const OpRow row{
      .name = "lu_unpack",
      .family = kDecompositionFamily,
      .inputs = {matrix("lu"), pivots_input()},
      .result = "that of lu",
      .several_outputs = true,
      .doc = "P, L and U from the results of lu_factor.",
      .torch = "torch.lu_unpack(lu, pivots)",
      .infer =
          [](const Call& c) {
            check_factors(c);
            return matrices_of_lu(c.input(0));
          },
      .decompose =
          [](const Call& c) {
            const Tensor& lu = c.input(0);
            return Tensors{permutation_of(c.input(1), lu.dim(-2), lu), lower_of(lu), upper_of(lu)};
          },
      .cases = {{"square", {regular(0, 3, 3), {.shape = {3}, .type = DType::i32, .values = {3, 2, 3}}}, {}, false}},
      .errors = {{"few pivots",
                  {{{3, 3}}, {.shape = {2}, .type = DType::i32, .values = {1, 2}}},
                  {},
                  "pivots is not [..., 3]"}}};
  return row;
}

const OpRow& lu_solve_row() {
  static const OpRow row{
      .name = "lu_solve",
      .family = kDecompositionFamily,
      .inputs = {matrix("lu"), pivots_input(), matrix("b")},
      .attributes = {field("left", &LuSolveAttributes::left, "true: A X = B; false: X A = B"),
                     field("adjoint", &LuSolveAttributes::adjoint, "whether the transpose of A takes the place of A")},
      .result = "that of lu",
      .doc = "X with A X = B, from the results of lu_factor(A).",
      .torch = "torch.linalg.lu_solve(lu, pivots, b, left=left, adjoint=adjoint)",
      .infer =
          [](const Call& c) {
            const Tensor &lu = c.input(0), &b = c.input(2);
            check_factors(c);
            check_matrix(c, true);
            if (lu.dtype() != b.dtype()) c.dtype_error("the dtypes of lu and b differ; cast one");
            const int axis = c.attributes<LuSolveAttributes>().left ? -2 : -1;
            if (b.rank() != lu.rank() || batch_shape(b) != batch_shape(lu) || b.dim(axis) != lu.dim(-1))
              c.shape_error(fmt::format(
                  "b is not [..., {}] with the batch of lu",
                  axis == -2 ? fmt::format("{}, columns", lu.dim(-1)) : fmt::format("rows, {}", lu.dim(-1))));
            return std::vector<Result>{like(b)};
          },
      .decompose =
          [](const Call& c) {
            const auto [left, adjoint] = c.attributes<LuSolveAttributes>();
            const Tensor& lu = c.input(0);
            const Tensor p = permutation_of(c.input(1), lu.dim(-2), lu), l = lower_of(lu), u = upper_of(lu);
            Tensor x = left ? c.input(2) : turned(c.input(2));
            // X A = B is A^T X^T = B^T.
            if (adjoint == left) {
              x = weft::matmul(p, triangular_call(turned(l), triangular_call(turned(u), x, false), true, true));
            } else {
              x = triangular_call(u, triangular_call(l, weft::matmul(turned(p), x), false, true), true);
            }
            return Tensors{left ? x : turned(x)};
          },
      .cases = {{"a column", {regular(0, 3, 3), {.shape = {3}, .type = DType::i32, .values = {3, 2, 3}}, {{3, 2}}}},
                {"the transpose",
                 {regular(0, 3, 3), {.shape = {3}, .type = DType::i32, .values = {3, 2, 3}}, {{3, 2}}},
                 {{"adjoint", true}}},
                {"from the right",
                 {regular(0, 3, 3), {.shape = {3}, .type = DType::i32, .values = {3, 2, 3}}, {{2, 3}}},
                 {{"left", false}}}},
      .errors = {{"rows that differ",
                  {{{3, 3}}, {.shape = {3}, .type = DType::i32, .values = {1, 2, 3}}, {{4, 1}}},
                  {},
                  "b is not [..., 3, columns]"},
                 {"not square",
                  {{{3, 4}}, {.shape = {3}, .type = DType::i32, .values = {1, 2, 3}}, {{3, 1}}},
                  {},
                  "lu has 3 rows and 4 columns; it must be square"}},
      .apply =
          [](const Arguments& a) {
            return Tensors{
                weft::lu_solve(a.input(0), a.input(1), a.input(2), {a.boolean("left"), a.boolean("adjoint")})};
          }};
  return row;
}

struct UpperAttribute {
  bool upper = false;
};

const OpRow& cholesky_solve_row() {
  static const OpRow row{
      .name = "cholesky_solve",
      .family = kDecompositionFamily,
      .inputs = {matrix("b"), matrix("l")},
      .attributes = {field("upper", &UpperAttribute::upper, "whether l is upper triangular: then A = L^T L")},
      .result = "that of b",
      .doc = "X with A X = B for A = L L^T, from the result of cholesky(A).",
      .torch = "torch.cholesky_solve(b, l.triu() if upper else l.tril(), upper=upper)",
      .infer =
          [](const Call& c) {
            const Tensor &b = c.input(0), &l = c.input(1);
            check_matrix(c, false);
            if (b.dtype() != l.dtype()) c.dtype_error("the dtypes differ; cast one");
            if (l.rank() != b.rank() || batch_shape(l) != batch_shape(b) || l.dim(-1) != l.dim(-2) ||
                l.dim(-1) != b.dim(-2))
              c.shape_error(fmt::format("l is not [..., {0}, {0}] with the batch of b", b.dim(-2)));
            return std::vector<Result>{like(b)};
          },
      .decompose =
          [](const Call& c) {
            const Tensor& l = c.input(1);
            const bool upper = c.attributes<UpperAttribute>().upper;
            const Tensor first = upper ? turned(l) : l;
            return Tensors{triangular_call(turned(first), triangular_call(first, c.input(0), false), true)};
          },
      .cases = {{"lower", {{{2, 4, 3}}, definite(2, 4)}}, {"upper", {{{4, 1}}, definite(0, 4)}, {{"upper", true}}}},
      .errors = {{"rows that differ", {{{3, 1}}, {{4, 4}}}, {}, "l is not [..., 3, 3]"}},
      .apply =
          [](const Arguments& a) { return Tensors{weft::cholesky_solve(a.input(0), a.input(1), a.boolean("upper"))}; }};
  return row;
}

const OpRow& cholesky_inverse_row() {
  static const OpRow row{
      .name = "cholesky_inverse",
      .family = kDecompositionFamily,
      .inputs = {matrix("l")},
      .attributes = {field("upper", &UpperAttribute::upper, "whether l is upper triangular: then A = L^T L")},
      .result = "that of l",
      .doc = "A^-1 for A = L L^T, from the result of cholesky(A).",
      .torch = "torch.cholesky_inverse(l.triu() if upper else l.tril(), upper=upper)",
      .infer = like_square_matrix,
      .decompose =
          [](const Call& c) {
            const Tensor& l = c.input(0);
            return Tensors{weft::cholesky_solve(weft::expand(eye(l.dim(-1), l), l.shape()), l,
                                                c.attributes<UpperAttribute>().upper, c.where())};
          },
      .cases = {{"lower", {definite(2, 4)}}, {"upper", {definite(0, 3)}, {{"upper", true}}}},
      .errors = {{"not square", {{{3, 4}}}, {}, "l has 3 rows and 4 columns; it must be square"}}};
  return row;
}

// The product of the reflections is I - V T V^T, with 1 / tau on the diagonal of T^-1 and V^T V above it.
const OpRow& householder_product_row() {
  static const OpRow row{
      .name = "householder_product",
      .aliases = {"orgqr"},
      .family = kDecompositionFamily,
      .inputs = {matrix("a"), matrix("tau")},
      .result = "that of a",
      .doc =
          "The first n columns of the product of reflections I - tau_i v_i v_i^T, where v_i is column i of A [..., m, "
          "n] "
          "below its diagonal, with a 1 on it.",
      .torch = "torch.linalg.householder_product(a, tau)",
      .infer =
          [](const Call& c) {
            const Tensor &a = c.input(0), &tau = c.input(1);
            check_matrix(c, false);
            if (a.dtype() != tau.dtype()) c.dtype_error("the dtypes differ; cast one");
            if (a.dim(-2) < a.dim(-1)) c.shape_error("a has fewer rows than columns");
            if (tau.rank() != a.rank() - 1 || tau.dim(-1) > a.dim(-1) ||
                with_vector(batch_shape(a), tau.dim(-1)) != tau.shape())
              c.shape_error(fmt::format("tau is not [..., k] with k <= {} and the batch of a", a.dim(-1)));
            return std::vector<Result>{like(a)};
          },
      .decompose =
          [](const Call& c) {
            const Tensor &a = c.input(0), &tau = c.input(1);
            const Extent m = a.dim(-2), n = a.dim(-1), k = tau.dim(-1);
            const Tensor v = weft::tril(weft::narrow(a, -1, 0, k), -1) + eye(m, k, a);
            const Tensor across = weft::unsqueeze(tau, -1), unit = eye(k, a);
            const Tensor inner = weft::triu(weft::matmul(turned(v), v), 1) * across + unit;
            const Tensor t = triangular_call(inner, unit * across, true, true);
            const Tensor first = eye(m, n, a);
            return Tensors{first - weft::matmul(v, weft::matmul(t, weft::matmul(turned(v), first)))};
          },
      .cases = {{"tall", {{{2, 5, 3}, -1, 1}, {{2, 3}, 0.2, 1.5}}}, {"few", {{{4, 4}, -1, 1}, {{2}, 0.2, 1.5}}}},
      .errors = {{"wide", {{{3, 4}}, {{3}}}, {}, "a has fewer rows than columns"},
                 {"many reflections", {{{4, 3}}, {{4}}}, {}, "tau is not [..., k] with k <= 3"}}};
  return row;
}

}  // namespace

OpRows lu_rows() {
  return {&lu_factor_row(),        &pivot_order_row(),        &lu_row(),
          &lu_unpack_row(),        &lu_solve_row(),           &cholesky_solve_row(),
          &cholesky_inverse_row(), &householder_product_row()};
}

}  // namespace graph

LuFactors lu_factor(const Tensor& a, Where where) {
  const graph::Tensors r = graph::results_of(graph::lu_factor_row(), a, where);
  return {r[0], r[1]};
}
LuMatrices lu(const Tensor& a, Where where) {
  const graph::Tensors r = graph::results_of(graph::lu_row(), a, where);
  return {r[0], r[1], r[2]};
}
LuMatrices lu_unpack(const Tensor& lu, const Tensor& pivots, Where where) {
  const graph::Tensors r = graph::results_of(graph::lu_unpack_row(), {lu, pivots}, {}, where);
  return {r[0], r[1], r[2]};
}
Tensor lu_solve(const Tensor& lu, const Tensor& pivots, const Tensor& b, LuSolveOptions options, Where where) {
  const graph::LuSolveAttributes attributes{options.left, options.adjoint};
  Shape batch;
  if (!lu.defined() || !pivots.defined() || !b.defined() || lu.rank() < 2 || b.rank() < 2 || pivots.rank() < 1 ||
      !graph::broadcast_shapes(graph::batch_shape(lu), graph::batch_shape(b), batch) || pivots.rank() != lu.rank() - 1)
    return graph::call(graph::lu_solve_row(), {lu, pivots, b}, attributes, where);
  return graph::call(graph::lu_solve_row(),
                     {expand(lu, graph::with_matrix(batch, lu.dim(-2), lu.dim(-1))),
                      expand(pivots, graph::with_vector(batch, pivots.dim(-1))),
                      expand(b, graph::with_matrix(batch, b.dim(-2), b.dim(-1)))},
                     attributes, where);
}
Tensor cholesky_solve(const Tensor& b, const Tensor& l, bool upper, Where where) {
  Shape batch;
  if (!l.defined() || !b.defined() || l.rank() < 2 || b.rank() < 2 ||
      !graph::broadcast_shapes(graph::batch_shape(l), graph::batch_shape(b), batch))
    return graph::call(graph::cholesky_solve_row(), {b, l}, graph::UpperAttribute{upper}, where);
  return graph::call(graph::cholesky_solve_row(),
                     {expand(b, graph::with_matrix(batch, b.dim(-2), b.dim(-1))),
                      expand(l, graph::with_matrix(batch, l.dim(-2), l.dim(-1)))},
                     graph::UpperAttribute{upper}, where);
}
Tensor cholesky_inverse(const Tensor& l, bool upper, Where where) {
  return graph::call(graph::cholesky_inverse_row(), {l}, graph::UpperAttribute{upper}, where);
}
Tensor householder_product(const Tensor& a, const Tensor& tau, Where where) {
  return graph::call(graph::householder_product_row(), {a, tau}, graph::Words{}, where);
}

}  // namespace weft
