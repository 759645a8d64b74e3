// Order: sorting and what is made of it.
//
// A NaN is larger than any number, so it comes last (in descending order first), as in PyTorch and NumPy. Equal elements keep
// the order of their positions. Positions are i32.
// Errors  ShapeError if axis is outside of [-rank, rank)
#pragma once

#include <utility>
#include <vector>

#include "weft/ops/scans.hpp"

namespace weft {

/// The elements in order along `axis`, and where each was.
/// Shapes    x [..., n, ...] -> the same, both
/// Dtypes    all
/// Gradient  of values: g at the positions
[[nodiscard]] ValuesAndPositions sort(const Tensor& x, int axis = -1, bool descending = false,
                                      Where where = Where::current());
/// The elements in order along axis 0. Errors: ShapeError for a scalar
[[nodiscard]] Tensor msort(const Tensor& x, Where where = Where::current());
/// The positions alone.
[[nodiscard]] Tensor argsort(const Tensor& x, int axis = -1, bool descending = false, Where where = Where::current());
/// The k largest (smallest) elements along `axis`, in order. The CPU sorts only what can be among them.
/// Shapes    x [..., n, ...] -> [..., k, ...], both
/// Errors    ShapeError also for k outside of [0, n]
/// Gradient  of values: g at the positions
[[nodiscard]] ValuesAndPositions topk(const Tensor& x, Extent k, int axis = -1, bool largest = true,
                                      Where where = Where::current());
/// The k-th smallest element along `axis`, counted from 1.
/// Shapes    x [..., n, ...] -> [..., ...], both
/// Errors    ShapeError also for k outside of [1, n]
[[nodiscard]] ValuesAndPositions kthvalue(const Tensor& x, Extent k, int axis = -1, ReduceOptions options = {},
                                          Where where = Where::current());
/// The element in the middle along `axis`, the lower one of two; of a line with a NaN that NaN.
/// Errors    ShapeError also for an empty axis
[[nodiscard]] ValuesAndPositions median(const Tensor& x, int axis, ReduceOptions options = {},
                                        Where where = Where::current());
/// That of all elements, of rank 0.
[[nodiscard]] Tensor median(const Tensor& x, Where where = Where::current());
/// The median of the elements along `axis` that are not NaN; NaN where all are.
/// Errors    ShapeError also for an empty axis
[[nodiscard]] ValuesAndPositions nanmedian(const Tensor& x, int axis, ReduceOptions options = {},
                                           Where where = Where::current());
[[nodiscard]] Tensor nanmedian(const Tensor& x, Where where = Where::current());

/// What lies between two elements: a mix by distance, the lower, the higher, the nearer (of equally near ones that at an even
/// rank), or the mean of both.
enum class QuantileInterpolation { linear, lower, higher, nearest, midpoint };
/// The value below which a share q of the elements is: that at rank q (n - 1). NaN for a line with a NaN.
/// Shapes    x [..., n, ...] -> [..., ...]; for several q [q, ..., ...]. No axes: over all elements.
/// Dtypes    floats
/// Errors    ShapeError also for an empty axis, or several axes; UsageError for q outside of [0, 1]
[[nodiscard]] Tensor quantile(const Tensor& x, double q, const Axes& axis = {}, ReduceOptions options = {},
                              QuantileInterpolation interpolation = QuantileInterpolation::linear,
                              Where where = Where::current());
[[nodiscard]] Tensor quantile(const Tensor& x, const std::vector<double>& q, const Axes& axis = {},
                              ReduceOptions options = {},
                              QuantileInterpolation interpolation = QuantileInterpolation::linear,
                              Where where = Where::current());
/// The quantile of the elements that are not NaN; NaN where all are.
/// Shapes, dtypes, errors: those of quantile
[[nodiscard]] Tensor nanquantile(const Tensor& x, double q, const Axes& axis = {}, ReduceOptions options = {},
                                 QuantileInterpolation interpolation = QuantileInterpolation::linear,
                                 Where where = Where::current());
[[nodiscard]] Tensor nanquantile(const Tensor& x, const std::vector<double>& q, const Axes& axis = {},
                                 ReduceOptions options = {},
                                 QuantileInterpolation interpolation = QuantileInterpolation::linear,
                                 Where where = Where::current());
/// The most frequent element along `axis`, the smallest of several, and the last position where it is.
/// Errors    ShapeError also for an empty axis
[[nodiscard]] ValuesAndPositions mode(const Tensor& x, int axis = -1, ReduceOptions options = {},
                                      Where where = Where::current());

/// Where values belong in a sorted line: how many of its elements are smaller (`right`: not larger).
/// Shapes    sorted [n] with values of any shape, or [..., n] with values [..., m] -> those of values, i32
/// Errors    ShapeError where the leading extents differ
[[nodiscard]] Tensor searchsorted(const Tensor& sorted, const Tensor& values, bool right = false,
                                  Where where = Where::current());
/// searchsorted(boundaries, x).
[[nodiscard]] Tensor bucketize(const Tensor& x, const Tensor& boundaries, bool right = false,
                               Where where = Where::current());

/// Whether each element of x equals one of `elements`; `invert`: whether it equals none. NaN equals nothing.
/// Shapes    x and elements of any shapes -> that of x, bool
/// Dtypes    all; two dtypes are promoted
/// Gradient  none
[[nodiscard]] Tensor isin(const Tensor& x, const Tensor& elements, bool invert = false, Where where = Where::current());

/// How often each number is in x, or the sum of the weights of those places: y_v = sum over x_i = v of weights_i.
/// `size` fixes the length of the result, and numbers of `size` or more are not counted. Without `size`, x is evaluated here,
/// and the result is just long enough for the largest number, or `minimum` long if that is more.
/// Shapes    x [n] of integers, weights [n] or undefined -> [size], i32 or of the weights' dtype
/// Errors    UsageError without a size inside a compiled function, or for a negative number
[[nodiscard]] Tensor bincount(const Tensor& x, const Tensor& weights = {}, Extent minimum = 0, Extent size = -1,
                              Where where = Where::current());

struct Histogram {
  Tensor counts, edges;
};
/// How many elements are in each of `bins` equal parts of [low, high], the last one closed; others are left out. low = high
/// takes the least and the largest element. With weights (of x's shape) their sums. `density` divides each by the sum of all and the
/// size of its bin.
/// Shapes    any x -> counts [bins], i32 or of the weights' dtype, of a density float; edges [bins + 1]
/// Errors    ShapeError for no bins; UsageError for low > high
[[nodiscard]] Histogram histogram(const Tensor& x, Extent bins = 10, double low = 0, double high = 0,
                                  const Tensor& weights = {}, bool density = false, Where where = Where::current());
/// The same between neighbours of `edges` [bins + 1], which are in order.
[[nodiscard]] Histogram histogram(const Tensor& x, const Tensor& edges, const Tensor& weights = {},
                                  bool density = false, Where where = Where::current());
/// The counts alone, in the dtype of x.
[[nodiscard]] Tensor histc(const Tensor& x, Extent bins = 100, double low = 0, double high = 0,
                           Where where = Where::current());

struct HistogramOptions {
  std::vector<Extent> bins = {10};  ///< along each axis: one number for all, or one for each
  std::vector<std::pair<double, double>> ranges =
      {};                          ///< low and high, one for all axes or one for each; none: of the elements
  std::vector<Tensor> edges = {};  ///< instead of bins and ranges: [bins + 1] for each axis
  Tensor weights = {};             ///< of each point
  bool density = false;            ///< counts divided by their sum and the sizes of their bins
};
struct HistogramOfPoints {
  Tensor counts;
  std::vector<Tensor> edges;
};
/// How many points are in each cell of a grid; points outside are left out.
/// Shapes    x [..., d], weights [...] -> counts [bins_0, .., bins_{d - 1}], i32 or of the weights' dtype; d edges [bins + 1]
/// Errors    ShapeError for no bins, or bins, ranges or edges of another number of axes; UsageError for low > high
[[nodiscard]] HistogramOfPoints histogramdd(const Tensor& x, const HistogramOptions& options = {},
                                            Where where = Where::current());

}  // namespace weft
