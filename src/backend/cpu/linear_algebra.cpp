#include "backend/cpu/linear_algebra.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "backend/cpu/dense_matrix.hpp"
#include "backend/cpu/singular_values.hpp"
#include "backend/cpu/symmetric_eigen.hpp"
#include "base/interrupt.hpp"
#include "base/threads.hpp"
#include "compile/call_attributes.hpp"
#include "graph/linear_algebra.hpp"

namespace weft::cpu {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Extent product(const Shape& shape, int end) {
  Extent n = 1;
  for (int i = 0; i < end; ++i) n *= shape[i];
  return n;
}

template <class T>
Matrix read(const char* from, Extent index, Extent rows, Extent columns) {
  Matrix m(rows, columns);
  const T* at = reinterpret_cast<const T*>(from) + index * rows * columns;
  std::copy(at, at + rows * columns, m.values.begin());
  return m;
}
template <class T>
void write(const std::vector<double>& values, char* to, Extent index) {
  T* at = reinterpret_cast<T*>(to) + index * static_cast<Extent>(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) at[i] = static_cast<T>(values[i]);
}

// each(tag, index) for each matrix of the batch of input 0, in its type.
template <class Each>
void for_each_matrix(const kernel::CallKernel& kernel, Each each) {
  const Shape& shape = kernel.shapes[0];
  const Extent batch = product(shape, shape.rank() - 2);
  const bool is_double = kernel.reads[0].type == DType::f64;
  const auto one = [&](Extent i) { is_double ? each(double(), i) : each(float(), i); };
  if (batch == 1) return one(0);  // outside of tasks, so that the threads may share it
  parallel_for(batch, one);
}
Extent extent(const kernel::CallKernel& kernel, int input, int axis) {
  return kernel.shapes[static_cast<std::size_t>(input)].dim(axis);
}

/// P A = L U in place, with the largest element of each column as pivot. `sign` is the sign of P; step k exchanged rows k and
/// pivots[k].
struct Lu {
  explicit Lu(Matrix given) : a(std::move(given)), order(static_cast<std::size_t>(a.rows)) {
    std::iota(order.begin(), order.end(), Extent{0});
    const Extent m = a.rows, n = a.columns;
    for (Extent k = 0; k < std::min(m, n); ++k) {
      check_interrupt();
      Extent pivot = k;
      for (Extent i = k + 1; i < m; ++i)
        if (std::fabs(a(i, k)) > std::fabs(a(pivot, k)) || std::isnan(a(i, k))) pivot = i;
      pivots.push_back(pivot);
      if (pivot != k) {
        std::swap_ranges(a.row(k), a.row(k) + n, a.row(pivot));
        std::swap(order[static_cast<std::size_t>(k)], order[static_cast<std::size_t>(pivot)]);
        sign = -sign;
      }
      if (a(k, k) == 0) {
        singular = true;
        continue;
      }
      for (Extent i = k + 1; i < m; ++i) {
        const double factor = a(i, k) /= a(k, k);
        if (factor == 0) continue;
        const double* from = a.row(k);
        double* to = a.row(i);
        for (Extent j = k + 1; j < n; ++j) to[j] -= factor * from[j];
      }
    }
  }
  Matrix a;
  std::vector<Extent> order, pivots;
  double sign = 1;
  bool singular = false;
};

// X with T X = B in place, for the lower or upper triangle of T.
void solve_triangle(const Matrix& t, Matrix& b, bool upper, bool unit) {
  const Extent n = t.rows;
  for (Extent step = 0; step < n; ++step) {
    check_interrupt();
    const Extent i = upper ? n - 1 - step : step;
    double* row = b.row(i);
    for (Extent j = upper ? i + 1 : 0; j < (upper ? n : i); ++j) {
      const double factor = t(i, j);
      const double* other = b.row(j);
      for (Extent c = 0; c < b.columns; ++c) row[c] -= factor * other[c];
    }
    if (unit) continue;
    for (Extent c = 0; c < b.columns; ++c) row[c] /= t(i, i);
  }
}

// A -= 2 v (v^T A) from a row and a column on, row by row as the memory lies.
void reflect(Matrix& a, const double* v, Extent row, Extent column) {
  std::vector<double> along(static_cast<std::size_t>(a.columns), 0.0);
  for (Extent i = row; i < a.rows; ++i)
    for (Extent j = column; j < a.columns; ++j) along[static_cast<std::size_t>(j)] += v[i] * a(i, j);
  for (double& x : along) x *= 2;
  for (Extent i = row; i < a.rows; ++i)
    for (Extent j = column; j < a.columns; ++j) a(i, j) -= along[static_cast<std::size_t>(j)] * v[i];
}

}  // namespace

void run_solve(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs) {
  const Extent n = extent(kernel, 0, -1), columns = extent(kernel, 1, -1);
  for_each_matrix(kernel, [&](auto tag, Extent index) {
    using T = decltype(tag);
    const Lu lu(read<T>(reads[0], index, n, n));
    const Matrix b = read<T>(reads[1], index, n, columns);
    Matrix x(n, columns);
    for (Extent i = 0; i < n; ++i)
      for (Extent c = 0; c < columns; ++c) x(i, c) = lu.singular ? kNan : b(lu.order[static_cast<std::size_t>(i)], c);
    if (!lu.singular) {
      solve_triangle(lu.a, x, false, true);
      solve_triangle(lu.a, x, true, false);
    }
    write<T>(x.values, outs[0], index);
  });
}

void run_slogdet(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs) {
  const Extent n = extent(kernel, 0, -1);
  for_each_matrix(kernel, [&](auto tag, Extent index) {
    using T = decltype(tag);
    const Lu lu(read<T>(reads[0], index, n, n));
    double sign = lu.sign, size = 0;
    for (Extent i = 0; i < n; ++i) {
      const double pivot = lu.a(i, i);
      sign *= pivot > 0 ? 1 : pivot < 0 ? -1 : pivot;
      size += std::log(std::fabs(pivot));
    }
    write<T>({sign}, outs[0], index);
    write<T>({size}, outs[1], index);
  });
}

void run_lu_factor(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs) {
  const Extent m = extent(kernel, 0, -2), n = extent(kernel, 0, -1), rank = std::min(m, n);
  for_each_matrix(kernel, [&](auto tag, Extent index) {
    using T = decltype(tag);
    const Lu lu(read<T>(reads[0], index, m, n));
    write<T>(lu.a.values, outs[0], index);
    auto* pivots = reinterpret_cast<std::int32_t*>(outs[1]) + index * rank;
    for (Extent k = 0; k < rank; ++k) pivots[k] = static_cast<std::int32_t>(lu.pivots[static_cast<std::size_t>(k)] + 1);
  });
}

void run_pivot_order(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs) {
  const Extent steps = extent(kernel, 0, -1), rows = kernel.out_shapes[0].dim(-1);
  parallel_for(rows == 0 ? 0 : kernel.out_shapes[0].numel() / rows, [&](Extent index) {
    const auto* pivots = reinterpret_cast<const std::int32_t*>(reads[0]) + index * steps;
    auto* order = reinterpret_cast<std::int32_t*>(outs[0]) + index * rows;
    std::iota(order, order + rows, 0);
    for (Extent k = 0; k < steps; ++k) {
      if (k >= rows || pivots[k] < 1 || pivots[k] > rows) {
        std::fill(order, order + rows, -1);
        return;
      }
      std::swap(order[k], order[pivots[k] - 1]);
    }
  });
}

void run_cholesky(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs) {
  const Extent n = extent(kernel, 0, -1);
  for_each_matrix(kernel, [&](auto tag, Extent index) {
    using T = decltype(tag);
    const Matrix a = read<T>(reads[0], index, n, n);
    Matrix l(n, n);
    for (Extent i = 0; i < n; ++i) {
      check_interrupt();
      for (Extent j = 0; j <= i; ++j) {
        double rest = a(i, j);
        for (Extent k = 0; k < j; ++k) rest -= l(i, k) * l(j, k);
        // If the rest is not above 0, A is not positive definite, and the root is NaN.
        l(i, j) = i == j ? (rest > 0 ? std::sqrt(rest) : kNan) : rest / l(j, j);
      }
    }
    write<T>(l.values, outs[0], index);
  });
}

void run_solve_triangular(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs) {
  const auto a = kernel::attributes_of<graph::TriangularAttributes>(kernel);
  const Extent n = extent(kernel, 0, -1), columns = extent(kernel, 1, -1);
  for_each_matrix(kernel, [&](auto tag, Extent index) {
    using T = decltype(tag);
    const Matrix t = read<T>(reads[0], index, n, n);
    Matrix x = read<T>(reads[1], index, n, columns);
    solve_triangle(t, x, a.upper, a.unit);
    write<T>(x.values, outs[0], index);
  });
}

void run_qr(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs) {
  const Extent m = extent(kernel, 0, -2), n = extent(kernel, 0, -1), rank = std::min(m, n);
  for_each_matrix(kernel, [&](auto tag, Extent index) {
    using T = decltype(tag);
    Matrix a = read<T>(reads[0], index, m, n), mirrors(rank, m);  // the unit vector of a reflection in each row
    for (Extent k = 0; k < rank; ++k) {
      check_interrupt();
      double length = 0;
      for (Extent i = k; i < m; ++i) length += a(i, k) * a(i, k);
      length = std::sqrt(length);
      double* v = mirrors.row(k);
      double size = 0;
      for (Extent i = k; i < m; ++i) v[i] = a(i, k);
      bool is_zero = true;  // below the diagonal: then no reflection is needed
      for (Extent i = k + 1; i < m; ++i) is_zero = is_zero && v[i] == 0;
      if (is_zero) {
        std::fill(v, v + m, 0.0);
        continue;
      }
      v[k] += v[k] < 0 ? -length : length;
      for (Extent i = k; i < m; ++i) size += v[i] * v[i];
      for (Extent i = k; i < m; ++i) v[i] /= std::sqrt(size);
      reflect(a, v, k, k);
    }
    Matrix q(m, rank), r(rank, n);
    for (Extent i = 0; i < rank; ++i) {
      q(i, i) = 1;
      for (Extent j = i; j < n; ++j) r(i, j) = a(i, j);
    }
    for (Extent k = rank; k-- > 0;) {
      check_interrupt();
      reflect(q, mirrors.row(k), k, 0);
    }
    write<T>(q.values, outs[0], index);
    write<T>(r.values, outs[1], index);
  });
}

void run_eigh(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs) {
  const Extent n = extent(kernel, 0, -1);
  for_each_matrix(kernel, [&](auto tag, Extent index) {
    using T = decltype(tag);
    Matrix a = read<T>(reads[0], index, n, n), v(n, n);
    std::vector<double> w;
    symmetric_eigen(a, w, v);
    write<T>(w, outs[0], index);
    write<T>(v.values, outs[1], index);
  });
}

void run_svd(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs) {
  const Extent m = extent(kernel, 0, -2), n = extent(kernel, 0, -1);
  for_each_matrix(kernel, [&](auto tag, Extent index) {
    using T = decltype(tag);
    const Matrix a = read<T>(reads[0], index, m, n);
    Matrix u(0, 0), vt(0, 0);
    std::vector<double> s;
    tall_svd(m >= n ? a : transposed(a), u, s, vt);
    if (m < n) {
      Matrix turned = transposed(vt);
      vt = transposed(u);
      u = std::move(turned);
    }
    write<T>(u.values, outs[0], index);
    write<T>(s, outs[1], index);
    write<T>(vt.values, outs[2], index);
  });
}

}  // namespace weft::cpu
