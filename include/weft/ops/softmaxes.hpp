// Softmaxes besides `softmax`: sparse ones, with masks, in groups, with noise, as mixtures; and soft assignment to centres.
#pragma once

#include "weft/tensor.hpp"

namespace weft {

/// The point of the simplex nearest to x: max(x - t, 0) with t such that it adds up to 1. Small values become exactly 0. The
/// time is quadratic in the row, the memory is not.
/// Gradient  g - mean of g over the elements that are not 0, and 0 elsewhere
/// Source    Martins and Astudillo 2016, arXiv:1602.02068
[[nodiscard]] Tensor sparsemax(const Tensor& x, int axis = -1, Where where = Where::current());
/// max(x / 2 - t, 0)^2 with t such that it adds up to 1: between softmax and sparsemax.
/// Source    Peters, Niculae and Martins 2019, arXiv:1905.05702
[[nodiscard]] Tensor entmax15(const Tensor& x, int axis = -1, Where where = Where::current());
/// softmax(-x): large where x is small.
[[nodiscard]] Tensor softmin(const Tensor& x, int axis = -1, Where where = Where::current());
/// softmax(x / temperature). Errors: UsageError unless temperature > 0.
[[nodiscard]] Tensor tempered_softmax(const Tensor& x, double temperature, int axis = -1,
                                      Where where = Where::current());
/// softmax over the elements where a bool mask, which broadcasts to x, is true; 0 elsewhere, and in rows without any.
[[nodiscard]] Tensor masked_softmax(const Tensor& x, const Tensor& mask, int axis = -1, Where where = Where::current());
/// softmax over groups of `size` neighbours along the last axis, such as rows of a grid or siblings in a tree. Errors:
/// ShapeError if size does not divide the axis.
[[nodiscard]] Tensor grouped_softmax(const Tensor& x, Extent size, Where where = Where::current());
/// The softmaxes of x [..., K, n] along the last axis, added up with weights softmax(weights) [..., K]: [..., n].
/// Source    Yang et al. 2018, arXiv:1711.03953
[[nodiscard]] Tensor mixture_softmax(const Tensor& x, const Tensor& weights, Where where = Where::current());
/// softmax((x - ln(-ln u)) / temperature) with u uniform in [0, 1): a relaxed draw from the softmax of x. `hard` gives the draw
/// itself, 1 at the largest, with the gradient of the relaxed draw.
/// Shapes    x and u the same. Draw u by rand(x.shape()) after manual_seed, or call nn::gumbel_softmax, which does.
/// Source    Jang, Gu and Poole 2017, arXiv:1611.01144
[[nodiscard]] Tensor gumbel_softmax(const Tensor& x, const Tensor& u, double temperature = 1, bool hard = false,
                                    int axis = -1, Where where = Where::current());

/// Soft assignment of rows to centres: softmax over k of -|x - c_k|^2 / (2 temperature^2). `features` gives the centres
/// weighted with these probabilities instead.
/// Shapes    x [N, I], centres [K, I] -> [N, K], or [N, I]
/// Errors    ShapeError; UsageError unless temperature > 0
[[nodiscard]] Tensor soft_kmeans(const Tensor& x, const Tensor& centres, double temperature = 1, bool features = false,
                                 Where where = Where::current());

}  // namespace weft
