#include "backend/cpu/poisson.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "base/threads.hpp"
#include "graph/poisson.hpp"

namespace weft::cpu {
namespace {

// The largest probability of a count, at the whole number below the rate.
template <class T>
T probability_of_mode(T rate, T mode) {
  if (mode < graph::kPoissonStirling) {
    T p = std::exp(-rate);
    for (T k = 1; k <= mode; ++k) p *= rate / k;
    return p;
  }
  // With d = (rate - mode) / mode: exp(mode (ln(1 + d) - d)), over Stirling's root and series. No large numbers cancel.
  const T d = (rate - mode) / mode, per_mode = 1 / mode, squared = per_mode * per_mode;
  T power = -d * d * mode, sum = 0;
  for (int k = 2; k <= graph::kPoissonTerms; ++k) {
    sum += power / static_cast<T>(k);
    power *= -d;
  }
  const T series = per_mode * (T{1} / 12 - squared * (T{1} / 360 - squared * (T{1} / 1260 - squared / 1680)));
  return std::exp(sum - series) / std::sqrt(2 * std::numbers::pi_v<T> * mode);
}

template <class T>
T poisson_count(T rate, T unit) {
  if (!(rate >= 0 && rate <= static_cast<T>(graph::kPoissonRateMax))) return std::numeric_limits<T>::quiet_NaN();
  const T mode = std::floor(rate);
  T above = probability_of_mode(rate, mode), below = above, rest = unit - above;
  if (rest < 0) return mode;
  for (T high = mode + 1, low = mode;; ++high, --low) {
    above *= rate / high;
    rest -= above;
    if (rest < 0) return high;
    if (low > 0) {
      below *= low / rate;
      rest -= below;
      if (rest < 0) return low - 1;
    } else {
      below = 0;
    }
    // Rounding has left a part of [0, 1) to no count.
    if (above + below < std::numeric_limits<T>::epsilon() / 1024) return mode;
  }
}

template <class T>
void poisson_counts(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs) {
  const T *rates = reinterpret_cast<const T*>(reads[0]), *units = reinterpret_cast<const T*>(reads[1]);
  T* counts = reinterpret_cast<T*>(outs[0]);
  const Extent n = kernel.shape().numel(), block = 1024;
  parallel_for((n + block - 1) / block, [&](Extent task) {
    for (Extent i = task * block; i < std::min(n, (task + 1) * block); ++i)
      counts[i] = poisson_count(rates[i], units[i]);
  });
}

}  // namespace

void run_poisson_quantile(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs) {
  if (kernel.types[0] == DType::f64)
    poisson_counts<double>(kernel, reads, outs);
  else
    poisson_counts<float>(kernel, reads, outs);
}

}  // namespace weft::cpu
