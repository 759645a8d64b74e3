// Attention as one call, forward and backward, for which devices have kernels.
#pragma once

#include "graph/op.hpp"

namespace weft::graph {

/// A value added to a score that is not above this hides the key, in every type.
inline constexpr double kHiddenBias = -1e30;

struct AttentionAttributes {
  bool causal = true;
  double scale = 1;
  Extent window = 0;   // 0: none
  Extent shift = 0;    // query i is at position i + shift of the keys
  Extent dropped = 0;  // of 256 shares
};

/// (q, k, v, mask, key_spans, seed) -> o [B, T, H, D], logsumexp [B, H, T], with q [B, T, H, D], k and v [B, S, Hkv, D]. The last
/// three may be left out; kernel::AttentionKernel says what they are. The mask has the rank of the scores [B, H, T, S].
const OpRow& attention_row();
/// (q, k, v, o, logsumexp, d_o, mask, key_spans, seed, query_spans) -> d_q, d_k, d_v.
const OpRow& attention_backward_row();
/// (q, k, v, mask, lengths, key_lengths, seed) -> o; `attention` in weft/ops.hpp and weft/ops/attention.hpp.
struct PublicAttentionAttributes {
  bool causal = true;
  double scale = 0;  // 0: 1/sqrt(D)
  Extent window = 0;
  double dropout = 0;
};
const OpRow& public_attention_row();
/// (q, k, v, mask, seed) -> o; `scaled_dot_product_attention` in weft/ops/networks.hpp.
struct MaskedAttentionAttributes {
  bool causal = false;
  double scale = 0;
  double dropout = 0;
};
const OpRow& masked_attention_row();

/// The optional inputs of a call of one of the first two rows; undefined ones are left out.
struct AttentionInputs {
  explicit AttentionInputs(const Call& call);
  Tensor mask, key_spans, seed, query_spans;
};

/// Whether kernels read input `i` of one of the first two rows by rows with strides. The other inputs are contiguous, and keep
/// their types.
bool is_read_by_rows(const OpRow& row, std::size_t i);

/// Whether kernels with tiles of whole heads can compute a call of either op: f32, heads of at most `width_max` channels,
/// neither queries nor keys empty.
bool fits_tiles(const Call& attention, Extent width_max);

/// A probability of dropping as a part of 256, rounded.
Extent dropped_of(double probability);

}  // namespace weft::graph
