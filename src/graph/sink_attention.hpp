// Attention whose softmax has one more logit for each query, of a key that nobody sees and that has no value.
#pragma once

#include "graph/attention.hpp"

namespace weft::graph {

/// (q, k, v, mask, key_spans, seed, query_spans, sinks) -> o, logsumexp, as attention_row(); the logsumexp has the sinks in it.
/// Sinks are [B, H, 1] or [B, H, T]. Computed as the op with kernels, whose result shrinks; the gradient's kernels are the same too.
const OpRow& sink_attention_row();

}  // namespace weft::graph
