// Attention with masks, lengths of sequences and dropout.
#pragma once

#include "weft/tensor.hpp"

namespace weft {

struct AttentionOptions {
  bool causal = true;  ///< query i is at position p = i + (S - T), and sees keys j <= p
  double scale = 0;    ///< factor of the scores; 0: 1/sqrt(D)
  Extent window = 0;   ///< a query sees keys with |j - p| < window; 0: all
  /// Of bools: whether the query sees the key. Of floats: added to the scaled score; -1e30 and less hides the key.
  Tensor mask = {};
  /// i32 [B] or [B, n]: how many positions each of the n sequences has that follow each other in an entry of the batch.
  /// Queries see keys of their own sequence only. Positions behind the last sequence see nothing, and nothing sees them.
  /// Lengths below 0 count as 0.
  Tensor lengths = {};
  /// The same for the keys, if they differ. Without `lengths` all queries are one sequence. With it, in each sequence the last
  /// query is at the position of the last key.
  Tensor key_lengths = {};
  /// [H], floats: a logit of each head that takes weight in the softmax of every query and has no value.
  Tensor sinks = {};
  /// [H], floats: what a score of a head loses for each position between query and key (ALiBi).
  Tensor slopes = {};
  double dropout = 0;  ///< probability that a share becomes 0; the others are divided by 1 - dropout
};

/// softmax(scale q k^T + mask - slopes |i - j|) v with dropped shares, where exp(sinks) is one more part of the sum. No device
/// stores the scores, forward or backward, except for the gradient of the mask; without `causal`, slopes are a mask. A query that
/// sees no key gets 0, and so do its gradients; PyTorch gives NaN before 2.5, and 0 since.
///
/// Shapes    q [B, H, T, D]; k, v [B, Hkv, S, D] where Hkv divides H: neighbouring query heads share a key head; mask broadcasts
///           against [B, H, T, S] -> [B, H, T, D]
/// Dropout   is rounded to parts of 256, at most 255. Which shares are dropped is the same on every device: byte
///           2 (i mod 2) + j mod 2 of Philox word ((b H + h) ceil(T/2) + i/2) ceil(S/2) + j/2 of a draw of the session's random
///           state (`manual_seed`).
/// Errors    ShapeError, DTypeError, DeviceError; UsageError for a negative window, a dropout outside of [0, 1], or slopes without
///           `causal` beside `key_lengths`
/// Gradient  to q, k, v, sinks, slopes and a mask of floats
/// Accuracy  that of `attention`; a score's error grows by |mask| 2^-24, and with slopes by slope S 2^-24
/// Source    sinks: gpt-oss, arXiv:2508.10925; slopes: Press et al. 2021, arXiv:2108.12409
[[nodiscard]] Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
                               Where where = Where::current());

}  // namespace weft
