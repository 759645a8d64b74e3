// The kernels of IntegerKernels on tiles: A in blocks of 16 words of k, so that 16 rows of a block are a tile.
#pragma once

#include "backend/cpu/integer_kernels.hpp"
#include "backend/cpu/tile_block.inc.hpp"

namespace weft::cpu {
namespace {

template <class Tiles, int kRows, int kVectors>
void integer_tile(std::int64_t depth, const std::int32_t* a, std::int64_t a_stride, const std::int32_t* b,
                  std::int64_t b_stride, std::int32_t* c, std::int64_t c_stride, int last, bool accumulate) {
  if (last == kTileWords)
    return multiply_tiles<Tiles, kRows, kVectors>(depth, a, kTileWords, a_stride, b, b_stride, c, c_stride, accumulate);
  alignas(64) std::int32_t block[kRows][kVectors * kTileWords];
  multiply_tiles<Tiles, kRows, kVectors>(depth, a, kTileWords, a_stride, b, b_stride, block[0], kVectors * kTileWords,
                                         false);
  const int columns = (kVectors - 1) * kTileWords + last;
  for (int r = 0; r < kRows; ++r, c += c_stride)
    for (int j = 0; j < columns; ++j)
      c[j] = static_cast<std::int32_t>((accumulate ? static_cast<std::uint32_t>(c[j]) : 0u) +
                                       static_cast<std::uint32_t>(block[r][j]));
}

template <class Tiles, int kRows>
void fill_integer_tiles(IntegerKernels& kernels) {
  if constexpr (kRows > 0) {
    for (auto& tiles : kernels.tiles) {
      tiles[kRows - 1][0] = integer_tile<Tiles, kRows, 1>;
      tiles[kRows - 1][1] = integer_tile<Tiles, kRows, 2>;
    }
    fill_integer_tiles<Tiles, kRows - 1>(kernels);
  }
}

/// `Tiles` multiplies unsigned bytes of A by signed ones of B.
template <class Tiles>
IntegerKernels integer_tiles(const IntegerBytes* bytes) {
  IntegerKernels kernels{.rows = 2 * kTileRows,
                         .lanes = kTileWords,
                         .each = 4,
                         .tiles = {},
                         .setup = {configure_block<Tiles>, Tiles::release},
                         .block = kTileWords,
                         .bytes = bytes};
  fill_integer_tiles<Tiles, 2 * kTileRows>(kernels);
  return kernels;
}

}  // namespace
}  // namespace weft::cpu
