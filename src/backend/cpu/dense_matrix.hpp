// Matrices of doubles on the host, for decompositions.
#pragma once

#include <vector>

#include "weft/shape.hpp"

namespace weft::cpu {

/// Row-major.
struct Matrix {
  Matrix(Extent rows, Extent columns)
      : rows(rows), columns(columns), values(static_cast<std::size_t>(rows * columns), 0.0) {}
  double& operator()(Extent i, Extent j) { return values[static_cast<std::size_t>(i * columns + j)]; }
  double operator()(Extent i, Extent j) const { return values[static_cast<std::size_t>(i * columns + j)]; }
  double* row(Extent i) { return values.data() + i * columns; }
  const double* row(Extent i) const { return values.data() + i * columns; }
  Extent rows, columns;
  std::vector<double> values;
};

inline Matrix identity(Extent n) {
  Matrix m(n, n);
  for (Extent i = 0; i < n; ++i) m(i, i) = 1;
  return m;
}

inline Matrix transposed(const Matrix& a) {
  Matrix t(a.columns, a.rows);
  for (Extent i = 0; i < a.rows; ++i)
    for (Extent j = 0; j < a.columns; ++j) t(j, i) = a(i, j);
  return t;
}

}  // namespace weft::cpu
