// Computes each scalar op slowly and in double: the reference that every backend is compared with.
#pragma once

#include "ops/scalar.hpp"

namespace weft::scalar {

/// One op on values; `type` is the result's type, `from` the type of the first operand (casts ask). Integers compute
/// exactly and wrap around. Not for leaves.
double apply(Op op, DType type, DType from, double a, double b = 0, double c = 0);

}  // namespace weft::scalar
