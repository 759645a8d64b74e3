// Eigenvalues and eigenvectors of a symmetric matrix on the host.
#pragma once

#include <vector>

#include "backend/cpu/dense_matrix.hpp"

namespace weft::cpu {

/// A = V diag(w) V^T with w upwards; the largest element of each column of V is positive. Only the lower triangle of A [n, n]
/// is read, and A is overwritten. Small matrices turn by Jacobi rotations. Larger ones become tridiagonal by reflections, and
/// diagonal by implicit QL steps (Golub and Van Loan, Matrix Computations, 8.3), on the threads of the session.
void symmetric_eigen(Matrix& a, std::vector<double>& w, Matrix& v);

}  // namespace weft::cpu
