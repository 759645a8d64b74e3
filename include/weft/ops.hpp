// Ops that are not rows of the elementwise table: views, reductions, products, gathers, random numbers, composites.
#pragma once

#include <functional>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

#include "weft/elementwise.hpp"
#include "weft/tensor.hpp"

namespace weft {

/// Axes of a tensor; negative axes count from the end. A single axis may be given as a number: sum(x, 1).
struct Axes : std::vector<int> {
  using std::vector<int>::vector;
  Axes() = default;
  Axes(int axis) : std::vector<int>{axis} {}
  Axes(std::vector<int> axes) : std::vector<int>(std::move(axes)) {}
};

// ---- Views: no data moves until a kernel must ------------------------------------------------------------------------

/// The same elements, row-major, in another shape; one extent may be -1. Gradient: reshape back.
[[nodiscard]] Tensor reshape(const Tensor& x, const Shape& shape, Where where = Where::current());
/// Axis i of the result is axis order[i] of x. Gradient: the inverse order.
[[nodiscard]] Tensor permute(const Tensor& x, const Axes& order, Where where = Where::current());
/// Swaps two axes (the last two by default).
[[nodiscard]] Tensor transpose(const Tensor& x, int axis_a = -2, int axis_b = -1, Where where = Where::current());
/// Broadcasts to `shape` (right-aligned; extents of 1 repeat). Gradient: the sum over repeated elements.
[[nodiscard]] Tensor expand(const Tensor& x, const Shape& shape, Where where = Where::current());
/// Elements start, start+step, ... before stop along `axis`; negative positions count from the end, step may be negative.
/// Positions beyond the ends are clipped, as in Python. Gradient: zeros outside of the slice.
[[nodiscard]] Tensor slice(const Tensor& x, int axis, Extent start, Extent stop = kEnd, Extent step = 1,
                           Where where = Where::current());
/// `length` elements from `start` along `axis`. Errors: ShapeError if they are out of range.
[[nodiscard]] Tensor narrow(const Tensor& x, int axis, Extent start, Extent length, Where where = Where::current());
/// Element `index` along `axis`, the axis removed.
[[nodiscard]] Tensor select(const Tensor& x, int axis, Extent index, Where where = Where::current());
[[nodiscard]] Tensor flip(const Tensor& x, const Axes& axes, Where where = Where::current());
/// Adds zeros around x: (before, after) for every axis.
[[nodiscard]] Tensor pad(const Tensor& x, const std::vector<std::pair<Extent, Extent>>& padding,
                         Where where = Where::current());
/// Windows of `size` elements, `step` apart, along `axis`: y[.., i, .., j] = x[.., step i + dilation j, ..], with the axis
/// of a window's elements last. A window spans dilation (size - 1) + 1 elements, and windows overlap where `step` is
/// smaller. No element is copied: reductions and matrix products read windows where they are.
/// Shapes    x [.., n, ..] -> [.., floor((n - span) / step) + 1, .., size]
/// Gradient  overlap_add
/// Errors    ShapeError: a size, step or dilation below 1; a window longer than the axis
[[nodiscard]] Tensor unfold(const Tensor& x, int axis, Extent size, Extent step = 1, Extent dilation = 1,
                            Where where = Where::current());
/// The sum of overlapping windows, the adjoint of `unfold`: y[.., p, ..] = sum over step i + dilation j = p of x[.., i, .., j].
/// `axis` gets `extent` elements, and the last axis is removed.
/// Shapes    x [.., n, .., size] -> [.., extent, ..]
/// Dtypes    numbers; f16 and bf16 are added in f32
/// Gradient  unfold
/// Errors    ShapeError: windows that do not fit into `extent`; a step or dilation below 1
[[nodiscard]] Tensor overlap_add(const Tensor& x, int axis, Extent extent, Extent step = 1, Extent dilation = 1,
                                 Where where = Where::current());
[[nodiscard]] Tensor unsqueeze(const Tensor& x, int axis, Where where = Where::current());
[[nodiscard]] Tensor squeeze(const Tensor& x, int axis, Where where = Where::current());
/// Axes [first, last] become one.
[[nodiscard]] Tensor flatten(const Tensor& x, int first = 0, int last = -1, Where where = Where::current());
/// Parts one after another along an axis, in the dtype that they have in common (`promote`). `stack`: along a new axis.
[[nodiscard]] Tensor concat(std::span<const Tensor> parts, int axis, Where where = Where::current());
[[nodiscard]] Tensor stack(std::span<const Tensor> parts, int axis, Where where = Where::current());
[[nodiscard]] inline Tensor concat(std::initializer_list<Tensor> parts, int axis, Where where = Where::current()) {
  return concat(std::span<const Tensor>(parts.begin(), parts.size()), axis, where);
}
[[nodiscard]] inline Tensor stack(std::initializer_list<Tensor> parts, int axis, Where where = Where::current()) {
  return stack(std::span<const Tensor>(parts.begin(), parts.size()), axis, where);
}
[[nodiscard]] std::vector<Tensor> split(const Tensor& x, std::span<const Extent> lengths, int axis,
                                        Where where = Where::current());
[[nodiscard]] inline std::vector<Tensor> split(const Tensor& x, std::initializer_list<Extent> lengths, int axis,
                                               Where where = Where::current()) {
  return split(x, std::span<const Extent>(lengths.begin(), lengths.size()), axis, where);
}
/// Lower (upper) triangle of the last two axes, zeros elsewhere; `diagonal` shifts the edge to the right.
[[nodiscard]] Tensor tril(const Tensor& x, int diagonal = 0, Where where = Where::current());
[[nodiscard]] Tensor triu(const Tensor& x, int diagonal = 0, Where where = Where::current());

// ---- Reductions ------------------------------------------------------------------------------------------------------

struct ReduceOptions {
  bool keepdims = false;
};
/// The reduction of that name in the op table (sum, mean, prod, norm, all, any, count_nonzero, amax, amin, argmax,
/// argmin, var, std, logsumexp) over `axes` (empty: all axes).
/// Errors  ShapeError: an axis out of range or given twice; an empty extent, if the reduction has no value for it.
[[nodiscard]] Tensor reduce(std::string_view name, const Tensor& x, const Axes& axes = {}, ReduceOptions options = {},
                            Where where = Where::current());
/// The same with the row's attributes in their order (var, std: correction). Missing attributes take their defaults.
[[nodiscard]] Tensor reduce(std::string_view name, const Tensor& x, const Axes& axes, ReduceOptions options,
                            std::span<const double> attributes, Where where = Where::current());
[[nodiscard]] Tensor sum(const Tensor& x, const Axes& axes = {}, ReduceOptions options = {},
                         Where where = Where::current());
[[nodiscard]] Tensor mean(const Tensor& x, const Axes& axes = {}, ReduceOptions options = {},
                          Where where = Where::current());
[[nodiscard]] Tensor prod(const Tensor& x, const Axes& axes = {}, ReduceOptions options = {},
                          Where where = Where::current());
[[nodiscard]] Tensor amax(const Tensor& x, const Axes& axes = {}, ReduceOptions options = {},
                          Where where = Where::current());
[[nodiscard]] Tensor amin(const Tensor& x, const Axes& axes = {}, ReduceOptions options = {},
                          Where where = Where::current());
/// Position of the first largest (smallest) element along `axis`, i32. A NaN counts as extreme.
[[nodiscard]] Tensor argmax(const Tensor& x, int axis, ReduceOptions options = {}, Where where = Where::current());
[[nodiscard]] Tensor argmin(const Tensor& x, int axis, ReduceOptions options = {}, Where where = Where::current());
/// The sum of squared deviations from the mean, divided by n - correction.
[[nodiscard]] Tensor var(const Tensor& x, const Axes& axes = {}, ReduceOptions options = {}, int correction = 1,
                         Where where = Where::current());
/// sqrt(var). (The name `std` belongs to the C++ library.)
[[nodiscard]] Tensor stddev(const Tensor& x, const Axes& axes = {}, ReduceOptions options = {}, int correction = 1,
                            Where where = Where::current());
/// sqrt(sum x^2); its gradient at 0 is 0.
[[nodiscard]] Tensor norm(const Tensor& x, const Axes& axes = {}, ReduceOptions options = {},
                          Where where = Where::current());
/// log(sum exp(x)), without overflow.
[[nodiscard]] Tensor logsumexp(const Tensor& x, const Axes& axes = {}, ReduceOptions options = {},
                               Where where = Where::current());
/// Whether x != 0 for every element (all), or for at least one (any): bool. Of no elements: true (all) and false (any).
[[nodiscard]] Tensor all(const Tensor& x, const Axes& axes = {}, ReduceOptions options = {},
                         Where where = Where::current());
[[nodiscard]] Tensor any(const Tensor& x, const Axes& axes = {}, ReduceOptions options = {},
                         Where where = Where::current());
/// Number of elements that are not 0, i32.
[[nodiscard]] Tensor count_nonzero(const Tensor& x, const Axes& axes = {}, ReduceOptions options = {},
                                   Where where = Where::current());

// ---- Scans ------------------------------------------------------------------------------------------------------------

/// Running sums along `axis`: y_i = sum_{j <= i} x_j. `exclusive` leaves out x_i itself; `reverse` adds from the end. 32-bit
/// floats are added in f64 on the CPU and in blocks of f32 on GPUs. Integers wrap; bools count in i32.
/// Shapes    x [..., n, ...] -> the same
/// Errors    ShapeError if axis is outside [-rank, rank)
/// Gradient  the cumulative sum of g from the other end
[[nodiscard]] Tensor cumsum(const Tensor& x, int axis = -1, bool exclusive = false, bool reverse = false,
                            Where where = Where::current());

// ---- Products and gathers ---------------------------------------------------------------------------------------------

/// Matrix product over the last two axes, batch axes broadcast. Rank 1: as in PyTorch (dot, matrix-vector). Transposed
/// operands are read in place; `b` may be transpose(W) of W in blocks. Accumulates in f32 (f64 for f64; i32 wraps).
/// Shapes    a [..., m, k], b [..., k, n] -> [..., m, n]
/// Errors    ShapeError if k differs or batches do not broadcast; DTypeError if dtypes differ or are bool or u32
/// Gradient  da = g b^T, db = a^T g, summed over broadcast axes
[[nodiscard]] Tensor matmul(const Tensor& a, const Tensor& b, Where where = Where::current());
/// Matrix product of integers with sums of 32 bits, where `matmul` keeps the type of its operands: c = a b, modulo 2^32.
///
/// Shapes    as `matmul`
/// Dtypes    integers, also two different ones -> i32. i8 and u8 are read as they are by kernels of their own
/// Errors    DTypeError for other types, ShapeError as `matmul`
/// Gradient  none
/// Accuracy  exact
[[nodiscard]] Tensor int_matmul(const Tensor& a, const Tensor& b, Where where = Where::current());
/// x W^T + b with W [out, in], of x's type or in blocks (which are not unpacked in memory); b may be undefined.
[[nodiscard]] Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                            Where where = Where::current());
/// Rows of `table` by index (rows of blocks become f32): out[i..., c] = table[indices[i...], c]. Zeros outside of [0, rows).
/// Gradient  of the table: rows of g added up by index, in the order of the indices
[[nodiscard]] Tensor embedding(const Tensor& table, const Tensor& indices, Where where = Where::current());
/// out[..., i, ...] = x[..., indices[..., i, ...], ...] along `axis`; other extents equal x's.
[[nodiscard]] Tensor take_along_axis(const Tensor& x, const Tensor& indices, int axis, Where where = Where::current());
/// out[r, ...] = sum of updates[i, ...] with indices[i] == r; indices [n], updates [n, ...].
[[nodiscard]] Tensor scatter_add(const Tensor& indices, const Tensor& updates, Extent rows,
                                 Where where = Where::current());
/// 1 where the new last axis equals the index, else 0.
[[nodiscard]] Tensor one_hot(const Tensor& indices, Extent classes, DType type = DType::f32,
                             Where where = Where::current());

// ---- Composites -------------------------------------------------------------------------------------------------------

/// y_i = exp(x_i - max x) / sum_j exp(x_j - max x) along `axis`.
[[nodiscard]] Tensor softmax(const Tensor& x, int axis = -1, Where where = Where::current());
/// y_i = x_i - max x - log sum_j exp(x_j - max x) along `axis`.
[[nodiscard]] Tensor log_softmax(const Tensor& x, int axis = -1, Where where = Where::current());
/// (x - mean) / sqrt(var + eps) * weight + bias over the last axis (population variance); weight, bias [n] may be undefined.
[[nodiscard]] Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps = 1e-5,
                                Where where = Where::current());
/// x / sqrt(mean(x^2) + eps) * weight over the last axis; weight may be undefined.
[[nodiscard]] Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps = 1e-6, Where where = Where::current());
/// Mean over rows of -log softmax(logits)[target]. logits [..., classes], targets [...] i32. Rows whose target equals
/// `ignore_index` count neither in the sum nor in the number of rows; other targets outside [0, classes) give NaN.
[[nodiscard]] Tensor cross_entropy(const Tensor& logits, const Tensor& targets, int ignore_index = -100,
                                   Where where = Where::current());
[[nodiscard]] Tensor mse_loss(const Tensor& prediction, const Tensor& target, Where where = Where::current());
/// Rotary positions, rotate-half form: x [..., T, D] with D even; angle of pair d at position p: p * base^(-2d/D).
/// y[d] = x[d] cos - x[d+D/2] sin; y[d+D/2] = x[d+D/2] cos + x[d] sin. Positions are offset, offset+1, ...
[[nodiscard]] Tensor rope(const Tensor& x, double base = 10000, Extent offset = 0, Where where = Where::current());
/// softmax(scale * q k^T, masked) v. Query i is at position p = i + (keys - queries). It sees keys j <= p if causal, and only
/// keys with |j - p| < window unless window is 0. scale 0 means 1/sqrt(D). Fused forward and backward where there are kernels.
/// k, v may have fewer heads than q: Hkv divides H. A query that sees no key gets 0. weft/ops/attention.hpp has masks, lengths
/// and dropout.
/// Shapes    q [B, H, T, D], k, v [B, Hkv, S, D] -> [B, H, T, D]
/// Errors    ShapeError, DTypeError, DeviceError; UsageError for a negative window
[[nodiscard]] Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, bool causal = true, double scale = 0,
                               Extent window = 0, Where where = Where::current());
/// silu(gate) * up.
[[nodiscard]] Tensor swiglu(const Tensor& gate, const Tensor& up, Where where = Where::current());

// ---- Random numbers: Philox 4x32-10 on (seed, stream, element), the same bits on every device -------------------------

/// Seeds the default generator. Its state, (seed, number of draws so far), is a Variable: compiled steps draw anew each run.
void manual_seed(std::uint32_t seed);
/// The state, u32 [2], to save and restore.
Variable random_state();
/// Uniform in [low, high), 24 bits.
[[nodiscard]] Tensor rand(const Shape& shape, double low = 0, double high = 1, DType type = DType::f32,
                          Where where = Where::current());
/// Normal with this mean and standard deviation (Box-Muller).
[[nodiscard]] Tensor randn(const Shape& shape, double mean = 0, double deviation = 1, DType type = DType::f32,
                           Where where = Where::current());
/// Each element is kept with probability 1-p and divided by 1-p, or else becomes 0. p = 0 gives x.
[[nodiscard]] Tensor dropout(const Tensor& x, double p, Where where = Where::current());

}  // namespace weft
