// The tables of the instruction sets that this program was built for.
#pragma once

#include "backend/cpu/loop/tile.hpp"

namespace weft::cpu {

const TileTable& tile_table_baseline();
#if defined(__x86_64__)
const TileTable& tile_table_avx2();
const TileTable& tile_table_avx512();
#endif

}  // namespace weft::cpu
