// Attention as one call, forward and backward, for which devices have kernels.
#pragma once

#include "graph/op.hpp"

namespace weft::graph {

struct AttentionAttributes {
  bool causal = true;
  double scale = 0;
  Extent window = 0;  // 0: none
};

/// (q, k, v), each [B, T, H, D] -> o [B, T, H, D], logsumexp [B, H, T].
const OpRow& attention_row();
/// Whether kernels with tiles of whole heads can compute a call of either op: f32, without a window, heads of at most
/// `width_max` channels, neither queries nor keys empty.
bool fits_tiles(const Call& attention, Extent width_max);
/// (q, k, v, o, logsumexp, d_o) -> d_q, d_k, d_v.
const OpRow& attention_backward_row();

}  // namespace weft::graph
