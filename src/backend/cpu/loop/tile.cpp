// Choice of the tile kernels.
#include "backend/cpu/loop/tile.hpp"

#include "backend/cpu/loop/tile_tables.hpp"

namespace weft::cpu {

const TileTable& tile_table() { return tile_table(isa()); }

const TileTable& tile_table(Isa isa) {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::amx:
    case Isa::avx512: return tile_table_avx512();
    case Isa::avx2: return tile_table_avx2();
#else
    case Isa::amx:
    case Isa::avx512:
    case Isa::avx2:
#endif
    case Isa::baseline: break;
  }
  return tile_table_baseline();
}

template <>
const AttentionParts<float>& attention_parts<float>() {
  return tile_table().attention_f32;
}
template <>
const AttentionParts<double>& attention_parts<double>() {
  return tile_table().attention_f64;
}

}  // namespace weft::cpu
