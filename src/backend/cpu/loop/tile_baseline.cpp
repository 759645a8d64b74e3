// Tile kernels for any processor of the architecture.
#include "backend/cpu/loop/tile_kernels.inc.hpp"
#include "backend/cpu/loop/tile_tables.hpp"

namespace weft::cpu {

const TileTable& tile_table_baseline() {
  static const TileTable table = make_tile_table();
  return table;
}

}  // namespace weft::cpu
