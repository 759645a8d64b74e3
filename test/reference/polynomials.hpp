// Slow reference of orthogonal polynomials: their coefficients, by the textbook's recurrences, and derivatives of powers.
#pragma once

#include "compile/call_attributes.hpp"
#include "graph/polynomials.hpp"
#include "reference/values.hpp"

namespace weft::reference {

/// Of x^0, x^1, ...
inline std::vector<double> polynomial_coefficients(graph::PolynomialKind kind, int degree) {
  using Kind = graph::PolynomialKind;
  if (degree < 0) return {0};
  const auto times_x = [](const std::vector<double>& p, double factor) {
    std::vector<double> out{0};
    for (const double c : p) out.push_back(factor * c);
    return out;
  };
  const auto plus = [](std::vector<double> a, const std::vector<double>& b, double factor) {
    a.resize(std::max(a.size(), b.size()));
    for (std::size_t i = 0; i < b.size(); ++i) a[i] += factor * b[i];
    return a;
  };
  std::vector<double> before{1}, now;
  switch (kind) {
    case Kind::chebyshev_t:
    case Kind::hermite_he:
    case Kind::legendre_p: now = {0, 1}; break;
    case Kind::chebyshev_u:
    case Kind::hermite_h: now = {0, 2}; break;
    case Kind::chebyshev_v: now = {-1, 2}; break;
    case Kind::chebyshev_w: now = {1, 2}; break;
    case Kind::laguerre_l: now = {1, -1}; break;
  }
  if (degree == 0) return before;
  for (int k = 1; k < degree; ++k) {
    std::vector<double> next;
    if (kind == Kind::hermite_h) {
      next = plus(times_x(now, 2), before, -2.0 * k);
    } else if (kind == Kind::hermite_he) {
      next = plus(times_x(now, 1), before, -k);
    } else if (kind == Kind::legendre_p) {
      next = plus(times_x(now, (2.0 * k + 1) / (k + 1)), before, -static_cast<double>(k) / (k + 1));
    } else if (kind == Kind::laguerre_l) {
      next = plus(times_x(now, -1.0 / (k + 1)), now, (2.0 * k + 1) / (k + 1));
      next = plus(next, before, -static_cast<double>(k) / (k + 1));
    } else {
      next = plus(times_x(now, 2), before, -1);
    }
    before = std::exchange(now, next);
  }
  return now;
}

inline void run_orthogonal_polynomial(const kernel::CallKernel& k, std::vector<Values>& buffers) {
  const auto attributes = kernel::attributes_of<graph::PolynomialAttributes>(k);
  for (Extent i = 0; i < k.shape().numel(); ++i) {
    const double x = read(k.reads[0], i, buffers), n = read(k.reads[1], i, buffers);
    double value = std::numeric_limits<double>::quiet_NaN();
    if (n <= graph::kPolynomialDegreeMax) {
      value = 0;
      std::vector<double> c = polynomial_coefficients(attributes.kind, static_cast<int>(std::trunc(n)));
      for (Extent order = 0; order < attributes.derivative; ++order) {
        for (std::size_t power = 1; power < c.size(); ++power) c[power - 1] = static_cast<double>(power) * c[power];
        c.back() = 0;
      }
      for (std::size_t power = c.size(); power-- > 0;) value = value * x + c[power];
    }
    write(k.out(), i, value, buffers);
  }
}

}  // namespace weft::reference
