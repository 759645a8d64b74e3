// Ops of generation: caches, attention over them, products with packed weights, the draw of a token.
#pragma once

#include <string_view>

#include "weft/inference.hpp"
#include "weft/shape.hpp"

namespace weft::graph {

struct OpRow;

std::string_view name_of(CacheType type);
/// 32-bit words of a row of `width` elements; 0 where the type has no such rows. f32: the elements. f16: two in a u32, the
/// first in its low half. q8: blocks of 32 elements as nine u32, the f32 scale (largest magnitude / 127) and then 32
/// signed bytes.
Extent row_words(CacheType type, Extent width);

struct WriteRows {
  CacheType type = CacheType::f32;
};
struct CacheAttention {
  CacheType type = CacheType::f32;
  Extent kv_heads = 1;
  double scale = 1;
  Extent window = 0;    // 0: none
  double soft_cap = 0;  // 0: none
  Extent ring = 0;      // rows that the positions of a sequence share in turn; 0: each has its own
};
struct UnpackRows {
  Extent block_type = 0, n = 0, k = 0;
};
struct PackedMatmul {
  Extent block_type = 0, n = 0, k = 0;
  bool exact = false;
};

const OpRow& write_rows_row();
const OpRow& cache_attention_row();
const OpRow& sample_token_row();
const OpRow& unpack_rows_row();
const OpRow& packed_matmul_row();

}  // namespace weft::graph
