// Tile kernels for AVX2 with FMA.
#if defined(__x86_64__)
#include "backend/cpu/loop/tile_kernels.inc.hpp"
#include "backend/cpu/loop/tile_tables.hpp"

namespace weft::cpu {

const TileTable& tile_table_avx2() {
  static const TileTable table = make_tile_table();
  return table;
}

}  // namespace weft::cpu
#endif
