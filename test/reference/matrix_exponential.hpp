// Slow reference of the exponential of matrices: the series of a small part, squared. The derivative in a direction is a block of the
// exponential of [[A, E], [0, A]].
#pragma once

#include "graph/matrix_exponential.hpp"
#include "reference/values.hpp"

namespace weft::reference {

/// e^A of A [n, n].
inline Values exponential(const Values& a, Extent n) {
  using Wide = std::vector<long double>;
  const auto product = [n](const Wide& x, const Wide& y) {
    Wide z(x.size(), 0);
    for (Extent i = 0; i < n; ++i)
      for (Extent k = 0; k < n; ++k)
        for (Extent j = 0; j < n; ++j)
          z[static_cast<std::size_t>(i * n + j)] +=
              x[static_cast<std::size_t>(i * n + k)] * y[static_cast<std::size_t>(k * n + j)];
    return z;
  };
  long double most = 0;
  for (const double x : a) most = std::max(most, std::fabs(static_cast<long double>(x)) * n);
  int halvings = 0;
  for (; most > 1; most /= 2) ++halvings;
  Wide x(a.begin(), a.end()), term(a.size(), 0);
  for (long double& value : x) value = std::ldexp(value, -halvings);
  for (Extent i = 0; i < n; ++i) term[static_cast<std::size_t>(i * (n + 1))] = 1;
  Wide sum = term;
  for (int k = 1; k < 25; ++k) {
    term = product(term, x);
    for (std::size_t i = 0; i < term.size(); ++i) sum[i] += term[i] /= k;
  }
  for (; halvings > 0; --halvings) sum = product(sum, sum);
  return {sum.begin(), sum.end()};
}

inline void run_matrix_exp(const kernel::CallKernel& k, std::vector<Values>& buffers) {
  const Extent n = k.shape().dim(-1), size = n * n, width = 2 * n;
  const bool has_direction = k.reads.size() > 1;
  for (Extent matrix = 0; size > 0 && matrix < k.shape().numel() / size; ++matrix) {
    Values block(static_cast<std::size_t>(width * width), 0);
    for (Extent i = 0; i < n; ++i)
      for (Extent j = 0; j < n; ++j) {
        const Extent at = matrix * size + i * n + j;
        const auto put = [&](Extent row, Extent column, double value) {
          block[static_cast<std::size_t>(row * width + column)] = value;
        };
        put(i, j, read(k.reads[0], at, buffers));
        put(n + i, n + j, read(k.reads[0], at, buffers));
        if (has_direction) put(i, n + j, read(k.reads[1], at, buffers));
      }
    const Values result = exponential(block, width);
    for (Extent i = 0; i < n; ++i)
      for (Extent j = 0; j < n; ++j)
        write(k.out(), matrix * size + i * n + j,
              result[static_cast<std::size_t>(i * width + (has_direction ? n : 0) + j)], buffers);
  }
}

}  // namespace weft::reference
