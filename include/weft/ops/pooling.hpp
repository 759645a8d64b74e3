// Pools: one value for each window, over one to three axes of space.
#pragma once

#include <utility>
#include <vector>

#include "weft/ops/per_axis.hpp"
#include "weft/ops/scans.hpp"
#include "weft/tensor.hpp"

namespace weft {

struct PoolOptions {
  PerAxis stride = {};  ///< empty: the kernel's extents, so that windows are adjacent
  PerAxis padding = 0;  ///< at both ends of each axis, half a kernel at most
  PerAxis dilation = 1;
  bool ceil_mode = false;  ///< also counts a last window that reaches beyond the end
};
struct AveragePoolOptions {
  PerAxis stride = {};
  PerAxis padding = 0;
  bool ceil_mode = false;
  bool count_include_pad = true;  ///< whether zeros of the padding count as elements
};

/// The greatest element of each window; NaN if one is. Equal greatest elements share the gradient evenly.
/// Shapes    x [N, C, L] -> [N, C, floor((L + 2 padding - span) / stride) + 1], and so on with more axes
/// Dtypes    numbers
/// Errors    ShapeError: lengths that do not fit, padding of more than half a kernel
[[nodiscard]] Tensor max_pool1d(const Tensor& x, const PerAxis& kernel, const PoolOptions& options = {},
                                Where where = Where::current());
[[nodiscard]] Tensor max_pool2d(const Tensor& x, const PerAxis& kernel, const PoolOptions& options = {},
                                Where where = Where::current());
[[nodiscard]] Tensor max_pool3d(const Tensor& x, const PerAxis& kernel, const PoolOptions& options = {},
                                Where where = Where::current());
/// The position of each of these elements in the row-major axes of space, i32. The first of equal elements.
[[nodiscard]] Tensor max_pool_positions1d(const Tensor& x, const PerAxis& kernel, const PoolOptions& options = {},
                                          Where where = Where::current());
[[nodiscard]] Tensor max_pool_positions2d(const Tensor& x, const PerAxis& kernel, const PoolOptions& options = {},
                                          Where where = Where::current());
[[nodiscard]] Tensor max_pool_positions3d(const Tensor& x, const PerAxis& kernel, const PoolOptions& options = {},
                                          Where where = Where::current());

struct UnpoolOptions {
  PerAxis stride = {};  ///< empty: the kernel's extents
  PerAxis padding = 0;
  PerAxis size = {};  ///< extents of space of the result; empty: (L - 1) stride - 2 padding + kernel
};
/// Undoes a pool of greatest elements: x at `positions`, as max_pool_positions gives them, and zeros elsewhere. Of equal positions the
/// last one counts; a position outside writes nothing.
/// Shapes    x and positions [N, C, L] -> [N, C, size], and so on with more axes
/// Dtypes    all; positions integers
/// Gradient  to x where it was written
/// Errors    ShapeError for shapes that differ or extents that do not fit; DTypeError for positions that are not integers
[[nodiscard]] Tensor max_unpool1d(const Tensor& x, const Tensor& positions, const PerAxis& kernel,
                                  const UnpoolOptions& options = {}, Where where = Where::current());
[[nodiscard]] Tensor max_unpool2d(const Tensor& x, const Tensor& positions, const PerAxis& kernel,
                                  const UnpoolOptions& options = {}, Where where = Where::current());
[[nodiscard]] Tensor max_unpool3d(const Tensor& x, const Tensor& positions, const PerAxis& kernel,
                                  const UnpoolOptions& options = {}, Where where = Where::current());

struct FractionalPoolOptions {
  PerAxis size = {};               ///< extents of space of the result
  std::vector<double> ratio = {};  ///< without sizes: these shares of the extents of x, one or one for each axis
  Tensor samples = {};             ///< [N, C, axes] in [0, 1), which place the windows; undefined: drawn
};
/// The greatest element of each of `size` windows, of the kernel's extents, whose distances are whole numbers around
/// a = (L - kernel) / (size - 1): window i begins at floor((i + u) a) - floor(u a) with u the sample of the axis, and the last one at
/// L - kernel. (Graham, 2014.) In two axes the first sample is that of the last axis, as in PyTorch. Positions are row-major in the
/// axes of space, i32; the first of equal elements counts, and gets the gradient.
/// Shapes    x [N, C, H, W] -> [N, C, size...], both; 3d with one more axis
/// Dtypes    floats
/// Errors    ShapeError for windows that do not fit, samples of another shape; UsageError for neither sizes nor ratios, or both
[[nodiscard]] ValuesAndPositions fractional_max_pool2d(const Tensor& x, const PerAxis& kernel,
                                                       const FractionalPoolOptions& options,
                                                       Where where = Where::current());
[[nodiscard]] ValuesAndPositions fractional_max_pool3d(const Tensor& x, const PerAxis& kernel,
                                                       const FractionalPoolOptions& options,
                                                       Where where = Where::current());

/// The mean of each window. Shapes as of max_pool. Dtypes: floats.
[[nodiscard]] Tensor avg_pool1d(const Tensor& x, const PerAxis& kernel, const AveragePoolOptions& options = {},
                                Where where = Where::current());
[[nodiscard]] Tensor avg_pool2d(const Tensor& x, const PerAxis& kernel, const AveragePoolOptions& options = {},
                                Where where = Where::current());
[[nodiscard]] Tensor avg_pool3d(const Tensor& x, const PerAxis& kernel, const AveragePoolOptions& options = {},
                                Where where = Where::current());

/// (sum x^p)^(1/p) of each window; p = 1 is the sum. Dtypes: floats.
[[nodiscard]] Tensor lp_pool1d(const Tensor& x, double p, const PerAxis& kernel, const PoolOptions& options = {},
                               Where where = Where::current());
[[nodiscard]] Tensor lp_pool2d(const Tensor& x, double p, const PerAxis& kernel, const PoolOptions& options = {},
                               Where where = Where::current());
[[nodiscard]] Tensor lp_pool3d(const Tensor& x, double p, const PerAxis& kernel, const PoolOptions& options = {},
                               Where where = Where::current());

/// Mean (greatest element) of windows from floor(i L / size) to ceil((i + 1) L / size), so that `size` of them cover the
/// axis of any extent L. An extent of -1 keeps that of x. Shapes: x [N, C, L] -> [N, C, size].
[[nodiscard]] Tensor adaptive_avg_pool1d(const Tensor& x, const PerAxis& size, Where where = Where::current());
[[nodiscard]] Tensor adaptive_avg_pool2d(const Tensor& x, const PerAxis& size, Where where = Where::current());
[[nodiscard]] Tensor adaptive_avg_pool3d(const Tensor& x, const PerAxis& size, Where where = Where::current());
[[nodiscard]] Tensor adaptive_max_pool1d(const Tensor& x, const PerAxis& size, Where where = Where::current());
[[nodiscard]] Tensor adaptive_max_pool2d(const Tensor& x, const PerAxis& size, Where where = Where::current());
[[nodiscard]] Tensor adaptive_max_pool3d(const Tensor& x, const PerAxis& size, Where where = Where::current());

}  // namespace weft
