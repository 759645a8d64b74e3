// The functions of an instruction set for integer_gemm.cpp.
#pragma once

#include <cstdint>

#include "backend/cpu/configured_panels.hpp"

namespace weft::cpu {

inline constexpr int kIntegerRowsMax = 32;
inline constexpr int kIntegerVectors = 2;

/// What packing does to bytes on their way into words.
struct IntegerBytes {
  /// to[i] gets byte i of each of four rows, the first in its low bits, each with `flip` applied by exclusive or. sums[i] += these
  /// four, as signed bytes or as unsigned ones.
  void (*interleave)(const std::uint8_t* const* rows, std::int64_t count, std::uint8_t flip, bool is_signed,
                     std::int32_t* to, std::int32_t* sums);
  /// Copies a line of `count` bytes with `flip` applied, and zeros behind it, in whole pieces of kIntegerPiece bytes that begin
  /// `step` bytes apart. Returns the sum of the bytes.
  std::int32_t (*copy)(const std::uint8_t* from, std::int64_t count, std::uint8_t flip, bool is_signed,
                       std::uint8_t* to, std::int64_t step);
};
inline constexpr std::int64_t kIntegerPiece = 64;

/// Neighbours along k share a word of 32 bits: two integers of 16 bits, or four bytes, which are signed in B and in A as the kernels
/// say.
/// Sums are of 32 bits and wrap around; no instruction here saturates.
struct IntegerKernels {
  /// Makes C[rows, columns] = A B, or += with `accumulate`, over `depth` words: word k of row i is at a[k * a_stride + i], that
  /// of column j at b[k * b_stride + j]. `last` (1 to lanes) columns of the last vector exist in C; all are in B.
  using Tile = void (*)(std::int64_t depth, const std::int32_t* a, std::int64_t a_stride, const std::int32_t* b,
                        std::int64_t b_stride, std::int32_t* c, std::int64_t c_stride, int last, bool accumulate);

  int rows;                                         // most rows of a tile
  int lanes;                                        // columns of a vector; a tile has one or kIntegerVectors of them
  int each;                                         // integers in a word: 2 or 4
  bool a_is_signed;                                 // whether bytes of A are
  Tile tiles[2][kIntegerRowsMax][kIntegerVectors];  // [last == lanes][rows - 1][vectors - 1]

  /// Set for kernels on tiles. Then the depth is a multiple of `block`, and word k of row i is at
  /// a[k / block * a_stride + i * block + k % block].
  TileSetup setup;
  std::int64_t block;  // 1 if words of a row are not neighbours

  const IntegerBytes* bytes;  // used if a word has four
};

namespace baseline {
extern const IntegerKernels kIntegers;
extern const IntegerBytes kIntegerBytes;
}  // namespace baseline
namespace neon {
extern const IntegerKernels kIntegers;  // for FEAT_DotProd
}
namespace avx2 {
extern const IntegerKernels kIntegers;
}
namespace avx512 {
extern const IntegerKernels kIntegers;  // for AVX-512 VNNI
extern const IntegerBytes kIntegerBytes;
const IntegerKernels& integers_amx();
}  // namespace avx512

}  // namespace weft::cpu
