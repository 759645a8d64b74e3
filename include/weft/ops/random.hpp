// Random numbers of several distributions, made of `rand`: the same draws on every device, anew at each run of a compiled
// function.
// Dtypes  floats f32 or f64; integers i32
// Errors  ShapeError for a negative extent, UsageError for a parameter out of range
#pragma once

#include "weft/ops.hpp"

namespace weft {

/// rand and randn in the shape and dtype of `like`, on the default device.
[[nodiscard]] Tensor rand_like(const Tensor& like, double low = 0, double high = 1, Where where = Where::current());
[[nodiscard]] Tensor randn_like(const Tensor& like, double mean = 0, double deviation = 1,
                                Where where = Where::current());
/// Whole numbers in [low, high), equally likely, of at most 2^24 different ones.
[[nodiscard]] Tensor randint(Extent low, Extent high, const Shape& shape, Where where = Where::current());
/// 0, ..., n - 1 in random order.
[[nodiscard]] Tensor randperm(Extent n, Where where = Where::current());
/// 1 with that probability, else 0, in the shape and dtype of the probabilities.
[[nodiscard]] Tensor bernoulli(const Tensor& probability, Where where = Where::current());
/// `count` positions along the last axis, drawn in proportion to the weights, which are not negative. Without replacement none
/// is drawn twice, and there must be as many that are not 0.
/// Shapes    weights [..., n] -> [..., count], i32
/// Errors    ShapeError for a scalar, for no weights, and for more than n without replacement
[[nodiscard]] Tensor multinomial(const Tensor& weights, Extent count, bool replacement = false,
                                 Where where = Where::current());
/// A position along the last axis for each line, drawn in proportion to e^logits: multinomial of a softmax, one draw.
/// Shapes    logits [..., n] -> [...], i32. Errors: ShapeError for a scalar and for no classes
[[nodiscard]] Tensor categorical(const Tensor& logits, Where where = Where::current());
/// How many events happen where they come at this rate: k with probability rate^k e^-rate / k!. NaN for a negative rate; beyond
/// 2^20 the counts are those of a normal distribution with the same skewness.
/// Dtypes    floats; the counts have the dtype of the rates. Gradient: none. Errors: DTypeError for integers
[[nodiscard]] Tensor poisson(const Tensor& rate, Where where = Where::current());
/// x where it is not negative, else x times a slope. In training each element draws a slope in [lower, upper); otherwise it is
/// their mean. Gradient: to x, with the slope that was drawn. Errors: DTypeError; UsageError for lower > upper
[[nodiscard]] Tensor rrelu(const Tensor& x, double lower = 0.125, double upper = 1.0 / 3, bool training = true,
                           Where where = Where::current());
/// Normal, with a mean and a deviation for each element.
/// Shapes    mean and deviation broadcast
/// Dtypes    floats; the result has the promoted one
/// Gradient  to both, at the draws: y = mean + deviation z with z of the standard distribution
[[nodiscard]] Tensor normal(const Tensor& mean, const Tensor& deviation, Where where = Where::current());
[[nodiscard]] Tensor normal(const Tensor& mean, double deviation = 1, Where where = Where::current());
[[nodiscard]] Tensor normal(double mean, const Tensor& deviation, Where where = Where::current());
/// Dropout of whole channels: each channel of each image is kept with probability 1-p and divided by 1-p, or else becomes 0.
/// Shapes    x [N, C, ...] -> the same. Dtypes: floats
/// Errors    ShapeError for fewer than two axes, UsageError unless 0 <= p <= 1
[[nodiscard]] Tensor channel_dropout(const Tensor& x, double p, Where where = Where::current());
/// Dropout that keeps mean 0 and variance 1, for networks of `selu`: each element becomes the least value of selu, -1.758, with
/// probability p, and all are scaled and moved so that the mean and the variance stay. p = 1 gives zeros.
/// Dtypes    floats
/// Errors    UsageError unless 0 <= p <= 1
/// Source    Klambauer et al. 2017, arXiv:1706.02515
[[nodiscard]] Tensor alpha_dropout(const Tensor& x, double p, Where where = Where::current());
/// The same of whole channels of x [N, C, ...].
/// Errors    ShapeError for fewer than two axes
[[nodiscard]] Tensor feature_alpha_dropout(const Tensor& x, double p, Where where = Where::current());
/// Density rate e^(-rate x).
[[nodiscard]] Tensor exponential(const Shape& shape, double rate = 1, DType type = DType::f32,
                                 Where where = Where::current());
/// The largest of many: location - scale ln(e), with e of the exponential distribution.
[[nodiscard]] Tensor gumbel(const Shape& shape, double location = 0, double scale = 1, DType type = DType::f32,
                            Where where = Where::current());
/// The normal distribution between `low` and `high`, which no draw leaves. Its tails are those of f32: beyond four deviations
/// from the mean draws are coarse.
[[nodiscard]] Tensor truncated_normal(const Shape& shape, double mean = 0, double deviation = 1, double low = -2,
                                      double high = 2, DType type = DType::f32, Where where = Where::current());

}  // namespace weft
