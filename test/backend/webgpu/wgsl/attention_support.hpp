// Attention for tests: tensors of any length, forward and backward.
#pragma once

#include <limits>
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

/// What a case may have beside: values that are added or bools, the same for some axes; spans; shares that are dropped.
struct AttentionExtras {
  enum class Mask { none, added, bools } mask = Mask::none;
  bool of_heads = true, of_queries = true;  // else the mask is the same for all
  bool spans = false;
  Extent dropped = 0;
};

struct Attention {
  kernel::AttentionKernel forward, backward;
  std::vector<TestBuffer> buffers;
};

inline Attention attention(std::mt19937& random, const AttentionCase& c, DType type = DType::f32,
                           const AttentionExtras& extras = {}) {
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
       .shift = c.keys - c.queries,
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
  if (extras.mask != AttentionExtras::Mask::none) {
    const Extent heads = extras.of_heads ? c.heads : 1, rows = extras.of_queries ? c.queries : 1;
    const DType of = extras.mask == AttentionExtras::Mask::bools ? DType::boolean : DType::f32;
    const Extent count = c.batch * heads * rows * c.keys;
    f.mask = {{buffer(count, of), of, 0, count},
              heads * rows * c.keys,
              extras.of_heads ? rows * c.keys : 0,
              extras.of_queries ? c.keys : 0,
              1};
    // A query that sees nothing, and values that hide.
    reference::Values& values = a.buffers.back().values;
    for (Extent i = 0; i < c.keys && i < count; ++i) values[static_cast<std::size_t>(i)] = of == DType::f32 ? -3e38 : 0;
    if (of == DType::f32)
      for (std::size_t i = 5; i < values.size(); i += 11) values[i] = -std::numeric_limits<double>::infinity();
  }
  if (extras.spans) {  // three sequences, of different lengths on both sides; the last keys belong to none
    const auto spans = [&](Extent rows, Extent others, bool of_queries) {
      f.key_spans = {buffer(c.batch * rows * 2, DType::i32), DType::i32, 0, c.batch * rows * 2};
      reference::Values& values = a.buffers.back().values;
      const auto edge = [&](Extent n, Extent b, Extent part) { return part * (of_queries ? n : n - 3) / (3 + b % 2); };
      const auto other = [&](Extent n, Extent b, Extent part) { return part * (of_queries ? n - 3 : n) / (3 + b % 2); };
      for (Extent b = 0; b < c.batch; ++b)
        for (Extent i = 0; i < rows; ++i) {
          Extent part = 0;
          while (part < 3 && i >= edge(rows, b, part + 1)) ++part;
          const std::size_t at = static_cast<std::size_t>((b * rows + i) * 2);
          values[at] = part < 3 ? static_cast<double>(other(others, b, part)) : 0;
          values[at + 1] = part < 3 ? static_cast<double>(other(others, b, part + 1)) : 0;
          if (of_queries && i == 1) values[at] = values[at + 1] = 0;  // sees no key, between queries that do
        }
      return *f.key_spans;
    };
    const kernel::Operand queries = spans(c.keys, c.queries, false);
    f.key_spans = spans(c.queries, c.keys, true);
    f.query_spans = queries;
  }
  if (extras.dropped > 0) {
    f.dropped = extras.dropped;
    f.seed = {buffer(2, DType::u32), DType::u32, 0, 2};
  }
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
