// The kernels of GemmKernels, written once over a vector type and compiled once per instruction set. Everything here has
// internal linkage and uses no inline function of the standard library: the linker must not keep a copy that was compiled for a
// newer processor.
#pragma once

#include <cstdint>

#include "backend/cpu/gemm_kernels.hpp"
#include "backend/cpu/winograd_tile.inc.hpp"

namespace weft::cpu {
namespace {

/// Whether V::multiply_add_lane(x, i, y, z) is x[i] * y + z in one instruction.
template <class V>
constexpr bool kTakesLanes = requires(typename V::Register x) {
  V::multiply_add_lane(x, 0, x, x);
};

template <class V, int kRows, int kVectors, bool kByRow, bool kWhole>
void tile(std::int64_t depth, const typename V::Element* a, std::int64_t a_stride, const typename V::Element* b,
          std::int64_t b_stride, typename V::Element* c, std::int64_t c_stride, int last, bool accumulate) {
  using T = typename V::Element;
  using Register = typename V::Register;
  static_assert(kRows <= 14);
  Register sum[kRows][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sum[r][v] = V::zero();

  const auto mask = V::mask(kWhole ? V::kLanes : last);
  const auto step = [&]() __attribute__((always_inline)) {
    Register right[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v)
      right[v] = kWhole || v + 1 < kVectors ? V::load(b + v * V::kLanes) : V::load_first(b + v * V::kLanes, mask);
    // Rows of a transposed A are neighbours: where instructions take a lane of a vector, one load serves as many.
    constexpr int kByLanes = !kByRow && kTakesLanes<V> ? kRows / V::kLanes * V::kLanes : 0;
#pragma GCC unroll 16
    for (int r = 0; r < kByLanes; r += V::kLanes) {
      const Register left = V::load(a + r);
#pragma GCC unroll 4
      for (int i = 0; i < V::kLanes; ++i)
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v)
          if constexpr (kByLanes > 0) sum[r + i][v] = V::multiply_add_lane(left, i, right[v], sum[r + i][v]);
    }
#pragma GCC unroll 16
    for (int r = kByLanes; r < kRows; ++r) {
      const Register left = V::broadcast(kByRow ? a + r * a_stride : a + r);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[r][v] = V::multiply_add(left, right[v], sum[r][v]);
    }
    // Rows of a transposed A are far apart, perhaps each on another page, where the hardware does not prefetch.
    if constexpr (!kByRow) __builtin_prefetch(a + kGemmAhead * a_stride + kRows - 1);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) __builtin_prefetch(b + kGemmAhead * b_stride + v * V::kLanes);
    b += b_stride;
    a += kByRow ? 1 : a_stride;
  };

  // C is needed only after the loop. Its lines are prefetched shortly before, because B would push them out of L1, and few at a
  // time, because many at once would delay the loads of A and B.
  std::int64_t k = 0;
  for (const std::int64_t end = accumulate ? depth - kGemmAheadOfC : depth; k < end; ++k) step();
  const T* wanted = c;
  for (int r = 0; r < kRows && k < depth; ++r, ++k, wanted += c_stride) {
    __builtin_prefetch(wanted);
    __builtin_prefetch(wanted + (kVectors - 1) * V::kLanes + last - 1);
    step();
  }
  for (; k < depth; ++k) step();

  // All loads before all stores: a load that follows a store at a distance of a multiple of 4096 bytes waits for it.
  if (accumulate) {
    const T* from = c;
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r, from += c_stride)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v)
        sum[r][v] = V::add(
            kWhole || v + 1 < kVectors ? V::load(from + v * V::kLanes) : V::load_first(from + v * V::kLanes, mask),
            sum[r][v]);
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r, c += c_stride) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      if (kWhole || v + 1 < kVectors) {
        V::store(c + v * V::kLanes, sum[r][v]);
      } else {
        V::store_first(c + v * V::kLanes, sum[r][v], mask);
      }
    }
  }
}

template <class V, int kRows>
void runs_tile(std::int64_t count, const GemmRun* runs, const typename V::Element* a, const std::int32_t* rows,
               std::int64_t a_step, const typename V::Element* b, typename V::Element* c, std::int64_t c_stride,
               bool accumulate) {
  using T = typename V::Element;
  constexpr int kWidth = kGemmVectors * V::kLanes;
  constexpr bool kFree = kRows <= kGemmFreeRows;
  typename V::Register sum[kRows][kGemmVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kGemmVectors; ++v)
      sum[r][v] = accumulate ? V::load(c + r * c_stride + v * V::kLanes) : V::zero();
  const std::int64_t a_row = kFree ? 0 : rows[1] - rows[0];
  for (const GemmRun* const end = runs + count; runs != end; ++runs) {
    const T* left_at[kFree ? kRows : 1];
#pragma GCC unroll 16
    for (int r = 0; r < (kFree ? kRows : 1); ++r) {
      left_at[r] = a + runs->a + rows[r];
      asm("" : "+r"(left_at[r]));  // else the compiler takes it apart again, and adds the parts in every step
    }
    const T* right_at = b + runs->b;
    std::int64_t at = 0;
    for (const T* const last = right_at + runs->count * kWidth; right_at != last; right_at += kWidth, at += a_step) {
      typename V::Register right[kGemmVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kGemmVectors; ++v) {
        right[v] = V::load(right_at + v * V::kLanes);
        __builtin_prefetch(right_at + kGemmAhead * kWidth + v * V::kLanes);
      }
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const typename V::Register left =
            V::broadcast(kFree ? left_at[kFree ? r : 0] + at : left_at[0] + at + r * a_row);
#pragma GCC unroll 4
        for (int v = 0; v < kGemmVectors; ++v) sum[r][v] = V::multiply_add(left, right[v], sum[r][v]);
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kGemmVectors; ++v) V::store(c + r * c_stride + v * V::kLanes, sum[r][v]);
}

template <class V>
void pack(std::int64_t depth, int count, const typename V::Element* from, std::int64_t stride, typename V::Element* to,
          int to_stride) {
  const int whole = count / V::kLanes * V::kLanes;
  const auto mask = V::mask(count - whole);
  for (std::int64_t k = 0; k < depth; ++k, from += stride, to += to_stride) {
    // Each row may be on another page, where the processor does not prefetch.
    const std::int64_t ahead = kGemmAhead * stride;
    __builtin_prefetch(from + ahead + count - 1);
    for (int j = 0; j < whole; j += V::kLanes) {
      __builtin_prefetch(from + ahead + j);
      V::store(to + j, V::load(from + j));
    }
    if (whole < count) V::store(to + whole, V::load_first(from + whole, mask));
  }
}

/// Transposes a square block in place: `rows` holds one vector for each lane of a vector.
template <class V>
__attribute__((always_inline)) inline void transpose(typename V::Register* rows) {
  constexpr int kGroup = 16 / sizeof(typename V::Element);  // in 16 bytes, within which vectors transpose most cheaply
#pragma GCC unroll 16
  for (int r = 0; r < V::kLanes; r += kGroup) V::transpose_in_groups(rows + r);
#pragma GCC unroll 4
  for (int r = 0; r < kGroup; ++r) V::transpose_groups(rows + r);
}

template <class V>
void store_transposed(int rows, int columns, const typename V::Element* from, std::int64_t stride,
                      typename V::Element* to, std::int64_t to_stride) {
  const auto mask = V::mask(rows);
  for (int j = 0; j < columns; j += V::kLanes) {
    typename V::Register block[V::kLanes];
#pragma GCC unroll 16
    for (int r = 0; r < V::kLanes; ++r) block[r] = V::load(from + r * stride + j);
    transpose<V>(block);
#pragma GCC unroll 16
    for (int c = 0; c < V::kLanes; ++c, to += to_stride)
      if (j + c < columns) V::store_first(to, block[c], mask);
  }
}

/// Whole vectors of as many rows as a vector has lanes are transposed in registers, so that each line of the source is read
/// once: rows a power of two apart share a set of the cache, which does not keep them for a second read.
template <class V>
void pack_transposed(std::int64_t depth, int count, const typename V::Element* from, std::int64_t stride,
                     typename V::Element* to, int to_stride) {
  using T = typename V::Element;
  for (int j = 0; j < count; j += V::kLanes) {
    const int rows = count - j < V::kLanes ? count - j : V::kLanes;
    const T* row[V::kLanes];
    for (int r = 0; r < V::kLanes; ++r) row[r] = from + (j + (r < rows ? r : rows - 1)) * stride;
    T* column = to + j;
    for (std::int64_t k = 0; k < depth; k += V::kLanes) {
      const int columns = depth - k < V::kLanes ? static_cast<int>(depth - k) : V::kLanes;
      typename V::Register block[V::kLanes];
      if (columns == V::kLanes) {
#pragma GCC unroll 16
        for (int r = 0; r < V::kLanes; ++r) block[r] = V::load(row[r] + k);
      } else {
        const auto mask = V::mask(columns);
#pragma GCC unroll 16
        for (int r = 0; r < V::kLanes; ++r) block[r] = V::load_first(row[r] + k, mask);
      }
      transpose<V>(block);
      if (columns == V::kLanes) {
#pragma GCC unroll 16
        for (int c = 0; c < V::kLanes; ++c, column += to_stride) V::store(column, block[c]);
      } else {
        for (int c = 0; c < columns; ++c, column += to_stride) V::store(column, block[c]);
      }
    }
  }
}

/// Products with windows are of single floats.
template <class V>
constexpr bool kReadsWindows = sizeof(typename V::Element) == 4 && !requires {
  V::kPairs;
};

/// Sets the entries for tiles of up to kRows rows.
template <class V, int kRows>
constexpr void fill(GemmKernels<typename V::Element>& kernels) {
  if constexpr (kRows > 0) {
    // If a masked load costs the same as a whole one, one kernel serves both.
    constexpr bool kWhole = !V::kMasksAreFree;
    kernels.by_row[0][kRows - 1][0] = tile<V, kRows, 1, true, false>;
    kernels.by_row[0][kRows - 1][1] = tile<V, kRows, 2, true, false>;
    kernels.by_row[1][kRows - 1][0] = tile<V, kRows, 1, true, kWhole>;
    kernels.by_row[1][kRows - 1][1] = tile<V, kRows, 2, true, kWhole>;
    kernels.by_depth[0][kRows - 1][0] = tile<V, kRows, 1, false, false>;
    kernels.by_depth[0][kRows - 1][1] = tile<V, kRows, 2, false, false>;
    kernels.by_depth[1][kRows - 1][0] = tile<V, kRows, 1, false, kWhole>;
    kernels.by_depth[1][kRows - 1][1] = tile<V, kRows, 2, false, kWhole>;
    if constexpr (kReadsWindows<V>) kernels.by_runs[kRows - 1] = runs_tile<V, kRows>;
    fill<V, kRows - 1>(kernels);
  }
}

template <class V, int kRows>
constexpr GemmKernels<typename V::Element> gemm_kernels() {
  GemmKernels<typename V::Element> kernels{};
  kernels.rows = kRows;
  kernels.lanes = V::kLanes;
  kernels.pack = pack<V>;
  kernels.pack_transposed = pack_transposed<V>;
  if constexpr (kReadsWindows<V>) {
    kernels.store_transposed = store_transposed<V>;
    kernels.winograd = winograd_kernels<V>();
  }
  fill<V, kRows>(kernels);
  return kernels;
}

}  // namespace
}  // namespace weft::cpu
