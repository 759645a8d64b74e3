#include "backend/cpu/symmetric_eigen.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>

#include "backend/cpu/row_sums.hpp"
#include "base/interrupt.hpp"
#include "base/threads.hpp"

namespace weft::cpu {
namespace {

constexpr Extent kJacobiMax = 64;  // rows up to which rotations of pairs are quick enough
constexpr Extent kRowsOfTask = 32, kColumnsOfTask = 128;
constexpr std::size_t kTurnsMax = 1 << 16;  // rotations that wait until a strip of columns takes them all
constexpr int kStepsMax = 60;               // for one eigenvalue; two or three are usual

template <class Each>
void for_row_blocks(Extent first, Extent end, const Each& each) {
  const Extent blocks = first < end ? (end - first + kRowsOfTask - 1) / kRowsOfTask : 0;
  parallel_for(blocks, [&](Extent block) {
    const Extent from = first + block * kRowsOfTask;
    each(from, std::min(end, from + kRowsOfTask));
  });
}

// Rotations that each make one pair of elements of A 0. w is left unsorted on the diagonal of A.
void jacobi_eigen(Matrix& a, Matrix& v) {
  const Extent n = a.rows;
  v = identity(n);
  for (int sweep = 0; sweep < 60; ++sweep) {
    check_interrupt();
    double off = 0, diagonal = 0;
    for (Extent i = 0; i < n; ++i)
      for (Extent j = 0; j <= i; ++j) (i == j ? diagonal : off) += a(i, j) * a(i, j);
    if (!(off > 1e-32 * diagonal)) break;
    for (Extent p = 0; p < n; ++p)
      for (Extent q = p + 1; q < n; ++q) {
        if (a(p, q) == 0) continue;
        const double theta = (a(q, q) - a(p, p)) / (2 * a(p, q));
        const double t = (theta < 0 ? -1 : 1) / (std::fabs(theta) + std::sqrt(theta * theta + 1));
        const double c = 1 / std::sqrt(t * t + 1), s = t * c;
        for (Extent k = 0; k < n; ++k) {
          const double x = a(k, p), y = a(k, q);
          a(k, p) = c * x - s * y;
          a(k, q) = s * x + c * y;
        }
        for (Extent k = 0; k < n; ++k) {
          const double x = a(p, k), y = a(q, k);
          a(p, k) = c * x - s * y;
          a(q, k) = s * x + c * y;
        }
        a(p, q) = a(q, p) = 0;
        for (Extent k = 0; k < n; ++k) {
          const double x = v(k, p), y = v(k, q);
          v(k, p) = c * x - s * y;
          v(k, q) = s * x + c * y;
        }
      }
  }
}

// A = Q T Q^T with T tridiagonal. Row k of `mirrors` is the vector of reflection k, whose square is 2 (or 0 for none).
void make_tridiagonal(Matrix& a, Matrix& mirrors, std::vector<double>& diagonal, std::vector<double>& beside) {
  const Extent n = a.rows;
  std::vector<double> w(static_cast<std::size_t>(n));
  for (Extent k = 0; k < n; ++k) {
    diagonal.push_back(a(k, k));
    if (k + 1 == n) break;
    double* v = mirrors.row(k);
    std::copy(a.row(k) + k + 1, a.row(k) + n, v + k + 1);
    const Extent first = k + 1, count = n - first;
    const double rest = row_dot(v + first + 1, v + first + 1, count - 1);
    if (rest < 1e-280) {  // nothing, or too little for a reflection of full precision
      beside.push_back(v[first]);
      std::fill(v, v + n, 0.0);
      continue;
    }
    const double length = std::sqrt(rest + v[first] * v[first]), target = v[first] < 0 ? length : -length;
    beside.push_back(target);
    v[first] -= target;
    const double scale = std::sqrt(2 / (rest + v[first] * v[first]));
    for (Extent i = first; i < n; ++i) v[i] *= scale;
    // A becomes A - v w^T - w v^T with w = A v - (v^T A v / 2) v.
    for_row_blocks(first, n, [&](Extent from, Extent end) {
      for (Extent i = from; i < end; ++i) w[static_cast<std::size_t>(i)] = row_dot(a.row(i) + first, v + first, count);
    });
    const double half = row_dot(w.data() + first, v + first, count) / 2;
    for (Extent i = first; i < n; ++i) w[static_cast<std::size_t>(i)] -= half * v[i];
    for_row_blocks(first, n, [&](Extent from, Extent end) {
      for (Extent i = from; i < end; ++i) {
        double* row = a.row(i);
        const double along_v = v[i], along_w = w[static_cast<std::size_t>(i)];
        for (Extent j = first; j < n; ++j) row[j] -= along_v * w[static_cast<std::size_t>(j)] + along_w * v[j];
      }
    });
  }
}

// Q^T, whose rows the rotations of `Turns` mix.
Matrix turned_reflections(const Matrix& mirrors) {
  const Extent n = mirrors.rows;
  Matrix q = identity(n);
  for_row_blocks(0, n, [&](Extent from, Extent end) {
    for (Extent k = end - 1; k-- > 0;) {
      const double* v = mirrors.row(k);
      for (Extent i = std::max(from, k + 1); i < end; ++i) {
        double* row = q.row(i);
        const double along = row_dot(row + k + 1, v + k + 1, n - k - 1);
        for (Extent j = k + 1; j < n; ++j) row[j] -= along * v[j];
      }
    }
  });
  return q;
}

// Rotations of neighbouring rows, put off until there are many: a strip of columns then stays in the cache for all of them.
class Turns {
 public:
  explicit Turns(Matrix& rows) : rows_(rows) {}
  void add(Extent row, double c, double s) {
    turns_.push_back({row, c, s});
    if (turns_.size() >= kTurnsMax) run();
  }
  void run() {
    const Extent n = rows_.columns;
    parallel_for((n + kColumnsOfTask - 1) / kColumnsOfTask, [&](Extent strip) {
      const Extent first = strip * kColumnsOfTask, count = std::min(kColumnsOfTask, n - first);
      for (const Turn& turn : turns_) {
        double *x = rows_.row(turn.row) + first, *y = rows_.row(turn.row + 1) + first;
        for (Extent k = 0; k < count; ++k) {
          const double before = x[k], behind = y[k];
          x[k] = turn.c * before - turn.s * behind;
          y[k] = turn.s * before + turn.c * behind;
        }
      }
    });
    turns_.clear();
  }

 private:
  struct Turn {
    Extent row;
    double c, s;
  };
  Matrix& rows_;
  std::vector<Turn> turns_;
};

/// sqrt(a^2 + b^2) without overflow. std::hypot has another symbol since glibc 2.35, and programs built with it run on no older one.
double length_of(double a, double b) {
  const double large = std::max(std::fabs(a), std::fabs(b)), small = std::min(std::fabs(a), std::fabs(b));
  if (large == 0) return 0;
  const double ratio = small / large;
  return large * std::sqrt(1 + ratio * ratio);
}

// Makes T diagonal by QL steps with implicit shifts; the rotations go into `turns`. False if it does not converge.
bool make_diagonal(std::vector<double>& d, std::vector<double> e, Turns& turns) {
  const std::size_t n = d.size();
  e.push_back(0);
  for (std::size_t l = 0; l < n; ++l)
    for (int step = 0;; ++step) {
      check_interrupt();
      std::size_t m = l;
      while (m + 1 < n &&
             std::fabs(e[m]) > std::numeric_limits<double>::epsilon() * (std::fabs(d[m]) + std::fabs(d[m + 1])))
        ++m;
      if (m == l) break;
      if (step == kStepsMax) return false;
      const double slope = (d[l + 1] - d[l]) / (2 * e[l]), root = length_of(slope, 1);
      double g = d[m] - d[l] + e[l] / (slope + (slope < 0 ? -root : root));
      double s = 1, c = 1, p = 0;
      std::size_t i = m;
      while (i-- > l) {
        const double f = s * e[i], b = c * e[i], r = length_of(f, g);
        e[i + 1] = r;
        if (r == 0) {  // the matrix falls apart here
          d[i + 1] -= p;
          e[m] = 0;
          break;
        }
        s = f / r;
        c = g / r;
        g = d[i + 1] - p;
        const double t = (d[i] - g) * s + 2 * c * b;
        p = s * t;
        d[i + 1] = g + p;
        g = c * t - b;
        turns.add(static_cast<Extent>(i), c, s);
      }
      if (i + 1 > l) continue;
      d[l] -= p;
      e[l] = g;
      e[m] = 0;
    }
  turns.run();
  return true;
}

// False for what only rotations of pairs take to an end: elements that are not finite.
bool large_eigen(const Matrix& given, std::vector<double>& w, Matrix& vectors) {
  const Extent n = given.rows;
  double largest = 0, sum = 0;
  for (const double x : given.values) largest = std::max(largest, std::fabs(x)), sum += x - x;
  if (sum != 0 || std::isnan(sum)) return false;
  Matrix a = given, mirrors(n, n);
  const double scale = largest > 0 ? largest : 1;  // so that no square overflows
  for (double& x : a.values) x /= scale;
  std::vector<double> beside;
  w.clear();
  make_tridiagonal(a, mirrors, w, beside);
  vectors = turned_reflections(mirrors);
  Turns turns(vectors);
  if (!make_diagonal(w, beside, turns)) return false;
  for (double& x : w) x *= scale;
  return true;
}

}  // namespace

void symmetric_eigen(Matrix& a, std::vector<double>& w, Matrix& v) {
  const Extent n = a.rows;
  for (Extent i = 0; i < n; ++i)
    for (Extent j = i + 1; j < n; ++j) a(i, j) = a(j, i);
  Matrix rows(0, 0);  // the vectors
  if (n <= kJacobiMax || !large_eigen(a, w, rows)) {
    jacobi_eigen(a, v);
    rows = transposed(v);
    w.clear();
    for (Extent i = 0; i < n; ++i) w.push_back(a(i, i));
  }
  std::vector<Extent> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), Extent{0});
  const std::vector<double> unsorted = w;
  const auto value = [&](Extent i) { return unsorted[static_cast<std::size_t>(i)]; };
  std::stable_sort(order.begin(), order.end(), [&](Extent i, Extent j) { return value(i) < value(j); });
  v = Matrix(n, n);
  for (Extent j = 0; j < n; ++j) {
    const Extent from = order[static_cast<std::size_t>(j)];
    w[static_cast<std::size_t>(j)] = value(from);
    // The largest element of each vector is positive, so that a small change of A does not flip the vector.
    const double* vector = rows.row(from);
    Extent largest = 0;
    for (Extent k = 0; k < n; ++k)
      if (std::fabs(vector[k]) > std::fabs(vector[largest]) * (1 + 1e-9)) largest = k;
    const double sign = n > 0 && vector[largest] < 0 ? -1 : 1;
    for (Extent k = 0; k < n; ++k) v(k, j) = sign * vector[k];
  }
}

}  // namespace weft::cpu
