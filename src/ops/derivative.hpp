// Symbolic derivatives of scalar code.
#pragma once

#include <vector>

#include "ops/scalar.hpp"

namespace weft::scalar {

/// For each operand i of `forward`, the expression g * d forward / d operand i. It has two operands more than `forward`:
/// (operands..., output, g), where `output` is the value of forward (so that exp need not be computed twice) and g the
/// incoming gradient. The result is untyped; `typed` gives it types.
///
/// Conventions, as in PyTorch: min and max give half to each on a tie; abs, sign and copysign have slope 0 at 0; steps
/// (floor, comparisons, casts to integers, logic) have slope 0; pow has slope 0 in x where y = 0, and 0 in y where x = 0
/// and y >= 0. A select differentiates only the side it takes, so a NaN or infinity of the other side does not reach it.
std::vector<Expression> gradient(const Expression& forward);

/// True for the constant 0: no gradient flows back.
bool is_zero(const Expression& expression);

}  // namespace weft::scalar
