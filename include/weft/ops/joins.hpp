// Tensors side by side, and cut apart again, under the names of NumPy and PyTorch. What can be a view is one.
// Errors  UsageError for no tensors; ShapeError for shapes that do not fit, DTypeError where dtypes differ, as in `concat`
#pragma once

#include <initializer_list>
#include <span>
#include <vector>

#include "weft/ops.hpp"

namespace weft {

/// x with at least one axis: a scalar becomes [1].
[[nodiscard]] Tensor atleast_1d(const Tensor& x, Where where = Where::current());
/// x with at least two axes: [n] becomes [1, n].
[[nodiscard]] Tensor atleast_2d(const Tensor& x, Where where = Where::current());
/// x with at least three axes: [n] becomes [1, n, 1], and [m, n] becomes [m, n, 1].
[[nodiscard]] Tensor atleast_3d(const Tensor& x, Where where = Where::current());

/// Along axis 1, or along axis 0 for parts [n]; scalars are [1].
[[nodiscard]] Tensor hstack(std::span<const Tensor> parts, Where where = Where::current());
/// One above the other, along axis 0 of `atleast_2d`.
[[nodiscard]] Tensor vstack(std::span<const Tensor> parts, Where where = Where::current());
/// One behind the other, along axis 2 of `atleast_3d`.
[[nodiscard]] Tensor dstack(std::span<const Tensor> parts, Where where = Where::current());
/// Along axis 1, with parts [n] as columns [n, 1].
[[nodiscard]] Tensor column_stack(std::span<const Tensor> parts, Where where = Where::current());
/// Matrices along a diagonal, zeros elsewhere; [n] is one row. Gradient: to each part that of its block.
/// Dtypes    the promoted one. Errors: ShapeError for a part with more than two axes
[[nodiscard]] Tensor block_diag(std::span<const Tensor> parts, Where where = Where::current());
/// All choices of an element from each part, a row each; the last part's changes first. One part is given back.
/// Shapes    [n_0], [n_1], ... -> [n_0 n_1 ..., parts]
/// Errors    ShapeError for a part that is not [n]
[[nodiscard]] Tensor cartesian_prod(std::span<const Tensor> parts, Where where = Where::current());
/// The parts, broadcast to one shape.
[[nodiscard]] std::vector<Tensor> broadcast_tensors(std::span<const Tensor> parts, Where where = Where::current());

#define WEFT_OF_LIST(result, name)                                                                        \
  [[nodiscard]] inline result name(std::initializer_list<Tensor> parts, Where where = Where::current()) { \
    return name(std::span<const Tensor>(parts.begin(), parts.size()), where);                             \
  }
WEFT_OF_LIST(Tensor, hstack)
WEFT_OF_LIST(Tensor, vstack)
WEFT_OF_LIST(Tensor, dstack)
WEFT_OF_LIST(Tensor, column_stack)
WEFT_OF_LIST(Tensor, block_diag)
WEFT_OF_LIST(Tensor, cartesian_prod)
WEFT_OF_LIST(std::vector<Tensor>, broadcast_tensors)
#undef WEFT_OF_LIST

/// All choices of `count` elements of x, a row each, in the order of their positions; `repeats`: an element may be chosen again.
/// Shapes    x [n] -> [choices, count]
/// Errors    ShapeError for other shapes; UsageError for a negative count, and for more than 2^28 elements
[[nodiscard]] Tensor combinations(const Tensor& x, Extent count = 2, bool repeats = false,
                                  Where where = Where::current());

/// `parts` parts along `axis`, of which the first ones have an element more where they do not come out even.
/// Errors    UsageError for fewer than one part
[[nodiscard]] std::vector<Tensor> tensor_split(const Tensor& x, Extent parts, int axis = 0,
                                               Where where = Where::current());
/// Cut before each of `positions`, which are clipped as in a slice; a part that would end before it begins is empty.
[[nodiscard]] std::vector<Tensor> tensor_split(const Tensor& x, const std::vector<Extent>& positions, int axis = 0,
                                               Where where = Where::current());

/// Equal parts, or cut before positions: along axis 1 (of [n] along axis 0), 0, and 2.
/// Errors    ShapeError for too few axes, or parts that do not come out even
[[nodiscard]] std::vector<Tensor> hsplit(const Tensor& x, Extent parts, Where where = Where::current());
[[nodiscard]] std::vector<Tensor> hsplit(const Tensor& x, const std::vector<Extent>& positions,
                                         Where where = Where::current());
[[nodiscard]] std::vector<Tensor> vsplit(const Tensor& x, Extent parts, Where where = Where::current());
[[nodiscard]] std::vector<Tensor> vsplit(const Tensor& x, const std::vector<Extent>& positions,
                                         Where where = Where::current());
[[nodiscard]] std::vector<Tensor> dsplit(const Tensor& x, Extent parts, Where where = Where::current());
[[nodiscard]] std::vector<Tensor> dsplit(const Tensor& x, const std::vector<Extent>& positions,
                                         Where where = Where::current());

}  // namespace weft
