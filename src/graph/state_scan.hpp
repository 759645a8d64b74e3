// Scans of linear recurrences and short convolutions, with their states, as calls that devices have kernels for. Mamba's and
// Mamba-2's scans are two shapes of one: H heads of P channels with N states each.
#pragma once

#include "graph/op.hpp"

namespace weft::graph {

struct StateScanAttributes {
  Extent chunk = 256;   // steps that the decomposition takes at once where the states of a head share a rate
  bool cached = false;  // the states are rows of a cache, and the operands say which
};

/// The operands by name. With a cache, the states are rows of it: sequence s has row `sequence[s]`, or none if that is negative,
/// and begins with zeros if `is_first[s]` is above 0.
struct StateScan {
  Tensor x;                   // [B, T, H, P]
  Tensor dt;                  // [B, T, H]
  Tensor a;                   // [H, N], or [H, 1]: one rate for all states of a head
  Tensor b, c;                // [B, T, G, N], of neighbouring heads
  Tensor state;               // [B, H, P, N], or the cache [R, H P N]
  Tensor sequence, is_first;  // i32 [B], with a cache
};
struct StateScanBackward {
  Tensor x, dt, a, b, c, state;
  Tensor d_state, d_y;
};
StateScan state_scan_of(const Call& call);
StateScanBackward state_scan_backward_of(const Call& call);

/// Results: the states after the last step, in the shape of `state`; y [B, T, H, P].
const OpRow& state_scan_row();
/// Results: gradients of x, dt, a, b, c and the state.
const OpRow& state_scan_backward_row();

struct StateConvolutionAttributes {
  bool cached = false;
};
struct StateConvolution {
  Tensor x;                          // [B, T, W]
  Tensor weight;                     // [W, K]
  Tensor bias;                       // [W]
  Tensor state;                      // [B, K - 1, W], or the cache [R, (K - 1) W]
  Tensor sequence, is_first, count;  // i32 [B], [B], and [1]: of steps that count, the others are padding
};
StateConvolution state_convolution_of(const Call& call);
/// Results: the last K - 1 inputs, in the shape of `state`; y [B, T, W].
const OpRow& state_convolution_row();

}  // namespace weft::graph
