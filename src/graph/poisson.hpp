// Counts of the Poisson distribution, as a call that devices have kernels for.
#pragma once

#include "graph/op.hpp"

namespace weft::graph {

/// Beyond this rate kernels would walk too far; the distribution is then nearly normal.
inline constexpr double kPoissonRateMax = 0x1p20;
/// Terms of the series for ln(rate / mode), and the least mode for which it and Stirling's are used.
inline constexpr int kPoissonTerms = 12, kPoissonStirling = 10;

/// Of (rate, unit), both f32 or f64 and of one shape: the count that a number in [0, 1) stands for. Counts have intervals in
/// [0, 1) as long as their probabilities, in the order mode, mode + 1, mode - 1, mode + 2, ...
const OpRow& poisson_quantile_row();

}  // namespace weft::graph
