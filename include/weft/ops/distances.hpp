// Distances between points and similarities of vectors.
//
// Distances are p-norms of differences, as `vector_norm`: (sum |d|^p)^(1/p), for p = 0 how many differences are not 0, for
// p = inf the largest one.
// Errors  ShapeError for shapes that do not fit, DTypeError for integers where only floats are taken, UsageError for p that is
//         NaN, or below 0 where that is said
#pragma once

#include "weft/ops.hpp"

namespace weft {

/// How `cdist` computes Euclidean distances. `differences` sums squares of differences, which is exact to rounding for all points.
/// `products` is |x|^2 + |y|^2 - 2 x y with the points moved to their middle: one matrix product, in f64 on the CPU, which loses
/// the digits that cancel. `automatic` takes products where f64 has digits to lose: on the CPU, for points in narrower types of
/// which there are many, with many coordinates.
enum class DistanceMethod { automatic, differences, products };

/// The distance of every point of x from every point of y: d_ij = |x_i - y_j|_p.
/// Shapes    x [..., n, k], y [..., m, k] -> [..., n, m]; the leading axes broadcast
/// Dtypes    floats; the result has the promoted one, and narrow floats are added in f32
/// Gradient  0 where two points are equal
/// Errors    UsageError for p < 0
/// Accuracy  by products, distances below 2^-23 of those from the middle of y count as 0
[[nodiscard]] Tensor cdist(const Tensor& x, const Tensor& y, double p = 2,
                           DistanceMethod method = DistanceMethod::automatic, Where where = Where::current());
/// The distances of all pairs of different points of x: d_ij for i < j, row by row.
/// Shapes    x [n, k] -> [n (n - 1) / 2]
/// Dtypes, gradient, errors: those of cdist
[[nodiscard]] Tensor pdist(const Tensor& x, double p = 2, Where where = Where::current());
/// The distance of x from y row by row: |x - y + eps|_p over the last axis.
/// Shapes    x and y broadcast to [..., k] -> [...], with `keepdims` [..., 1]
/// Dtypes    integers as f32
/// Gradient  0 where the norm is 0
[[nodiscard]] Tensor pairwise_distance(const Tensor& x, const Tensor& y, double p = 2, double eps = 1e-6,
                                       ReduceOptions options = {}, Where where = Where::current());
/// The p-norm of x - y over all elements, of rank 0.
/// Shapes    x and y broadcast. Dtypes: integers as f32. Gradient: 0 where the norm is 0
[[nodiscard]] Tensor dist(const Tensor& x, const Tensor& y, double p = 2, Where where = Where::current());
/// The cosine of the angle between x and y: sum x y / (max(|x|, eps) max(|y|, eps)) along `axis`.
/// Shapes    x and y broadcast to [..., k, ...] -> [..., ...]
/// Dtypes    floats
[[nodiscard]] Tensor cosine_similarity(const Tensor& x, const Tensor& y, int axis = 1, double eps = 1e-8,
                                       Where where = Where::current());
/// x with its slices along `axis` made shorter where their p-norms are above `most`: then each is times most / (norm + 1e-7).
/// Shapes    x of rank 2 or more -> the same
/// Dtypes    floats
/// Errors    ShapeError for one axis or none; UsageError for p that is not above 0, or a negative `most`
[[nodiscard]] Tensor renorm(const Tensor& x, double p, int axis, double most, Where where = Where::current());

}  // namespace weft
