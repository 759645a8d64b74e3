// The functions of an instruction set for integer_gemm.cpp.
#pragma once

#include <cstdint>

namespace weft::cpu {

inline constexpr int kIntegerRowsMax = 14;
inline constexpr int kIntegerVectors = 2;

/// Neighbours along k share a word of 32 bits: two integers of 16 bits, or four bytes, which are unsigned in A and signed in B.
/// Sums are of 32 bits and wrap around; no instruction here saturates.
struct IntegerKernels {
  /// Makes C[rows, columns] = A B, or += with `accumulate`, over `depth` words: word k of row i is at a[k * a_stride + i], that
  /// of column j at b[k * b_stride + j]. `last` (1 to lanes) columns of the last vector exist in C; all are in B.
  using Tile = void (*)(std::int64_t depth, const std::int32_t* a, std::int64_t a_stride, const std::int32_t* b,
                        std::int64_t b_stride, std::int32_t* c, std::int64_t c_stride, int last, bool accumulate);

  int rows;                                         // most rows of a tile
  int lanes;                                        // columns of a vector; a tile has one or kIntegerVectors of them
  int each;                                         // integers in a word: 2 or 4
  Tile tiles[2][kIntegerRowsMax][kIntegerVectors];  // [last == lanes][rows - 1][vectors - 1]
};

namespace baseline {
extern const IntegerKernels kIntegers;
}
namespace avx2 {
extern const IntegerKernels kIntegers;
}
namespace avx512 {
extern const IntegerKernels kIntegers;  // for AVX-512 VNNI
}

}  // namespace weft::cpu
