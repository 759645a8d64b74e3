// Functions of the expression language that are approximations: erfc, erfinv, lgamma, i0, ...
#pragma once

#include <span>
#include <vector>

#include "ops/parse.hpp"

namespace weft::scalar {

/// The returned texts are never freed.
std::vector<DerivedFunction> special_functions();           // error functions, lgamma, digamma, zeta, i0, i1
std::vector<DerivedFunction> bessel_functions();            // J, Y and K of orders 0 and 1, the Airy function
std::vector<DerivedFunction> incomplete_gamma_functions();  // igamma, igammac

/// Coefficients of Stirling's series for ln gamma, and of ln gamma(x) / ((x - 1) (x - 2)) over x - 2.
std::span<const double> stirling_coefficients();
std::span<const double> lgamma_coefficients();

}  // namespace weft::scalar
