#include "backend/cpu/singular_values.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "backend/cpu/row_sums.hpp"
#include "backend/cpu/symmetric_eigen.hpp"
#include "base/interrupt.hpp"
#include "base/threads.hpp"

namespace weft::cpu {
namespace {

constexpr Extent kPlainMax = 64;  // columns that are rotated as they are
constexpr int kSweepsMax = 60;

// Makes rows x of `columns` [n, m] and y orthogonal, and turns the same rows of V^T. False if they were.
bool orthogonalise(Matrix& columns, Matrix& v, Extent p, Extent q, double tolerance) {
  const Extent m = columns.columns;
  double *x = columns.row(p), *y = columns.row(q);
  const double pp = row_dot(x, x, m), qq = row_dot(y, y, m), pq = row_dot(x, y, m);
  if (!(std::fabs(pq) > tolerance * std::sqrt(pp * qq))) return false;
  const double theta = (qq - pp) / (2 * pq);
  const double t = (theta < 0 ? -1 : 1) / (std::fabs(theta) + std::sqrt(theta * theta + 1));
  const double c = 1 / std::sqrt(t * t + 1), sine = t * c;
  const auto turn = [&](double* one, double* other, Extent count) {
    for (Extent k = 0; k < count; ++k) {
      const double before = one[k], behind = other[k];
      one[k] = c * before - sine * behind;
      other[k] = sine * before + c * behind;
    }
  };
  turn(x, y, m);
  turn(v.row(p), v.row(q), v.columns);
  return true;
}

// All pairs in n - 1 rounds of pairs without a common row, as in a tournament, so that threads may share a round.
bool sweep(Matrix& columns, Matrix& v, double tolerance) {
  const Extent n = columns.rows, players = n + n % 2;
  std::vector<char> rotated(static_cast<std::size_t>(players / 2), 0);
  for (Extent round = 0; round + 1 < players; ++round)
    parallel_for(players / 2, [&](Extent pair) {
      const auto seat = [&](Extent place) { return place == 0 ? players - 1 : (round + place) % (players - 1); };
      const Extent one = seat(pair), other = seat(players - 1 - pair), p = std::min(one, other),
                   q = std::max(one, other);
      if (q < n && orthogonalise(columns, v, p, q, tolerance)) rotated[static_cast<std::size_t>(pair)] = 1;
    });
  return std::any_of(rotated.begin(), rotated.end(), [](char one) { return one != 0; });
}

// The product X Y^T of matrices with rows of the same length.
Matrix times_transposed(const Matrix& x, const Matrix& y) {
  constexpr Extent kRows = 16;
  Matrix z(x.rows, y.rows);
  parallel_for((x.rows + kRows - 1) / kRows, [&](Extent block) {
    for (Extent j = 0; j < y.rows; ++j)
      for (Extent i = block * kRows; i < std::min(x.rows, (block + 1) * kRows); ++i)
        z(i, j) = row_dot(x.row(i), y.row(j), x.columns);
  });
  return z;
}

// The power of two that brings the largest element near 1, so that no square overflows; 0 if not all are finite.
double near_one(const Matrix& a) {
  double largest = 0;
  for (const double x : a.values) {
    if (!std::isfinite(x)) return 0;
    largest = std::max(largest, std::fabs(x));
  }
  return largest > 0 ? std::ldexp(1.0, std::clamp(-std::ilogb(largest), -1000, 1000)) : 1;
}

// Multiplies the columns by the eigenvectors of A^T A, the largest first.
void turn_to_axes(Matrix& columns, Matrix& v) {
  Matrix squares = times_transposed(columns, columns), vectors(0, 0);
  std::vector<double> w;
  symmetric_eigen(squares, w, vectors);
  v = transposed(vectors);
  for (Extent i = 0; i < v.rows / 2; ++i) std::swap_ranges(v.row(i), v.row(i) + v.columns, v.row(v.rows - 1 - i));
  columns = times_transposed(v, transposed(columns));
}

}  // namespace

void tall_svd(const Matrix& a, Matrix& u, std::vector<double>& s, Matrix& vt) {
  const Extent m = a.rows, n = a.columns;
  Matrix columns = transposed(a), v = identity(n);  // rows of both are columns of A and V
  const double scale = near_one(a);
  if (scale > 0)
    for (double& x : columns.values) x *= scale;
  if (scale > 0 && n > kPlainMax) turn_to_axes(columns, v);
  // Rounding leaves about sqrt(m) units of the last place in a sum of m products.
  const double tolerance = std::max(1e-15, std::numeric_limits<double>::epsilon() * std::sqrt(static_cast<double>(m)));
  for (int i = 0; i < kSweepsMax && sweep(columns, v, tolerance); ++i) check_interrupt();
  std::vector<double> lengths;
  for (Extent j = 0; j < n; ++j) lengths.push_back(std::sqrt(row_dot(columns.row(j), columns.row(j), m)));
  std::vector<Extent> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), Extent{0});
  std::stable_sort(order.begin(), order.end(), [&](Extent i, Extent j) {
    return lengths[static_cast<std::size_t>(i)] > lengths[static_cast<std::size_t>(j)];
  });
  Matrix ut(n, m);
  vt = Matrix(n, n);
  s.clear();
  const double least = n > 0 ? lengths[static_cast<std::size_t>(order[0])] * 1e-300 : 0;
  Extent axis = 0;
  for (Extent j = 0; j < n; ++j) {
    const Extent from = order[static_cast<std::size_t>(j)];
    const double length = lengths[static_cast<std::size_t>(from)];
    Extent largest = 0;
    for (Extent k = 0; k < n; ++k)
      if (std::fabs(v(from, k)) > std::fabs(v(from, largest)) * (1 + 1e-9)) largest = k;
    const double sign = v(from, largest) < 0 ? -1 : 1;
    for (Extent k = 0; k < n; ++k) vt(j, k) = sign * v(from, k);
    s.push_back(scale > 0 ? length / scale : length);
    double* direction = ut.row(j);
    if (length > least) {
      for (Extent k = 0; k < m; ++k) direction[k] = sign * columns(from, k) / length;
      continue;
    }
    // A zero column: any direction orthogonal to the others, by Gram-Schmidt over the unit vectors. One that the columns
    // before span is spanned from then on.
    for (; axis < m; ++axis) {
      check_interrupt();
      std::fill(direction, direction + m, 0.0);
      direction[axis] = 1;
      for (int twice = 0; twice < 2; ++twice)
        for (Extent other = 0; other < j; ++other) {
          const double along = row_dot(direction, ut.row(other), m);
          for (Extent k = 0; k < m; ++k) direction[k] -= along * ut(other, k);
        }
      const double total = row_dot(direction, direction, m);
      if (total < 0.5 / static_cast<double>(m)) continue;
      for (Extent k = 0; k < m; ++k) direction[k] /= std::sqrt(total);
      break;
    }
  }
  u = transposed(ut);
}

}  // namespace weft::cpu
