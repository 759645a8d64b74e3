// Statistics that reductions make together. Axes as in reductions: none given means all of them.
// Errors  ShapeError for an axis out of range or given twice
#pragma once

#include "weft/ops.hpp"

namespace weft {

struct VarianceAndMean {
  Tensor variance, mean;
};
/// var and mean over the same axes.
[[nodiscard]] VarianceAndMean var_mean(const Tensor& x, const Axes& axes = {}, ReduceOptions options = {},
                                       int correction = 1, Where where = Where::current());
struct DeviationAndMean {
  Tensor deviation, mean;
};
/// stddev and mean over the same axes.
[[nodiscard]] DeviationAndMean std_mean(const Tensor& x, const Axes& axes = {}, ReduceOptions options = {},
                                        int correction = 1, Where where = Where::current());
/// Sum, and mean, of the elements that are not NaN. The mean of none is NaN.
[[nodiscard]] Tensor nansum(const Tensor& x, const Axes& axes = {}, ReduceOptions options = {},
                            Where where = Where::current());
[[nodiscard]] Tensor nanmean(const Tensor& x, const Axes& axes = {}, ReduceOptions options = {},
                             Where where = Where::current());
struct Extremes {
  Tensor least, largest;
};
/// amin and amax over the same axes.
[[nodiscard]] Extremes aminmax(const Tensor& x, const Axes& axes = {}, ReduceOptions options = {},
                               Where where = Where::current());
/// (sum |x|^p)^(1/p). p = 0 counts what is not 0; p = inf and -inf give the largest and the least |x|.
/// Dtypes    integers as f32
/// Gradient  0 where the norm is 0
[[nodiscard]] Tensor vector_norm(const Tensor& x, double p = 2, const Axes& axes = {}, ReduceOptions options = {},
                                 Where where = Where::current());
/// How rows vary together: c_ij = sum_k (x_ik - mean_i) (x_jk - mean_j) / (n - correction).
/// Shapes    x [variables, n] -> [variables, variables]; x [n] -> its variance, of rank 0
/// Dtypes    floats
/// Errors    ShapeError for more than two axes
[[nodiscard]] Tensor cov(const Tensor& x, int correction = 1, Where where = Where::current());
/// cov over the deviations of both rows: correlations in [-1, 1].
[[nodiscard]] Tensor corrcoef(const Tensor& x, Where where = Where::current());

}  // namespace weft
