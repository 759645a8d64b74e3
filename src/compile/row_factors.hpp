// Rows that are scaled by one number each, as those of an RMS norm: y[i, e] = f[i] x[i, e], where f needs sums over the row.
// A product with such rows is f[i] times the product with x, and so can sum as it reads.
#pragma once

#include <optional>
#include <vector>

#include "compile/kernel.hpp"

namespace weft::compiler {

/// Steps of a loop kernel: the one store is of the product of all `inner` and `outer` values.
struct RowFactors {
  std::vector<int> sums;   // reduce steps, of values that need no sum themselves
  std::vector<int> outer;  // one value a row, from sums
  std::vector<int> inner;  // need no sum
};

/// Nothing where the kernel is not of this kind.
std::optional<RowFactors> row_factors(const kernel::LoopKernel& loop);

}  // namespace weft::compiler
