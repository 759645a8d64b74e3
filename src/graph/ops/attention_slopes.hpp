// Slopes by which scores of attention fall with the distance (ALiBi), and sinks beside them, for the op with kernels.
#pragma once

#include "weft/tensor.hpp"

namespace weft::graph {

/// What slopes and sinks are computed in.
DType exact_type(const Tensor& q);

/// What slopes [H] add to the scores: less by the slope for each position between query and key. [1, H, T, S]
Tensor slope_bias(const Tensor& slopes, Extent queries, Extent keys);

/// More channels of q and k, whose product makes a causal query's scores fall with the distance, but for what is the same for all keys
/// of a query: slope (j - (S - 1)). So no device stores anything of the size of the scores. A type narrower than f32 holds neither large
/// positions nor slopes, so that both have two channels. The slopes are of `exact_type`.
struct SlopeChannels {
  Tensor q, k;
};
SlopeChannels slope_channels(const Tensor& q, const Tensor& k, const Tensor& slopes, double scale);

/// The logits of sinks [H] as the op with kernels takes them. With slopes by channels, they get what the scores of a query lack.
Tensor sinks_of(const Tensor& q, const Tensor& sinks, const Tensor& slopes, const Tensor& key_spans, Extent keys);

}  // namespace weft::graph
