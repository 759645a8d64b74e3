// Elements by index: gathers, scatters, masks.
//
// Indices are integers. One that is outside reads zeros, or writes nothing. Where several indices of a scatter are equal, the
// last one wins, on every device.
// Errors  ShapeError for an axis out of range, DTypeError for indices that are not integers
#pragma once

#include <optional>
#include <vector>

#include "weft/ops.hpp"

namespace weft {

/// y[.., i, ..] = x[.., indices[.., i, ..], ..] along `axis`. As take_along_axis, but indices may be shorter than x along the
/// other axes too.
[[nodiscard]] Tensor gather(const Tensor& x, int axis, const Tensor& indices, Where where = Where::current());
/// x with x[.., indices[.., i, ..], ..] = updates[.., i, ..] along `axis`.
/// Shapes    indices are not longer than updates, nor but for `axis` than x -> that of x
/// Gradient  to x where nothing was written; to the updates that were
[[nodiscard]] Tensor scatter(const Tensor& x, int axis, const Tensor& indices, const Tensor& updates,
                             Where where = Where::current());
/// The same with the updates added.
[[nodiscard]] Tensor scatter_add(const Tensor& x, int axis, const Tensor& indices, const Tensor& updates,
                                 Where where = Where::current());
enum class ScatterReduction { sum, prod, mean, amax, amin };
/// The same with all updates of a place reduced, with x itself or without.
/// Dtypes    mean: floats. Gradient: of an extreme to one of equals
[[nodiscard]] Tensor scatter_reduce(const Tensor& x, int axis, const Tensor& indices, const Tensor& updates,
                                    ScatterReduction reduction, bool include_self = true,
                                    Where where = Where::current());

/// The slices of x at `indices` [n] along `axis`.
[[nodiscard]] Tensor index_select(const Tensor& x, int axis, const Tensor& indices, Where where = Where::current());
/// x with `scale` times the slices of `source` added at `indices` [n] along `axis`.
/// Errors    ShapeError unless source has n slices of those of x
[[nodiscard]] Tensor index_add(const Tensor& x, int axis, const Tensor& indices, const Tensor& source, double scale = 1,
                               Where where = Where::current());
/// x with the slices of `source` reduced at `indices` [n] along `axis`: those of one place, with x itself or without.
/// Dtypes    mean: floats. Gradient: of an extreme to one of equals
/// Errors    ShapeError unless source has n slices of those of x
[[nodiscard]] Tensor index_reduce(const Tensor& x, int axis, const Tensor& indices, const Tensor& source,
                                  ScatterReduction reduction, bool include_self = true, Where where = Where::current());
/// x with the slices of `source` at `indices` [n] along `axis`.
[[nodiscard]] Tensor index_copy(const Tensor& x, int axis, const Tensor& indices, const Tensor& source,
                                Where where = Where::current());
/// x with `value` in the slices at `indices` [n] along `axis`.
[[nodiscard]] Tensor index_fill(const Tensor& x, int axis, const Tensor& indices, double value,
                                Where where = Where::current());
/// x with values at x[indices[0], indices[1], ..], or with `accumulate` added there. Indices broadcast; negative ones count
/// from the end; values broadcast to the places and the axes that have no index.
[[nodiscard]] Tensor index_put(const Tensor& x, const std::vector<Tensor>& indices, const Tensor& values,
                               bool accumulate = false, Where where = Where::current());
/// Elements of the flat x at `indices`, in their shape; negative ones count from the end.
[[nodiscard]] Tensor take(const Tensor& x, const Tensor& indices, Where where = Where::current());
/// x with values at places of the flat x, or with `accumulate` added there. Errors: ShapeError unless there is a value for
/// each index.
[[nodiscard]] Tensor put(const Tensor& x, const Tensor& indices, const Tensor& values, bool accumulate = false,
                         Where where = Where::current());
/// x with `value` where the mask is true; the mask broadcasts to x.
[[nodiscard]] Tensor masked_fill(const Tensor& x, const Tensor& mask, double value, Where where = Where::current());
/// x with the elements of `source`, one after another, where the mask is true; zeros where source ends too early.
[[nodiscard]] Tensor masked_scatter(const Tensor& x, const Tensor& mask, const Tensor& source,
                                    Where where = Where::current());

// Ops whose size depends on values. Without a `size` they evaluate their input where they are called, and a compiled function
// refuses them. With a size they are computed as other ops are: what is too many is left out, and what is missing is
// filled as each says.

/// Positions of the elements that are not 0, a row each, in order. Filled with -1.
/// Shapes    x of rank r -> [count, r], i32
[[nodiscard]] Tensor nonzero(const Tensor& x, Extent size = -1, Where where = Where::current());
/// The same, as NumPy and PyTorch call it too.
[[nodiscard]] inline Tensor argwhere(const Tensor& x, Extent size = -1, Where where = Where::current()) {
  return nonzero(x, size, where);
}
/// The elements of x where the mask, which broadcasts with x, is true. Filled with 0.
/// Gradient  g at their places
[[nodiscard]] Tensor masked_select(const Tensor& x, const Tensor& mask, Extent size = -1,
                                   Where where = Where::current());
struct Unique {
  Tensor values, inverse, counts;
};
/// The different elements in order; which of them each element of x is, in the shape of x; how often each is there. Filled
/// with 0.
[[nodiscard]] Unique unique(const Tensor& x, Extent size = -1, Where where = Where::current());
struct UniqueOptions {
  std::optional<int> axis = {};  ///< counts the slices that are compared; none: elements are
  Extent size = -1;
};
/// The same of slices along an axis, which are ordered by their first elements that differ. `inverse` and `counts` are [n] and [size].
/// Errors    ShapeError for an axis out of range
[[nodiscard]] Unique unique(const Tensor& x, const UniqueOptions& options, Where where = Where::current());
/// The first of each run of equal elements, or slices, in the order of x; which run each one is in; how long each run is. Filled
/// with 0.
[[nodiscard]] Unique unique_consecutive(const Tensor& x, const UniqueOptions& options = {},
                                        Where where = Where::current());
/// Slice i along `axis` `repeats`[i] times, one after another. Filled with zeros.
[[nodiscard]] Tensor repeat_interleave(const Tensor& x, const Tensor& repeats, int axis, Extent size = -1,
                                       Where where = Where::current());

}  // namespace weft
