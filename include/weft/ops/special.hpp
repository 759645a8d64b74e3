// Special functions that are more than a formula for each element: orthogonal polynomials of any degree, and the multivariate
// gamma function. The others (erfcx, zeta, igamma, bessel_j0, airy_ai, ...) are in weft/elementwise.hpp.
#pragma once

#include "weft/tensor.hpp"

namespace weft {

/// Chebyshev's polynomials of the first to fourth kind, of degree n at x, by p_(k + 1) = 2 x p_k - p_(k - 1) with p_0 = 1 and
/// p_1 = x (T), 2 x (U), 2 x - 1 (V), 2 x + 1 (W).
/// Shapes    x and n broadcast; n may differ from element to element
/// Dtypes    x floats, n numbers, which are cut to whole ones -> that of x; 0 for n < 0, NaN for n > 65536
/// Errors    DTypeError, ShapeError
/// Gradient  to x, of any order; none to n
[[nodiscard]] Tensor chebyshev_polynomial_t(const Tensor& x, const Tensor& n, Where where = Where::current());
[[nodiscard]] Tensor chebyshev_polynomial_u(const Tensor& x, const Tensor& n, Where where = Where::current());
[[nodiscard]] Tensor chebyshev_polynomial_v(const Tensor& x, const Tensor& n, Where where = Where::current());
[[nodiscard]] Tensor chebyshev_polynomial_w(const Tensor& x, const Tensor& n, Where where = Where::current());
/// The same at 2 x - 1, orthogonal over [0, 1].
[[nodiscard]] Tensor shifted_chebyshev_polynomial_t(const Tensor& x, const Tensor& n, Where where = Where::current());
[[nodiscard]] Tensor shifted_chebyshev_polynomial_u(const Tensor& x, const Tensor& n, Where where = Where::current());
[[nodiscard]] Tensor shifted_chebyshev_polynomial_v(const Tensor& x, const Tensor& n, Where where = Where::current());
[[nodiscard]] Tensor shifted_chebyshev_polynomial_w(const Tensor& x, const Tensor& n, Where where = Where::current());
/// Hermite's polynomials: of the physicists, H_(k + 1) = 2 x H_k - 2 k H_(k - 1), and of probability, He_(k + 1) = x He_k - k
/// He_(k - 1). Otherwise as above.
[[nodiscard]] Tensor hermite_polynomial_h(const Tensor& x, const Tensor& n, Where where = Where::current());
[[nodiscard]] Tensor hermite_polynomial_he(const Tensor& x, const Tensor& n, Where where = Where::current());
/// Laguerre's polynomial: (k + 1) L_(k + 1) = (2 k + 1 - x) L_k - k L_(k - 1).
[[nodiscard]] Tensor laguerre_polynomial_l(const Tensor& x, const Tensor& n, Where where = Where::current());
/// Legendre's polynomial: (k + 1) P_(k + 1) = (2 k + 1) x P_k - k P_(k - 1).
[[nodiscard]] Tensor legendre_polynomial_p(const Tensor& x, const Tensor& n, Where where = Where::current());

/// The logarithm of the multivariate gamma function of dimension p: p (p - 1) / 4 ln(pi) + sum_(j < p) lgamma(x - j / 2); NaN for
/// x <= (p - 1) / 2.
/// Dtypes    floats
/// Errors    UsageError for p < 1
/// Gradient  sum_j digamma(x - j / 2)
[[nodiscard]] Tensor mvlgamma(const Tensor& x, Extent p, Where where = Where::current());

}  // namespace weft
