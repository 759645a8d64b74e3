// A block of C of up to 32 rows and columns, made of up to four tiles of 32-bit sums that share two tiles of A and two of B. What
// the tiles hold, and so the instruction that multiplies them, is a parameter, so that a test can play it anywhere.
#pragma once

#include "backend/cpu/amx_tiles.inc.hpp"

namespace weft::cpu {
namespace {

/// Registers 0 to 3 hold sums of the upper and of the lower rows, 4 and 5 these rows of A, 6 and 7 rows of B.
template <class Tiles>
void configure_block(int rows) {
  TileConfiguration c;
  const int upper = rows < kTileRows ? rows : kTileRows;
  for (int i = 0; i < 8; ++i) {
    const bool is_lower = i == 2 || i == 3 || i == 5;
    const int height = i >= 6 ? kTileWords : is_lower ? rows - upper : upper;
    c.rows[i] = static_cast<std::uint8_t>(height);
    c.row_bytes[i] = height > 0 ? 4 * kTileWords : 0;
  }
  Tiles::configure(c);
}

/// Calls use(half, vector) for the tiles of sums.
template <int kRows, int kVectors, class Use>
inline void each_tile(Use use) {
  use.template operator()<0, 0>();
  if constexpr (kVectors > 1) use.template operator()<0, 1>();
  if constexpr (kRows > kTileRows) use.template operator()<1, 0>();
  if constexpr (kRows > kTileRows && kVectors > 1) use.template operator()<1, 1>();
}

/// C = A B, or += with `accumulate`, over whole tiles of `depth` words; the words left over are the caller's. Rows of A are a_row
/// words apart and its tiles a_step words; rows of B and of C are b_row and c_row words apart.
template <class Tiles, int kRows, int kVectors, class Word, class Sum>
inline void multiply_tiles(std::int64_t depth, const Word* a, std::int64_t a_row, std::int64_t a_step, const Word* b,
                           std::int64_t b_row, Sum* c, std::int64_t c_row, bool accumulate) {
  const auto place = [&](int half, int vector) { return c + half * kTileRows * c_row + vector * kTileWords; };
  each_tile<kRows, kVectors>([&]<int kHalf, int kVector>() {
    if (accumulate)
      Tiles::template load<2 * kHalf + kVector>(place(kHalf, kVector), 4 * c_row);
    else
      Tiles::template zero<2 * kHalf + kVector>();
  });
  for (std::int64_t k = kTileWords; k <= depth; k += kTileWords, a += a_step, b += kTileWords * b_row) {
    Tiles::template load<6>(b, 4 * b_row);
    Tiles::template load<4>(a, 4 * a_row);
    if constexpr (kVectors > 1) Tiles::template load<7>(b + kTileWords, 4 * b_row);
    if constexpr (kRows > kTileRows) Tiles::template load<5>(a + kTileRows * a_row, 4 * a_row);
    each_tile<kRows, kVectors>(
        []<int kHalf, int kVector>() { Tiles::template multiply<2 * kHalf + kVector, 4 + kHalf, 6 + kVector>(); });
  }
  each_tile<kRows, kVectors>(
      [&]<int kHalf, int kVector>() { Tiles::template store<2 * kHalf + kVector>(place(kHalf, kVector), 4 * c_row); });
}

}  // namespace
}  // namespace weft::cpu
