// Sums over rows of doubles, in several parts that vector instructions add at once.
#pragma once

#include <array>

#include "weft/shape.hpp"

namespace weft::cpu {

/// The sum of x[k] y[k]. The order of additions depends on `count` only.
inline double row_dot(const double* x, const double* y, Extent count) {
  constexpr Extent kParts = 8;
  std::array<double, kParts> sums{};
  Extent k = 0;
  for (; k + kParts <= count; k += kParts)
    for (Extent part = 0; part < kParts; ++part) sums[static_cast<std::size_t>(part)] += x[k + part] * y[k + part];
  double sum = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
  for (; k < count; ++k) sum += x[k] * y[k];
  return sum;
}

}  // namespace weft::cpu
