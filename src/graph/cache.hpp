// Ops of generation: caches, attention over them, the draw of a token.
#pragma once

#include <string_view>

#include "weft/inference.hpp"
#include "weft/shape.hpp"

namespace weft::graph {

struct OpRow;

std::string_view name_of(CacheType type);
/// The dtype of a cache, and the number of its elements in a row of `width`; 0 if the type has no such rows. f32 and f16: the
/// elements, for f16 an even number. q8: blocks of 32 elements as 36 i8, the four bytes of an f32 scale (largest magnitude /
/// 127, the low byte first) and then 32 signed bytes.
DType dtype_of_cache(CacheType type);
Extent row_elements(CacheType type, Extent width);

struct WriteRows {
  CacheType type = CacheType::f32;
};
struct CacheAttention {
  CacheType type = CacheType::f32;
  Extent kv_heads = 1;
  double scale = 1;
  Extent window = 0;    // 0: none
  double soft_cap = 0;  // 0: none
  Extent ring = 0;      // rows that the positions of a sequence use in turn; 0: each has its own
  bool exact = true;    // else a device may round queries and weights to f16, with a cache in f16
};

const OpRow& write_rows_row();
const OpRow& cache_attention_row();
const OpRow& sample_token_row();

}  // namespace weft::graph
