// The functions of an instruction set for products: kernels that keep a tile of C in registers, and packing of operands.
#pragma once

#include <cstdint>

#include "backend/cpu/configured_panels.hpp"
#include "backend/cpu/isa.hpp"
#include "backend/cpu/winograd_kernels.hpp"

namespace weft::cpu {

inline constexpr int kGemmRowsMax = 32;
inline constexpr int kGemmVectors = 2;
inline constexpr int kGemmAhead = 12;     // rows that a kernel prefetches ahead
inline constexpr int kGemmAheadOfC = 48;  // steps before the last when it begins to prefetch C

/// Neighbours along k: where those of A and of B begin, and their number.
struct GemmRun {
  std::int32_t a, b, count;
};
/// With at most so many rows to a tile, their places in A are free. Rows of larger tiles have one distance from each other,
/// because their addresses would not fit the registers.
inline constexpr int kGemmFreeRows = 8;

template <class T>
struct GemmKernels {
  /// Makes C[rows, columns] = A B, or += with `accumulate`, over k in [0, depth). B(k, j) is at b[k * b_stride + j]. `last` (1
  /// to lanes) columns of the last vector exist; no other element of B or C is touched.
  using Tile = void (*)(std::int64_t depth, const T* a, std::int64_t a_stride, const T* b, std::int64_t b_stride, T* c,
                        std::int64_t c_stride, int last, bool accumulate);

  int rows;   // most rows of a tile
  int lanes;  // columns of a vector; a tile has one or kGemmVectors of them
  /// [whole][rows - 1][vectors - 1]; `whole` says that last == lanes.
  Tile by_row[2][kGemmRowsMax][kGemmVectors];    // A(i, k) at a[i * a_stride + k]
  Tile by_depth[2][kGemmRowsMax][kGemmVectors];  // A(i, k) at a[k * a_stride + i], unless A is in blocks

  /// Makes C[rows, kGemmVectors * lanes] = A B, or += with `accumulate`, over the elements of all runs: element k of a run is
  /// at a[run.a + rows[i] + k * a_step] for row i, and the row of B at b + run.b + k * kGemmVectors * lanes. Only for float.
  using RunsTile = void (*)(std::int64_t count, const GemmRun* runs, const T* a, const std::int32_t* rows,
                            std::int64_t a_step, const T* b, T* c, std::int64_t c_stride, bool accumulate);
  RunsTile by_runs[kGemmRowsMax];  // [rows - 1]
  /// to[c * to_stride + r] = from[r * stride + c] for r < rows <= lanes, c < columns. As many rows as a vector has lanes can be
  /// read, and whole vectors of each. Only for float.
  void (*store_transposed)(int rows, int columns, const T* from, std::int64_t stride, T* to, std::int64_t to_stride);

  WinogradKernels<T> winograd;  // only for float

  /// to[k * to_stride + j] = from[k * stride + j] for k < depth, j < count <= to_stride, a multiple of `lanes`. Columns from
  /// count to to_stride are finite only if `from` is, and are never used.
  void (*pack)(std::int64_t depth, int count, const T* from, std::int64_t stride, T* to, int to_stride);
  /// to[k * to_stride + j] = from[j * stride + k], the same otherwise.
  void (*pack_transposed)(std::int64_t depth, int count, const T* from, std::int64_t stride, T* to, int to_stride);

  /// Set if an element is a pair of bf16, neighbours along k, in the memory of a float; `depth` above counts pairs then, and C is
  /// of floats. Makes pairs of neighbouring rows: to[p * to_stride + j] has from[2 * p * stride + j] in its low bits and
  /// from[(2 * p + 1) * stride + j], or 0 past the last of `rows`, in its high ones. Otherwise like `pack`.
  void (*interleave)(std::int64_t pairs, std::int64_t rows, int count, const std::uint16_t* from, std::int64_t stride,
                     T* to, std::int64_t to_stride);

  /// Set for kernels on tiles. They take depth_step elements of k at once, a packed A is in blocks of so many, and by_depth reads
  /// A(i, k) at a[k / depth_step * a_stride + i * depth_step + k % depth_step]: a block is one piece of memory, as rows far apart
  /// would fall on few sets of the cache.
  TileSetup setup;
  std::int64_t depth_step;
  /// Makes pairs of neighbouring rows like `interleave`, for up to depth_step pairs and lanes columns, as a part of a block:
  /// to[j * depth_step + p], with zeros behind the last pair.
  void (*interleave_block)(std::int64_t pairs, std::int64_t rows, int count, const std::uint16_t* from,
                           std::int64_t stride, T* to);

  bool reads_blocks() const { return setup.configure != nullptr; }
};

namespace baseline {
extern const GemmKernels<float> kGemmF32;
extern const GemmKernels<double> kGemmF64;
}  // namespace baseline
namespace neon {
extern const GemmKernels<float> kGemmBf16;
}
namespace avx2 {
extern const GemmKernels<float> kGemmF32;
extern const GemmKernels<double> kGemmF64;
}  // namespace avx2
namespace avx512 {
extern const GemmKernels<float> kGemmF32;
extern const GemmKernels<double> kGemmF64;
extern const GemmKernels<float> kGemmBf16;
const GemmKernels<float>& gemm_amx();
}  // namespace avx512

}  // namespace weft::cpu
