// The kernels of IntegerKernels, made of the tile of gemm_tile.inc.hpp over a vector type of words.
#pragma once

#include "backend/cpu/gemm_tile.inc.hpp"
#include "backend/cpu/integer_kernels.hpp"

namespace weft::cpu {
namespace {

template <class V, int kRows>
constexpr void fill_integers(IntegerKernels& kernels) {
  if constexpr (kRows > 0) {
    constexpr bool kWhole = !V::kMasksAreFree;
    kernels.tiles[0][kRows - 1][0] = tile<V, kRows, 1, false, false>;
    kernels.tiles[0][kRows - 1][1] = tile<V, kRows, 2, false, false>;
    kernels.tiles[1][kRows - 1][0] = tile<V, kRows, 1, false, kWhole>;
    kernels.tiles[1][kRows - 1][1] = tile<V, kRows, 2, false, kWhole>;
    fill_integers<V, kRows - 1>(kernels);
  }
}

template <class V, int kRows, int kEach>
constexpr IntegerKernels integer_kernels(const IntegerBytes* bytes, bool a_is_signed = false) {
  static_assert(kRows <= kIntegerRowsMax);
  IntegerKernels kernels{.rows = kRows,
                         .lanes = V::kLanes,
                         .each = kEach,
                         .a_is_signed = a_is_signed,
                         .tiles = {},
                         .setup = {},
                         .block = 1,
                         .bytes = bytes};
  fill_integers<V, kRows>(kernels);
  return kernels;
}

}  // namespace
}  // namespace weft::cpu
