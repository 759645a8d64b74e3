// Layout: the elements of a tensor in other places. What can be a view is one; nothing is copied before a kernel must.
// Errors  ShapeError for an axis out of range or given twice
#pragma once

#include <utility>
#include <vector>

#include "weft/ops.hpp"

namespace weft {

/// Elements moved by `shifts` along the axes; those that leave at one end come in at the other. No axes: along the flat
/// tensor. Errors: UsageError unless there is a shift for each axis.
[[nodiscard]] Tensor roll(const Tensor& x, const std::vector<Extent>& shifts, const Axes& axes = {},
                          Where where = Where::current());
/// Turned by `times` quarters from axis `from` towards axis `to`.
[[nodiscard]] Tensor rot90(const Tensor& x, Extent times = 1, int from = 0, int to = 1, Where where = Where::current());
/// Copies of x side by side, `repeats` of them along each of the last axes. More repeats than axes add axes in front.
[[nodiscard]] Tensor tile(const Tensor& x, const std::vector<Extent>& repeats, Where where = Where::current());
/// Each element along `axis` `repeats` times, one after another.
[[nodiscard]] Tensor repeat_interleave(const Tensor& x, Extent repeats, int axis, Where where = Where::current());
/// The axes `from` at the places `to`; the others keep their order.
[[nodiscard]] Tensor movedim(const Tensor& x, const Axes& from, const Axes& to, Where where = Where::current());
/// At most `parts` parts of equal length along `axis`; the last one may be shorter.
[[nodiscard]] std::vector<Tensor> chunk(const Tensor& x, Extent parts, int axis = 0, Where where = Where::current());
/// The slices along `axis`, without it.
[[nodiscard]] std::vector<Tensor> unbind(const Tensor& x, int axis = 0, Where where = Where::current());
/// One axis as several; one of their extents may be -1.
[[nodiscard]] Tensor unflatten(const Tensor& x, int axis, const Shape& shape, Where where = Where::current());
/// The elements x[.., i, .., i + offset, ..] of two axes, as the last axis.
[[nodiscard]] Tensor diagonal(const Tensor& x, Extent offset = 0, int axis_a = 0, int axis_b = 1,
                              Where where = Where::current());
/// The last axis of x as the diagonal of two new axes, zeros elsewhere; its gradient is `diagonal`.
[[nodiscard]] Tensor diag_embed(const Tensor& x, Extent offset = 0, int axis_a = -2, int axis_b = -1,
                                Where where = Where::current());
/// The diagonal of a matrix, or the matrix with that diagonal.
[[nodiscard]] Tensor diag(const Tensor& x, Extent offset = 0, Where where = Where::current());
/// The matrix with the elements of x, row by row, on a diagonal.
[[nodiscard]] Tensor diagflat(const Tensor& x, Extent offset = 0, Where where = Where::current());
/// x with its columns (axis 1), or its rows (axis 0), from the last to the first.
/// Errors    ShapeError for too few axes
[[nodiscard]] Tensor fliplr(const Tensor& x, Where where = Where::current());
[[nodiscard]] Tensor flipud(const Tensor& x, Where where = Where::current());
/// Coordinates of a grid: result k has tensors[k] along axis k and is constant along the others. `xy` swaps the first two
/// axes, as NumPy does.
[[nodiscard]] std::vector<Tensor> meshgrid(const std::vector<Tensor>& tensors, bool xy = false,
                                           Where where = Where::current());

/// What is around x: a constant, x mirrored at its last element (which is not repeated), its last element, or x again.
enum class PadMode { constant, reflect, replicate, circular };
/// (before, after) elements for every axis. Gradient: of copies the sum.
/// Errors    ShapeError for a reflection as long as the axis, or a circle longer than it; for an empty axis to repeat
[[nodiscard]] Tensor pad(const Tensor& x, const std::vector<std::pair<Extent, Extent>>& padding, PadMode mode,
                         double value = 0, Where where = Where::current());
/// Channels as places: x [.., c r^2, h, w] -> [.., c, h r, w r].
[[nodiscard]] Tensor pixel_shuffle(const Tensor& x, Extent factor, Where where = Where::current());
/// The other way: x [.., c, h r, w r] -> [.., c r^2, h, w].
[[nodiscard]] Tensor pixel_unshuffle(const Tensor& x, Extent factor, Where where = Where::current());
/// Channels of several groups in turns: channel j of group i goes from place i C / groups + j to place j groups + i.
/// Shapes    x [N, C, ...] -> the same
/// Errors    ShapeError for too few axes, and for channels that groups do not divide
[[nodiscard]] Tensor channel_shuffle(const Tensor& x, Extent groups, Where where = Where::current());
/// Element (i, j, ..) is element offset + i strides_0 + j strides_1 + .. of x, row-major. Computed as a gather.
/// Errors    ShapeError for a place outside of x
[[nodiscard]] Tensor as_strided(const Tensor& x, const Shape& shape, const std::vector<Extent>& strides,
                                Extent offset = 0, Where where = Where::current());

}  // namespace weft
