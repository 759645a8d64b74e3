// Rows that are each scaled by one number, as in an RMS norm: y[i, e] = f[i] x[i, e], where f needs sums over the row. A
// product with such rows is f[i] times the product with x, so a kernel can sum while it reads.
#pragma once

#include <optional>
#include <vector>

#include "compile/kernel.hpp"

namespace weft::compiler {

/// Steps of a loop kernel: the one store is of the product of all `inner` and `outer` values.
struct RowFactors {
  std::vector<int> sums;   // reduce steps of values that do not need a sum
  std::vector<int> outer;  // one value for each row, computed from sums
  std::vector<int> inner;  // values that do not need a sum
};

/// Nothing if the kernel is not of this kind.
std::optional<RowFactors> row_factors(const kernel::LoopKernel& loop);

}  // namespace weft::compiler
