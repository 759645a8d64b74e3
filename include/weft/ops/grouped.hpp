// Products of groups of rows, as in mixtures of experts: each group has a matrix of its own.
#pragma once

#include "weft/tensor.hpp"

namespace weft {

/// y_r = x_r W_g for each row r of group g. Rows are sorted by group: group g has the rows from ends[g - 1] (0 for the first
/// group) to ends[g]. Rows from the last end on are 0. Ends that decrease or exceed n are treated as empty or cut groups.
/// Work and memory depend on the rows only, not on the number of groups. With `transposed` each matrix is used as W_g^T, as
/// in `linear`.
/// Shapes    x [n, k], weights [groups, k, m] (transposed: [groups, m, k]), ends i32 [groups] -> [n, m]
/// Dtypes    floats, x and weights alike; f16 and bf16 are computed in f32
/// Errors    ShapeError, DTypeError
/// Gradient  dx = grouped_matmul(dy, weights^T, ends), dweights = grouped_outer(x, dy, ends); of any order
[[nodiscard]] Tensor grouped_matmul(const Tensor& x, const Tensor& weights, const Tensor& ends, bool transposed = false,
                                    Where where = Where::current());
/// W_g = the sum of x_r^T y_r over the rows r of group g, with groups as in `grouped_matmul`. Rows are added in order.
/// Shapes    x [n, k], y [n, m], ends i32 [groups] -> [groups, k, m]. Dtypes and errors: as `grouped_matmul`
/// Gradient  to x and y, of any order
[[nodiscard]] Tensor grouped_outer(const Tensor& x, const Tensor& y, const Tensor& ends,
                                   Where where = Where::current());

}  // namespace weft
