// How a product is split into tasks, and what each packs: a function of shapes and strides only.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backend/cpu/gemm.hpp"
#include "backend/cpu/gemm_kernels.hpp"

namespace weft::cpu::blocked {

using std::int64_t;

constexpr int64_t ceil_divide(int64_t a, int64_t b) { return (a + b - 1) / b; }

inline constexpr int64_t kKeptTiles = 16;                    // column tiles that may be kept side by side
inline constexpr int64_t kSharedBytesMax = 8 * 1024 * 1024;  // of A, and of B, packed for all tasks together
inline constexpr int64_t kPackDepth = 16;                    // rows of a shared operand that a task packs
inline constexpr int64_t kTasks = 16;                        // enough to balance and to keep many cores busy

/// The elements along k that the kernels take as one.
template <class T>
int64_t unit_of(const GemmKernels<T>& kernels) {
  return kernels.interleave != nullptr ? 2 : 1;
}

struct Split {
  int64_t panels = 0;  // of A, as even as can be: 64 rows are 4 panels of 13 and one of 12, not 4 of 14 and one of 8
  int64_t row_tiles = 1, column_tiles = 1, tile_columns = 0;
  int64_t batch_groups = 1;  // a task takes a group of small products
  int64_t depth_block = 0;   // k of one pass of the kernels
  bool pack_a = false, pack_b = false;
  bool keeps_b = false;    // B of a column tile is packed whole and serves the tasks of a thread one after another
  bool keeps_all = false;  // the same for all column tiles side by side
  bool shares_b = false;   // all threads pack B first
  bool by_block = false;   // ... and go from one block of k to the next together
  bool shares_a = false;   // ... for which they pack A, too
  int64_t tasks = 0;
};

/// Defined for float and double.
template <class T>
Split split(const GemmArgs<T>& args, const GemmKernels<T>& kernels);

}  // namespace weft::cpu::blocked
