// A tensor with other values in what a view of it shows: the adjoint of writing into the view, where tensors never change.
// Gradient  to x where nothing was written; to the values that were
// Errors    ShapeError for values of another shape than the view, DTypeError for values of another dtype
#pragma once

#include "weft/ops.hpp"

namespace weft {

/// x with `values` as element `index` along `axis`. Shapes: values as select(x, axis, index).
[[nodiscard]] Tensor select_scatter(const Tensor& x, const Tensor& values, int axis, Extent index,
                                    Where where = Where::current());
/// x with `values` as its slice. Shapes: values as slice(x, axis, start, stop, step), with a step above 0.
[[nodiscard]] Tensor slice_scatter(const Tensor& x, const Tensor& values, int axis = 0, Extent start = 0,
                                   Extent stop = kEnd, Extent step = 1, Where where = Where::current());
/// x with `values` on a diagonal. Shapes: values as diagonal(x, offset, axis_a, axis_b).
[[nodiscard]] Tensor diagonal_scatter(const Tensor& x, const Tensor& values, Extent offset = 0, int axis_a = 0,
                                      int axis_b = 1, Where where = Where::current());
/// x with `values` at the places of as_strided(x, shape, strides, offset); of several values for one place the last one counts.
[[nodiscard]] Tensor as_strided_scatter(const Tensor& x, const Tensor& values, const Shape& shape,
                                        const std::vector<Extent>& strides, Extent offset = 0,
                                        Where where = Where::current());

}  // namespace weft
