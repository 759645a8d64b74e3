// Orthogonal polynomials of any degree, as a call that devices have kernels for.
#pragma once

#include "graph/op.hpp"

namespace weft::graph {

enum class PolynomialKind : std::uint8_t {
  chebyshev_t,
  chebyshev_u,
  chebyshev_v,
  chebyshev_w,
  hermite_h,
  hermite_he,
  laguerre_l,
  legendre_p,
};

struct PolynomialAttributes {
  PolynomialKind kind = PolynomialKind::chebyshev_t;
  Extent derivative = 0;
};

/// Kernels take a step for each degree.
inline constexpr double kPolynomialDegreeMax = 1 << 16;

/// p_(k + 1) = ((a x + b) p_k - c p_(k - 1)) / d with p_0 = 1 and p_(-1) = 0.
struct PolynomialStep {
  double a, b, c, d;
};
inline PolynomialStep polynomial_step(PolynomialKind kind, double k) {
  const bool begins = k == 0;
  switch (kind) {
    case PolynomialKind::chebyshev_t: return {begins ? 1.0 : 2.0, 0, begins ? 0.0 : 1.0, 1};
    case PolynomialKind::chebyshev_u: return {2, 0, begins ? 0.0 : 1.0, 1};
    case PolynomialKind::chebyshev_v: return {2, begins ? -1.0 : 0.0, begins ? 0.0 : 1.0, 1};
    case PolynomialKind::chebyshev_w: return {2, begins ? 1.0 : 0.0, begins ? 0.0 : 1.0, 1};
    case PolynomialKind::hermite_h: return {2, 0, 2.0 * k, 1};
    case PolynomialKind::hermite_he: return {1, 0, k, 1};
    case PolynomialKind::laguerre_l: return {-1, 2.0 * k + 1, k, k + 1};
    case PolynomialKind::legendre_p: break;
  }
  return {2.0 * k + 1, 0, k, k + 1};
}

/// Of (x, n), both f32 or f64 and of one shape: a derivative of the polynomial of degree n at x. Degrees are cut to whole numbers; 0
/// below degree 0, NaN above kPolynomialDegreeMax.
const OpRow& orthogonal_polynomial_row();

}  // namespace weft::graph
