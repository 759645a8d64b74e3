// Attention for tests: tensors of any length, forward and backward.
#pragma once

#include <random>
#include <vector>

#include "backend/webgpu/render_support.hpp"

#if WEFT_HAS_WEBGPU
namespace weft::webgpu {

/// Sizes and mask of an attention.
struct AttentionCase {
  Extent batch, heads, queries, keys, width;
  bool causal;
  Extent kv_heads = 0, window = 0;  // 0: as many as heads; none
  bool packed = false;  // q, k and v are in one matrix [batch, row, 3, head, channel], o as [batch, row, head, channel]
};

struct Attention {
  kernel::AttentionKernel forward, backward;
  std::vector<TestBuffer> buffers;
};

inline Attention attention(std::mt19937& random, const AttentionCase& c, DType type = DType::f32) {
  using kernel::AttentionKernel;
  Attention a;
  AttentionKernel& f = a.forward;
  f = {.name = "attention",
       .batch = c.batch,
       .heads = c.heads,
       .queries = c.queries,
       .keys = c.keys,
       .width = c.width,
       .kv_heads = c.kv_heads > 0 ? c.kv_heads : c.heads,
       .scale = 0.37,
       .causal = c.causal,
       .window = c.window};
  const auto buffer = [&](Extent count, DType of) {
    a.buffers.push_back(random_buffer(random, of, count));
    return static_cast<int>(a.buffers.size()) - 1;
  };
  const auto tensor = [&](Extent heads, Extent rows) {
    const Extent count = c.batch * heads * rows * c.width;
    return c.packed ? AttentionKernel::Tensor{{buffer(count, type), type, 0, count},
                                              heads * rows * c.width,
                                              c.width,
                                              heads * c.width}
                    : AttentionKernel::Tensor{
                          {buffer(count, type), type, 0, count}, heads * rows * c.width, rows * c.width, c.width};
  };
  if (c.packed) {
    const Extent row = 3 * c.heads * c.width, count = c.batch * c.queries * row;
    const int all = buffer(count, type);
    Extent offset = 0;
    for (AttentionKernel::Tensor* t : {&f.q, &f.k, &f.v}) {
      *t = {{all, type, offset, count - offset}, c.queries * row, c.width, row};
      offset += c.heads * c.width;
    }
  } else {
    f.q = tensor(f.heads, c.queries);
    f.k = tensor(f.kv_heads, c.keys);
    f.v = tensor(f.kv_heads, c.keys);
  }
  f.o = tensor(f.heads, c.queries);
  f.logsumexp = {buffer(c.batch * c.heads * c.queries, DType::f32), DType::f32, 0, c.batch * c.heads * c.queries};
  a.backward = f;
  a.backward.backward = true;
  a.backward.d_o = tensor(f.heads, c.queries);
  a.backward.d_q = tensor(f.heads, c.queries);
  a.backward.d_k = tensor(f.kv_heads, c.keys);
  a.backward.d_v = tensor(f.kv_heads, c.keys);
  return a;
}

}  // namespace weft::webgpu
#endif
