// Polynomials as texts of the expression language.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace weft::scalar {

/// The polynomial by Horner's rule. 17 digits give the same f64 when read.
std::string polynomial(std::span<const double> coefficients, std::string_view variable);

/// sum_k (q^k / (k! (k + order)!)), the power series of a modified Bessel function in q = (x / 2)^2.
std::string bessel_series(int order, int terms);

}  // namespace weft::scalar
