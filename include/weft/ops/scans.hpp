// Scans: results along an axis that build on those before them.
//
// All take any axis; `reverse` goes from the end. Devices have one kernel for all of them: on the CPU an axis is a task, and
// floats of 32 bits are combined in f64; on GPUs a workgroup takes an axis, in blocks of f32.
// Errors  ShapeError if axis is outside of [-rank, rank)
#pragma once

#include "weft/ops.hpp"

namespace weft {

/// Elements and where they were found, i32.
struct ValuesAndPositions {
  Tensor values, positions;
};

/// Products of the elements up to each: y_i = prod_{j <= i} x_j. `exclusive` leaves out x_i itself. Integers wrap.
/// Shapes    x [..., n, ...] -> the same
/// Dtypes    all; bools give i32
/// Gradient  exact where elements are 0: dx_i = sum_{j >= i} g_j prod_{k <= j, k != i} x_k, by two further scans
[[nodiscard]] Tensor cumprod(const Tensor& x, int axis = -1, bool exclusive = false, bool reverse = false,
                             Where where = Where::current());
/// y_i = ln sum_{j <= i} e^x_j, without overflow.
/// Dtypes    floats
/// Gradient  dx_i = sum_{j >= i} g_j e^(x_i - y_j), without overflow
[[nodiscard]] Tensor logcumsumexp(const Tensor& x, int axis = -1, bool reverse = false, Where where = Where::current());
/// The largest (smallest) element up to each, and its position: the last one of equals. From the first NaN on all are NaN.
/// Dtypes    all
/// Gradient  of values: g at the positions, added up
[[nodiscard]] ValuesAndPositions cummax(const Tensor& x, int axis = -1, bool reverse = false,
                                        Where where = Where::current());
[[nodiscard]] ValuesAndPositions cummin(const Tensor& x, int axis = -1, bool reverse = false,
                                        Where where = Where::current());
/// y_i = a_i y_{i-1} + b_i, from y = 0: a recurrence in the time of a scan.
/// Shapes    a, b [..., n, ...], equal -> the same
/// Dtypes    floats
/// Gradient  db_i = g_i + a_{i+1} db_{i+1}; da_i = db_i y_{i-1}
/// Errors    ShapeError also where the shapes differ
[[nodiscard]] Tensor linear_recurrence(const Tensor& a, const Tensor& b, int axis = -1, bool reverse = false,
                                       Where where = Where::current());
/// Differences of neighbours, `order` times: y_i = x_{i+1} - x_i. Bools differ (xor).
/// Shapes    x [..., n, ...] -> [..., max(n - order, 0), ...]
/// Errors    UsageError for a negative order
[[nodiscard]] Tensor diff(const Tensor& x, Extent order = 1, int axis = -1, Where where = Where::current());

}  // namespace weft
