// Decompositions of matrices, as calls for which the CPU has kernels.
#pragma once

#include "graph/op.hpp"

namespace weft::graph {

/// Family of the rows that only the CPU computes, and that other ops cannot express.
inline constexpr const char* kDecompositionFamily = "decomposition";

struct TriangularAttributes {
  bool upper = false, unit = false;
};

const OpRow& solve_row();             // A [.., n, n], B [.., n, k] -> X with A X = B
const OpRow& slogdet_row();           // A -> sign of the determinant, ln of its absolute value
const OpRow& cholesky_row();          // A -> L with A = L L^T
const OpRow& solve_triangular_row();  // A, B -> X with A X = B, of a triangle of A
const OpRow& qr_row();                // A [.., m, n] -> Q [.., m, k], R [.., k, n], k = min(m, n)
const OpRow& eigh_row();              // A -> ascending eigenvalues, V with A V = V diag(w)
const OpRow& lu_factor_row();         // A [.., m, n] -> L and U in one matrix, rows exchanged from 1 on
const OpRow& pivot_order_row();       // pivots -> which row of A each row of L U is
const OpRow& svd_row();               // A [.., m, n] -> U [.., m, k], descending S, Vh [.., k, n]

}  // namespace weft::graph
