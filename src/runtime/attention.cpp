// The public functions of attention that may drop shares, and then draw a seed.
#include "graph/attention.hpp"

#include "runtime/random_key.hpp"
#include "weft/ops.hpp"
#include "weft/ops/attention.hpp"
#include "weft/ops/networks.hpp"

namespace weft {
namespace {

// A probability of 0 draws nothing. One outside of [0, 1] is refused by the op.
Tensor seed_for(double dropout) { return dropout > 0 && dropout <= 1 ? runtime::next_random_key() : Tensor(); }

}  // namespace

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options, Where where) {
  return graph::call(graph::public_attention_row(),
                     {q, k, v, options.mask, options.lengths, options.key_lengths, seed_for(options.dropout),
                      options.sinks, options.slopes},
                     graph::PublicAttentionAttributes{options.causal, options.scale, options.window, options.dropout},
                     where);
}

Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                                    const MaskedAttentionOptions& options, Where where) {
  return graph::call(graph::masked_attention_row(), {q, k, v, mask, seed_for(options.dropout)},
                     graph::MaskedAttentionAttributes{options.causal, options.scale, options.dropout}, where);
}

}  // namespace weft
