// How floating-point numbers are made: their neighbours, fractions, exponents and decimals. Neighbours and parts are exact.
// A GPU may take subnormal numbers as 0; then the neighbours of 0 are lost.
#pragma once

#include "weft/tensor.hpp"

namespace weft {

/// The number of x's dtype that is nearest to x in the direction of y; y where both are equal, NaN where either is NaN.
/// Shapes    x and y broadcast
/// Dtypes    floats; of two dtypes the promoted one
/// Gradient  none
/// Errors    DTypeError for integers; ShapeError for shapes that do not broadcast
[[nodiscard]] Tensor nextafter(const Tensor& x, const Tensor& y, Where where = Where::current());

struct MantissaAndExponent {
  Tensor mantissa, exponent;
};
/// x = mantissa 2^exponent with 0.5 <= |mantissa| < 1. Of 0, infinity and NaN, the mantissa is x and the exponent 0.
/// Dtypes    floats; the mantissa has x's dtype, the exponent is i32
/// Gradient  to x through the mantissa: g 2^-exponent
/// Errors    DTypeError for integers
[[nodiscard]] MantissaAndExponent frexp(const Tensor& x, Where where = Where::current());

/// The nearest number with `decimals` digits behind the point, of two the even one: round(10^decimals x) / 10^decimals. Negative
/// decimals round to tens, hundreds, and so on. `round(x)` of weft/elementwise.hpp rounds to whole numbers.
/// Dtypes    floats
/// Gradient  0
/// Errors    DTypeError for integers
/// Accuracy  as in PyTorch and NumPy the product is rounded too, so that a number just beside the middle may go either way
[[nodiscard]] Tensor round(const Tensor& x, int decimals, Where where = Where::current());

}  // namespace weft
