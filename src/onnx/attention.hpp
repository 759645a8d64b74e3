// Attention as ONNX's operators and those of ONNX Runtime need it: masks of both kinds, a soft cap, and the scores themselves.
#pragma once

#include "onnx/apply.hpp"

namespace weft::onnx {

struct AttentionParts {
  Tensor q, k, v;       // [N, H, T, D], [N, Hkv, S, D], [N, Hkv, S, E]
  Tensor allowed;       // bools against [N, H, T, S]: whether the query sees the key; undefined: it does
  Tensor bias;          // floats against [N, H, T, S], added to the scaled scores
  Tensor sinks;         // [H]: a logit of each head that takes weight and has no value
  bool causal = false;  // query i sees keys j <= i + offset
  Extent offset = 0;    // keys before the first query
  double scale = 0;     // 0: 1/sqrt(D)
  double soft_cap = 0;  // c: scores are c tanh(s / c)
  bool wants_scores = false;
};
struct AttentionResult {
  Tensor out;                           // [N, H, T, E]
  Tensor raw, capped, biased, weights;  // [N, H, T, S], if the scores are wanted
};
AttentionResult attend(const Application& a, const AttentionParts& parts);

/// [N, T, H D] -> [N, H, T, D], and back.
Tensor heads_apart(const Application& a, const Tensor& x, Extent heads);
Tensor heads_together(const Tensor& x);
/// Positions of queries less those of keys, [T, S], where `before` keys come before the first query.
Tensor distances(const Application& a, Extent queries, Extent keys, Extent before);
/// The first `turned` channels of x [N, H, T, D] rotated by pairs: halves, or neighbours. cos and sin [N or 1, T, turned / 2].
/// Source    arXiv:2104.09864
Tensor rotated(const Application& a, const Tensor& x, const Tensor& cos, const Tensor& sin, bool neighbours);

}  // namespace weft::onnx
