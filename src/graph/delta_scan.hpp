// Scans of the gated delta rule, with their states, as a call that devices have kernels for.
#pragma once

#include "graph/op.hpp"

namespace weft::graph {

struct DeltaScanAttributes {
  Extent chunk = 64;    // steps that the decomposition takes at once
  bool cached = false;  // the states are rows of a cache, and the operands say which
};

/// The operands by name. With a cache, the states are rows of it as those of StateScan.
struct DeltaScan {
  Tensor q, k;                // [B, T, G, K], of neighbouring heads
  Tensor v;                   // [B, T, H, V]
  Tensor decay;               // [B, T, H]: logarithm of the factor that a step multiplies the state by
  Tensor beta;                // [B, T, H]
  Tensor state;               // [B, H, K, V], or the cache [R, H K V]
  Tensor sequence, is_first;  // i32 [B], with a cache
};
DeltaScan delta_scan_of(const Call& call);

/// Results: the states after the last step, in the shape of `state`; y [B, T, H, V].
const OpRow& delta_scan_row();

}  // namespace weft::graph
