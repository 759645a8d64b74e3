#include "backend/cpu/polynomials.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/threads.hpp"
#include "compile/call_attributes.hpp"
#include "graph/polynomials.hpp"

namespace weft::cpu {
namespace {

// Derivatives up to `derivative` of two neighbouring degrees follow each other: that of (a x + b) p is (a x + b) p' + a p.
double polynomial_at(double x, double n, graph::PolynomialKind kind, std::vector<double>& now,
                     std::vector<double>& before) {
  if (std::isnan(n) || n > graph::kPolynomialDegreeMax) return std::numeric_limits<double>::quiet_NaN();
  std::fill(now.begin(), now.end(), 0.0);
  std::fill(before.begin(), before.end(), 0.0);
  now[0] = n >= 0 || std::trunc(n) == 0 ? 1 : 0;
  for (double k = 0; k + 1 <= n; ++k) {
    const auto [a, b, c, d] = graph::polynomial_step(kind, k);
    for (std::size_t order = now.size(); order-- > 0;) {
      double next = (a * x + b) * now[order] - c * before[order];
      if (order > 0) next += static_cast<double>(order) * a * now[order - 1];
      before[order] = now[order];
      now[order] = next / d;
    }
  }
  return now.back();
}

template <class T>
void polynomials(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs) {
  const auto attributes = kernel::attributes_of<graph::PolynomialAttributes>(kernel);
  const T *x = reinterpret_cast<const T*>(reads[0]), *n = reinterpret_cast<const T*>(reads[1]);
  T* y = reinterpret_cast<T*>(outs[0]);
  const Extent count = kernel.shape().numel(), block = 1024;
  parallel_for((count + block - 1) / block, [&](Extent task) {
    std::vector<double> now(static_cast<std::size_t>(attributes.derivative) + 1), before(now.size());
    for (Extent i = task * block; i < std::min(count, (task + 1) * block); ++i)
      y[i] = static_cast<T>(polynomial_at(x[i], n[i], attributes.kind, now, before));
  });
}

}  // namespace

void run_orthogonal_polynomial(const kernel::CallKernel& kernel, std::span<char* const> reads,
                               std::span<char* const> outs) {
  if (kernel.types[0] == DType::f64)
    polynomials<double>(kernel, reads, outs);
  else
    polynomials<float>(kernel, reads, outs);
}

}  // namespace weft::cpu
