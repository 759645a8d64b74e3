// Slow reference of counts of the Poisson distribution.
#pragma once

#include "compile/call_attributes.hpp"
#include "graph/poisson.hpp"
#include "reference/values.hpp"

namespace weft::reference {

/// The counts of a rate in the order in which they share [0, 1), until the rest is too small to matter, each with the end of
/// its interval.
inline std::vector<std::pair<double, double>> poisson_intervals(double rate) {
  const auto probability = [&](double count) {
    return rate == 0 ? (count == 0 ? 1.0 : 0.0) : std::exp(count * std::log(rate) - rate - std::lgamma(count + 1));
  };
  const double mode = std::floor(rate);
  std::vector<std::pair<double, double>> intervals{{mode, probability(mode)}};
  for (double by = 1; intervals.back().second < 1 - 1e-9 && by < 100'000; ++by)
    for (const double count : {mode + by, mode - by})
      if (count >= 0) intervals.emplace_back(count, intervals.back().second + probability(count));
  return intervals;
}

inline void run_poisson_quantile(const kernel::CallKernel& k, std::vector<Values>& buffers) {
  for (Extent i = 0; i < k.shape().numel(); ++i) {
    const double rate = read(k.reads[0], i, buffers), unit = read(k.reads[1], i, buffers);
    double count = std::numeric_limits<double>::quiet_NaN();
    if (rate >= 0 && rate <= graph::kPoissonRateMax) {
      count = std::floor(rate);
      for (const auto& [each, end] : poisson_intervals(rate))
        if (unit < end) {
          count = each;
          break;
        }
    }
    write(k.out(), i, count, buffers);
  }
}

}  // namespace weft::reference
