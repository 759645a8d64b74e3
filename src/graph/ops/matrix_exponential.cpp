// The exponential of matrices and its derivative in a direction.
#include "graph/matrix_exponential.hpp"

#include <cmath>
#include <iterator>

#include "graph/ops/matrices.hpp"
#include "weft/ops/linear_algebra.hpp"

namespace weft {
namespace graph {
namespace {

using namespace matrices;
using matrices::turned;  // convolutions have a function of this name

/// A matrix, and the derivative of it in a direction if that is asked for.
struct Jet {
  Tensor value, slope;
};

/// The arithmetic of `exponential_polynomial` as nodes of the graph.
struct JetAlgebra {
  Tensor unit_matrix;

  static Jet product(const Jet& x, const Jet& y) {
    return {weft::matmul(x.value, y.value),
            x.slope.defined() ? weft::matmul(x.value, y.slope) + weft::matmul(x.slope, y.value) : Tensor()};
  }
  Jet sum(double unit, std::initializer_list<std::pair<double, const Jet*>> terms) const {
    Jet total{unit == 0 ? Tensor() : unit_matrix * unit, Tensor()};
    for (const auto& [factor, term] : terms) {
      add(total.value, term->value, factor);
      if (term->slope.defined()) add(total.slope, term->slope, factor);
    }
    return total;
  }
  static void add(Tensor& total, const Tensor& term, double factor) {
    const Tensor part = factor == 1 ? term : term * factor;
    total = total.defined() ? total + part : part;
  }
};

Tensor amax_of(const Tensor& a) { return amax(abs(a), {-2, -1}, {.keepdims = true}); }
/// The greatest sum of a column's absolute values, [..., 1, 1].
Tensor size_of(const Tensor& a) { return amax(weft::sum(abs(a), {-2}, {.keepdims = true}), {-1}, {.keepdims = true}); }
/// The smallest integer x with 2^x >= size.
Tensor exponent_of(const Tensor& size) { return ceil(log2(size)); }

/// As `exponential_size`. The elements of `unit` are about 1, so that its powers do not overflow.
Tensor exponential_size(const Tensor& unit) {
  const Tensor square = weft::matmul(unit, unit), cube = weft::matmul(square, unit);
  return minimum(size_of(unit), maximum(sqrt(size_of(square)), exp2(log2(size_of(cube)) / 3.0)));
}

/// `y`, with what is known of e^A without squarings: the diagonal of triangular matrices, and zeros beside that of diagonal ones.
Tensor with_known_elements(const Tensor& y, const Tensor& a) {
  const Tensor zero = scalar_like(0, a);
  const Tensor above = eq(amax_of(weft::triu(a, 1)), zero), below = eq(amax_of(weft::tril(a, -1)), zero);
  const Tensor beside = weft::where(logical_and(above, below), zero, y);
  const Tensor diagonal = weft::where(logical_or(above, below), exp(a), y);
  return weft::where(eye(a.dim(-1), a) > zero, diagonal, beside);
}

// Each matrix of a batch is scaled by its own size. All take as many squarings; those that are done keep their value.
Jet exponential_parts(const Tensor& a, const Tensor& direction) {
  const bool is_double = a.dtype() == DType::f64, has_slope = direction.defined();
  const ExponentialDegree& last =
      is_double ? std::end(kExponentialDegreesF64)[-1] : std::end(kExponentialDegreesF32)[-1];
  const int most = exponential_squarings_max(is_double);
  const double range = is_double ? 1022 : 126;  // powers of two that are normal numbers
  const Tensor greatest = amax_of(a);
  const Tensor exponent = clamp(exponent_of(greatest), -range, range);
  const Tensor unit = a * exp2(-exponent);
  const Tensor size = has_slope ? size_of(unit) / frechet_size(last) : exponential_size(unit) / last.size;
  const Tensor halvings = maximum(exponent_of(size) + exponent, scalar_like(0, size));
  const Tensor squarings = minimum(halvings, scalar_like(most, halvings));
  JetAlgebra algebra{eye(a.dim(-1), a)};
  const Jet scaled{unit * exp2(exponent - halvings), has_slope ? direction * exp2(-squarings) : Tensor()};
  Jet y = exponential_polynomial(algebra, scaled, last.degree);
  for (int step = 0; step < most; ++step) {
    const Tensor goes_on = squarings > scalar_like(step, squarings);
    const Jet square = JetAlgebra::product(y, y);
    y.value = weft::where(goes_on, square.value, y.value);
    if (has_slope) y.slope = weft::where(goes_on, square.slope, y.slope);
  }
  const Tensor is_good = isfinite(greatest);
  const auto checked = [&](const Tensor& t) { return weft::where(is_good, t, scalar_like(NAN, t)); };
  return {checked(with_known_elements(y.value, a)), has_slope ? checked(y.slope) : Tensor()};
}

/// [[a, b], [0, a]].
Tensor block_triangle(const Tensor& a, const Tensor& b) {
  const Tensor upper[] = {a, b}, lower[] = {a * 0.0, a};
  const Tensor rows[] = {weft::concat(upper, -1), weft::concat(lower, -1)};
  return weft::concat(rows, -2);
}

Tensor frechet(const Tensor& a, const Tensor& direction) {
  return call(matrix_exp_frechet_row(), {a, direction}, Words{}, Where::current());
}

// <G, L(A, E)> is <D, e^M> with M = [[A, E], [0, A]] and G in the upper right block of D, so its gradient to M is L(M^T, D). L is
// linear in E, which is scaled by a power of two so that only A decides how often M is halved.
Tensor frechet_gradient(const Tensor& a, const Tensor& direction, const Tensor& g) {
  const Extent n = a.dim(-1);
  const Tensor size = size_of(weft::detach(direction)), zero = scalar_like(0, size);
  const Tensor halvings = weft::where(size > zero, exponent_of(size), zero);
  const Tensor m = block_triangle(a, direction * exp2(-halvings));
  const Tensor h = frechet(turned(m), block_triangle(g * 0.0, g));
  const auto block = [&](Extent from) { return weft::narrow(weft::narrow(h, -2, from, n), -1, from, n); };
  return (block(0) + block(n)) * exp2(halvings);
}

}  // namespace

const OpRow& matrix_exp_row() {
  static const OpRow row{
      .name = "matrix_exp",
      .family = "matrix",
      .inputs = {matrix("a")},
      .doc = "e^A, the sum of A^k / k!; NaN where A has an element that is not finite.",
      .torch = "torch.matrix_exp(a)",
      .numpy = "scipy.linalg.expm(a)",
      .infer = like_square_matrix,
      .decompose =
          [](const Call& c) {
            const Tensor& a = c.input(0);
            return Tensors{a.dim(-1) == 0 ? a : exponential_parts(a, Tensor()).value};
          },
      .gradient = [](const GradientCall& g) { return Tensors{frechet(turned(g.call.input(0)), g.gradients[0])}; },
      .form = KernelForm::routine,
      .cases = {{"a batch of sizes",
                 {{.shape = {3, 2, 2}, .values = {0.1, 0.2, -0.3, 0.1, 1, 2, -1.5, 0.5, 0, 0, 0, 0}}}},
                {"one number", {{.shape = {1, 1}, .values = {-3}}}},
                {"larger", {definite(0, 6)}}},
      .errors = {kNotSquare, kNoMatrix},
      .apply = [](const Arguments& a) { return Tensors{weft::matrix_exp(a.input(0))}; }};
  return row;
}

const OpRow& matrix_exp_frechet_row() {
  static const OpRow row{
      .name = "matrix_exp_frechet",
      .aliases = {"expm_frechet"},
      .family = "matrix",
      .inputs = {matrix("a"), matrix("e")},
      .doc = "The derivative of e^A in the direction E; NaN where A has an element that is not finite.",
      .formula = "the limit of (e^(A + t E) - e^A) / t for t -> 0",
      .torch =
          "torch.matrix_exp(torch.cat([torch.cat([a, e], -1), torch.cat([0 * a, a], -1)], -2))"
          "[..., :a.shape[-1], a.shape[-1]:]",
      .infer =
          [](const Call& c) {
            check_matrix(c, true);
            const Tensor &a = c.input(0), &e = c.input(1);
            if (a.shape() != e.shape()) c.shape_error("a and e differ in shape");
            if (a.dtype() != e.dtype()) c.dtype_error("a and e differ in dtype; cast one");
            return std::vector<Result>{like(a)};
          },
      .decompose =
          [](const Call& c) {
            const Tensor &a = c.input(0), &e = c.input(1);
            return Tensors{a.dim(-1) == 0 ? e : exponential_parts(a, e).slope};
          },
      .gradient =
          [](const GradientCall& g) {
            const Tensor &a = g.call.input(0), &e = g.call.input(1), &d = g.gradients[0];
            return Tensors{frechet_gradient(a, e, d), frechet(turned(a), d)};
          },
      .form = KernelForm::routine,
      .cases = {{"a batch of sizes",
                 {{.shape = {3, 2, 2}, .values = {0.1, 0.2, -0.3, 0.1, 1, 2, -1.5, 0.5, 0, 0, 0, 0}}, {{3, 2, 2}}}},
                {"larger", {regular(0, 4, 4), {{4, 4}}}}},
      .errors = {{"not square", {{{3, 4}}, {{3, 4}}}, {}, "a has 3 rows and 4 columns; it must be square"},
                 {"shapes that differ", {{{3, 3}}, {{2, 2}}}, {}, "a and e differ in shape"}},
      .apply = [](const Arguments& a) { return Tensors{weft::matrix_exp_frechet(a.input(0), a.input(1))}; }};
  return row;
}

}  // namespace graph

Tensor matrix_exp(const Tensor& a, Where where) {
  return graph::call(graph::matrix_exp_row(), {a}, graph::Words{}, where);
}
Tensor matrix_exp_frechet(const Tensor& a, const Tensor& e, Where where) {
  return graph::call(graph::matrix_exp_frechet_row(), {a, e}, graph::Words{}, where);
}

}  // namespace weft
