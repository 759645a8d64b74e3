// Parts of networks that are not elementwise: gated units, attention with a mask, bags of embeddings, comparison of tensors.
#pragma once

#include "weft/tensor.hpp"

namespace weft {

/// max(x, 0) + weight min(x, 0), with a weight for each channel or one for all.
/// Shapes    x [N, C, ...], weight [C] or [1] -> as x. Errors: ShapeError.
[[nodiscard]] Tensor prelu(const Tensor& x, const Tensor& weight, Where where = Where::current());
/// a sigmoid(b), with a and b the halves of x along an axis. Errors: ShapeError for an odd extent.
[[nodiscard]] Tensor glu(const Tensor& x, int axis = -1, Where where = Where::current());
/// y_o = sum_ij x_i weight_oij y_j + bias_o: a product of two inputs with a weight for each pair of their elements.
/// Shapes    x [..., in_1], y [..., in_2] with the same leading axes, weight [out, in_1, in_2], bias [out] or undefined -> [..., out]
/// Dtypes    floats, all the same. Errors: ShapeError, DTypeError
/// Gradient  to all
[[nodiscard]] Tensor bilinear(const Tensor& x, const Tensor& y, const Tensor& weight, const Tensor& bias = {},
                              Where where = Where::current());
/// Whether all elements are close, |x - y| <= atol + rtol |y|: a bool of rank 0.
[[nodiscard]] Tensor allclose(const Tensor& x, const Tensor& y, double rtol = 1e-5, double atol = 1e-8,
                              bool equal_nan = false, Where where = Where::current());

struct MaskedAttentionOptions {
  bool causal = false;  ///< query i sees keys j <= i, both counted from their starts
  double scale = 0;     ///< factor of the scores; 0: 1/sqrt(D)
  double dropout = 0;   ///< probability that a share becomes 0, as in AttentionOptions
};
/// softmax(scale q k^T + mask) v. A bool mask says which keys a query sees; a float mask is added to the scores (-1e30 and less
/// hides the key). It broadcasts against [..., H, T, S]. A query that sees no key gets 0. Hkv must divide H; neighbouring query
/// heads share a key head. It runs on the kernels of `attention` (weft/ops/attention.hpp), which aligns the last query with the
/// last key.
/// Shapes    q [..., H, T, D], k [..., Hkv, S, D], v [..., Hkv, S, E] -> [..., H, T, E]; of rank 3 at least two: [..., T, D]
/// Errors    ShapeError, DTypeError
[[nodiscard]] Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                                  const Tensor& mask = {}, const MaskedAttentionOptions& options = {},
                                                  Where where = Where::current());

/// How the rows of a bag are combined.
enum class BagMode { sum, mean, max };
/// Rows of a table added up by bags, times their weights if given; `mean` divides by the number of rows. Empty bags give 0.
/// Shapes    table [rows, C], indices i32 [B, L] -> [B, C], weights [B, L] or undefined (for sums only)
///           With offsets i32 [B]: indices [n], of which bag b has those from offsets[b] to the next bag's; weights [n].
/// Errors    ShapeError, DTypeError; UsageError: weights of a mean or max
/// Gradient  to the table and the weights
[[nodiscard]] Tensor embedding_bag(const Tensor& table, const Tensor& indices, const Tensor& offsets = {},
                                   const Tensor& weights = {}, BagMode mode = BagMode::sum,
                                   Where where = Where::current());

}  // namespace weft
