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

/// The words of A and B that a whole tile's step does not reach, with zeros up to a tile: rows of A are kTileWords apart, rows of B
/// kVectors times that.
template <class Word>
struct RestOfDepth {
  const Word *a = nullptr, *b = nullptr;  // null: nothing is left
};

/// From so many words on, rows of A and a strip of B do not both stay in the first cache.
inline constexpr std::int64_t kLongDepth = 128;

/// C = A B, or += with `accumulate`, over whole tiles of `depth` words, and over `rest`. One strip of B after another meets the
/// same rows of A, so these shall stay in the first cache, and B passes it by if both are long. Rows of A are a_row words apart and its
/// tiles a_step words; rows of B and of C are b_row and c_row words apart.
template <class Tiles, int kRows, int kVectors, class Word, class Sum>
inline void multiply_tiles(std::int64_t depth, const Word* a, std::int64_t a_row, std::int64_t a_step, const Word* b,
                           std::int64_t b_row, Sum* c, std::int64_t c_row, bool accumulate,
                           RestOfDepth<Word> rest = {}) {
  const auto place = [&](int half, int vector) { return c + half * kTileRows * c_row + vector * kTileWords; };
  each_tile<kRows, kVectors>([&]<int kHalf, int kVector>() {
    if (accumulate)
      Tiles::template load<2 * kHalf + kVector>(place(kHalf, kVector), 4 * c_row);
    else
      Tiles::template zero<2 * kHalf + kVector>();
  });
  const auto step = []<bool kOnce>(const Word* a, std::int64_t a_row, const Word* b, std::int64_t b_row) {
    const auto load_b = []<int kVector>(const Word* from, std::int64_t row_bytes) {
      if constexpr (kOnce)
        Tiles::template load_once<6 + kVector>(from, row_bytes);
      else
        Tiles::template load<6 + kVector>(from, row_bytes);
    };
    load_b.template operator()<0>(b, 4 * b_row);
    Tiles::template load<4>(a, 4 * a_row);
    if constexpr (kVectors > 1) load_b.template operator()<1>(b + kTileWords, 4 * b_row);
    if constexpr (kRows > kTileRows) Tiles::template load<5>(a + kTileRows * a_row, 4 * a_row);
    each_tile<kRows, kVectors>(
        []<int kHalf, int kVector>() { Tiles::template multiply<2 * kHalf + kVector, 4 + kHalf, 6 + kVector>(); });
  };
  const auto steps = [&]<bool kOnce>() {
    for (std::int64_t k = kTileWords; k <= depth; k += kTileWords, a += a_step, b += kTileWords * b_row)
      step.template operator()<kOnce>(a, a_row, b, b_row);
  };
  if (depth >= kLongDepth)
    steps.template operator()<true>();
  else
    steps.template operator()<false>();
  if (rest.a != nullptr) step.template operator()<false>(rest.a, kTileWords, rest.b, kVectors * kTileWords);
  each_tile<kRows, kVectors>(
      [&]<int kHalf, int kVector>() { Tiles::template store<2 * kHalf + kVector>(place(kHalf, kVector), 4 * c_row); });
}

}  // namespace
}  // namespace weft::cpu
