// Attention over whole sequences, without a cache: what training needs, because a cache has no gradient.
#pragma once

#include "weft/tensor.hpp"

namespace weft::llm {

/// Rows of tokens, each with texts one behind another. Tokens of a pass are [rows * T, ...], row by row.
struct WholeRows {
  Extent rows = 0;
  Tensor lengths;  ///< i32 [rows, n]: tokens of each text, 0 behind the last
  Tensor texts;    ///< i32 [rows * T]: the number of the text in its row; padding has one of its own
};

struct WholeAttention {
  Extent heads = 1, kv_heads = 1;
  double scale = 1;
  Extent window = 0;    ///< positions that a token sees, itself included; 0: all
  double soft_cap = 0;  ///< of scores; 0: none
  Tensor sinks;         ///< f32 [heads], or undefined
  Tensor before_chunk;  ///< i32 [N], the first position of the chunk of each token, which sees that alone; or undefined
  Tensor slopes;        ///< f32 [heads], what scores lose for each position between query and key; or undefined
};

/// q [N, heads * D], k and v [N, kv_heads * D] -> [N, heads * D]. Tokens see those of their own text before them, and themselves.
/// It runs on the kernels of `attention`; with a cap, chunks or wide heads it is made of products and a softmax.
Tensor attend_whole(const Tensor& q, const Tensor& k, const Tensor& v, const WholeAttention& attention,
                    const WholeRows& rows);

}  // namespace weft::llm
