// The singular value decomposition of a matrix on the host.
#pragma once

#include <vector>

#include "backend/cpu/dense_matrix.hpp"

namespace weft::cpu {

/// A = U diag(s) V^T for A [m, n] with m >= n, s downwards; the largest element of each row of V^T is positive. Columns are
/// rotated in pairs until all are orthogonal (one-sided Jacobi). Those of a larger matrix are first multiplied by the
/// eigenvectors of A^T A, after which few rotations are left (Drmac and Veselic, New fast and accurate Jacobi SVD algorithm).
void tall_svd(const Matrix& a, Matrix& u, std::vector<double>& s, Matrix& vt);

}  // namespace weft::cpu
