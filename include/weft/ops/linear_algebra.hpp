// Linear algebra: systems of equations, determinants, decompositions. The last two axes of a tensor are a matrix, and the axes
// before them a batch. Decompositions are computed on the CPU, in f64 for every float type; on another device they are an error
// (move the matrix: x.to(kCpu)).
#pragma once

#include <utility>

#include "weft/tensor.hpp"

namespace weft {

/// X with A X = B, by elimination with pivots; NaN where A is singular.
/// Shapes    A [..., n, n], B [..., n, k], batches broadcast -> [..., n, k]
/// Dtypes    f32, f64, both the same
/// Errors    ShapeError, DTypeError
/// Gradient  dB = A^-T g, dA = -dB X^T
[[nodiscard]] Tensor solve(const Tensor& a, const Tensor& b, Where where = Where::current());
/// The same for the lower (upper) triangle of A; the other one is not read. With `unit` its diagonal counts as 1.
[[nodiscard]] Tensor solve_triangular(const Tensor& a, const Tensor& b, bool upper, bool unit = false,
                                      Where where = Where::current());
/// A^-1; NaN where A is singular. A product with the inverse is less exact than `solve`.
[[nodiscard]] Tensor inverse(const Tensor& a, Where where = Where::current());
/// Determinant, and its logarithm (NaN below 0). [..., n, n] -> [...]. Gradient: det A^-T; NaN where A is singular.
[[nodiscard]] Tensor det(const Tensor& a, Where where = Where::current());
[[nodiscard]] Tensor logdet(const Tensor& a, Where where = Where::current());
/// Sign of the determinant, and the logarithm of its absolute value: 0 and -inf where A is singular.
struct SignAndLog {
  Tensor sign, log;
};
[[nodiscard]] SignAndLog slogdet(const Tensor& a, Where where = Where::current());
/// The lower triangular L with L L^T = (A + A^T) / 2; NaN from the column where A is not positive definite.
[[nodiscard]] Tensor cholesky(const Tensor& a, Where where = Where::current());
/// Q with orthonormal columns and an upper triangular R with Q R = A, by Householder reflections. A [..., m, n] -> Q [..., m,
/// k], R [..., k, n], k = min(m, n). Gradient: for m >= n.
struct QrFactors {
  Tensor q, r;
};
[[nodiscard]] QrFactors qr(const Tensor& a, Where where = Where::current());
/// Eigenvalues of (A + A^T) / 2, ascending, and its orthonormal eigenvectors as columns; the largest element of each is
/// positive. By Jacobi rotations. Gradient of the vectors: infinite where two eigenvalues are equal.
struct EigenPairs {
  Tensor values, vectors;
};
[[nodiscard]] EigenPairs eigh(const Tensor& a, Where where = Where::current());
/// U diag(s) Vh = A with s downwards and orthonormal columns of U and rows of Vh. A [..., m, n] -> U [..., m, k], s [..., k],
/// Vh [..., k, n], k = min(m, n). By Jacobi rotations. Gradient of U and Vh: infinite where two singular values are equal.
struct SingularValues {
  Tensor u, s, vh;
};
[[nodiscard]] SingularValues svd(const Tensor& a, Where where = Where::current());
/// The X with the least |A X - B| for A [..., m, n] of rank n <= m, by QR.
[[nodiscard]] Tensor lstsq(const Tensor& a, const Tensor& b, Where where = Where::current());
/// The Moore-Penrose inverse, by singular values; values below `rcond` times the largest count as 0.
[[nodiscard]] Tensor pinv(const Tensor& a, double rcond = 1e-15, Where where = Where::current());
/// A^n, by repeated squaring; a negative n is a power of the inverse.
[[nodiscard]] Tensor matrix_power(const Tensor& a, Extent n, Where where = Where::current());

}  // namespace weft
