// Linear algebra: systems of equations, determinants, decompositions. The last two axes of a tensor are a matrix, and the axes
// before them a batch. Decompositions are computed on the CPU, in f64 for every float type; on another device they are an error
// (move the matrix: x.to(kCpu)).
#pragma once

#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

#include "weft/ops.hpp"

namespace weft {

/// X with A X = B, by elimination with pivots; NaN where A is singular.
/// Shapes    A [..., n, n], B [..., n, k], batches broadcast -> [..., n, k]
/// Dtypes    f32, f64, both the same
/// Errors    ShapeError, DTypeError
/// Gradient  dB = A^-T g, dA = -dB X^T
[[nodiscard]] Tensor solve(const Tensor& a, const Tensor& b, Where where = Where::current());
/// The same for the lower (upper) triangle of A; the other one is not read. With `unit` its diagonal counts as 1. Batches
/// broadcast.
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
/// X with A X = B for A = L L^T (`upper`: A = L^T L), from the result of `cholesky`; the other triangle is not read.
/// Shapes    B [..., n, k], L [..., n, n], batches broadcast -> [..., n, k]
[[nodiscard]] Tensor cholesky_solve(const Tensor& b, const Tensor& l, bool upper = false,
                                    Where where = Where::current());
/// A^-1 for A = L L^T (`upper`: A = L^T L).
[[nodiscard]] Tensor cholesky_inverse(const Tensor& l, bool upper = false, Where where = Where::current());
/// L and U of A [..., m, n] in one matrix: U with its diagonal, L below it, whose ones are left out. Rows are exchanged so that
/// the largest element of each column is the pivot: in step i (from 0) row i with row pivots[i] - 1, as in LAPACK.
/// Shapes    lu [..., m, n], pivots i32 [..., min(m, n)]
/// Gradient  to A, by Phi = tril(L^T dL, -1) + triu(dU U^T), dA = P L^-T Phi U^-T; infinite or NaN where A has not full rank
struct LuFactors {
  Tensor lu, pivots;
};
[[nodiscard]] LuFactors lu_factor(const Tensor& a, Where where = Where::current());
/// P L U = A with a permutation P [..., m, m], L [..., m, k] with ones on its diagonal and U [..., k, n], k = min(m, n).
struct LuMatrices {
  Tensor p, l, u;
};
[[nodiscard]] LuMatrices lu(const Tensor& a, Where where = Where::current());
/// The same from the results of `lu_factor`.
[[nodiscard]] LuMatrices lu_unpack(const Tensor& lu, const Tensor& pivots, Where where = Where::current());
/// X with A X = B, from the results of `lu_factor`. Without `left` X A = B; with `adjoint` A^T takes the place of A.
/// Shapes    lu [..., n, n], pivots [..., n], B [..., n, k], batches broadcast
struct LuSolveOptions {
  bool left = true, adjoint = false;
};
[[nodiscard]] Tensor lu_solve(const Tensor& lu, const Tensor& pivots, const Tensor& b, LuSolveOptions options = {},
                              Where where = Where::current());
/// The first n columns of the product of the reflections I - tau_i v_i v_i^T, where v_i is column i of A [..., m, n] below its
/// diagonal, with a 1 on it. tau [..., k], k <= n <= m -> [..., m, n]
[[nodiscard]] Tensor householder_product(const Tensor& a, const Tensor& tau, Where where = Where::current());
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
/// Singular values, downwards; eigenvalues of (A + A^T) / 2, upwards. Their gradients exist where values are equal, too.
[[nodiscard]] Tensor svdvals(const Tensor& a, Where where = Where::current());
[[nodiscard]] Tensor eigvalsh(const Tensor& a, Where where = Where::current());
/// The X with the least |A X - B| for A [..., m, n] of rank n <= m, by QR.
[[nodiscard]] Tensor lstsq(const Tensor& a, const Tensor& b, Where where = Where::current());
/// The Moore-Penrose inverse, by singular values; values below `rcond` times the largest count as 0.
[[nodiscard]] Tensor pinv(const Tensor& a, double rcond = 1e-15, Where where = Where::current());
/// A^n, by repeated squaring; a negative n is a power of the inverse.
[[nodiscard]] Tensor matrix_power(const Tensor& a, Extent n, Where where = Where::current());

/// A norm of matrices: frobenius, the root of the sum of squares; nuclear, the sum of singular values; one and minus_one, the
/// greatest and least sum of a column's absolute values; infinity and minus_infinity, of a row's; two and minus_two, the greatest
/// and least singular value. `axes` are those of rows and columns. `vector_norm` has the norms over all elements.
/// Gradient  shared evenly between equal extremes
enum class MatrixNorm : std::uint8_t { frobenius, nuclear, one, minus_one, two, minus_two, infinity, minus_infinity };
[[nodiscard]] Tensor matrix_norm(const Tensor& a, MatrixNorm ord = MatrixNorm::frobenius,
                                 const std::pair<int, int>& axes = {-2, -1}, ReduceOptions options = {},
                                 Where where = Where::current());
/// |A| |A^-1|, and for two and minus_two the ratio of the extreme singular values, for which A need not be square. Infinite where
/// A is singular.
[[nodiscard]] Tensor cond(const Tensor& a, MatrixNorm ord = MatrixNorm::two, Where where = Where::current());
/// How many singular values are above atol and rtol times the greatest one -> i32. An rtol below 0 is max(m, n) times the spacing
/// of floats at 1, or 0 if atol is given. `hermitian`: A is symmetric, and its eigenvalues are used.
struct RankOptions {
  double atol = 0, rtol = -1;
  bool hermitian = false;
};
[[nodiscard]] Tensor matrix_rank(const Tensor& a, RankOptions options = {}, Where where = Where::current());
/// e^A by scaling, a polynomial of Taylor and squaring, on every device. Each matrix of a batch is scaled by its own powers; the CPU
/// chooses the degree for each too. Triangular matrices have exact diagonals, diagonal ones no other elements.
/// Accuracy  near the rounding of the type times the greatest sum of a column's absolute values of A. Where that product is above 1,
///           only what is 0 or infinite is sure; elements above the type's range are infinite or NaN. A matrix with an infinite
///           element or a NaN gives NaN.
/// Gradient  dA = matrix_exp_frechet(A^T, dy), of any order
/// Source    Bader, Blanes and Casas 2019, Mathematics 7(12), 1174; Al-Mohy and Higham 2009, SIAM J. Matrix Anal. Appl. 31(3)
[[nodiscard]] Tensor matrix_exp(const Tensor& a, Where where = Where::current());
/// The derivative of e^A in the direction E, the limit of (e^(A + t E) - e^A) / t. It is linear in E.
/// Shapes    a and e [..., n, n], alike, and the result too
/// Errors    ShapeError, DTypeError
/// Gradient  of any order; that to A takes matrices of twice the size
[[nodiscard]] Tensor matrix_exp_frechet(const Tensor& a, const Tensor& e, Where where = Where::current());
/// Powers of x [..., m] as rows [..., m, n], from x^(n - 1) down to x^0, or upwards. n = -1: as many as x has elements.
[[nodiscard]] Tensor vander(const Tensor& x, Extent n = -1, bool increasing = false, Where where = Where::current());
/// The inverse of the matrix whose rows are the first `ind` axes of A and whose columns are the others. The result has the axes of
/// columns first.
/// Errors    ShapeError unless rows and columns are as many
[[nodiscard]] Tensor tensorinv(const Tensor& a, int ind = 2, Where where = Where::current());
/// X with tensordot(A, X, X.rank()) = B; `axes` of A are moved to its end first.
/// Errors    ShapeError unless B has m elements and A has m^2, of which its first axes have m
[[nodiscard]] Tensor tensorsolve(const Tensor& a, const Tensor& b, const std::vector<int>& axes = {},
                                 Where where = Where::current());

}  // namespace weft
