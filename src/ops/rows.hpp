// The rows of the op table, in a file for each family. To add an op, add a row to one of them.
#pragma once

#include "ops/table.hpp"

namespace weft::ops {

std::span<const ElementwiseRow> unary_rows();       // mathematics of one value
std::span<const ElementwiseRow> activation_rows();  // activations of networks
std::span<const ElementwiseRow> binary_rows();      // arithmetic and comparisons of two values
std::span<const ElementwiseRow> ternary_rows();     // where, clamp, lerp, ...
std::span<const ElementwiseRow> special_rows();     // special functions: erfc, lgamma, i0, ...

}  // namespace weft::ops
