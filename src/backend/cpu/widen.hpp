// Reads elements of narrow types and of storage types as f32.
#pragma once

#include <cstdint>

namespace weft::cpu {

/// to[r * to_stride + i] is element first + r * stride + i of `data`, for r < rows and i < count. The functions of an
/// instruction set are in its TileTable.
using WidenFunction = void (*)(const void* data, std::int64_t first, std::int64_t stride, std::int64_t rows,
                               std::int64_t count, float* to, std::int64_t to_stride);

/// The place of narrow elements and the function that reads them; without a function there are none.
struct NarrowElements {
  WidenFunction widen = nullptr;
  const void* data = nullptr;
  std::int64_t first = 0;  // element of `data` from which other indices count
  bool is_bf16 = false;

  explicit operator bool() const { return widen != nullptr; }
  /// `rows` runs of `count` neighbours; the runs begin `stride` apart, the first of them at element `at`.
  void copy_rows(std::int64_t at, std::int64_t stride, std::int64_t rows, std::int64_t count, float* to,
                 std::int64_t to_stride) const {
    widen(data, first + at, stride, rows, count, to, to_stride);
  }
  void copy(std::int64_t at, float* to, std::int64_t count) const { copy_rows(at, 0, 1, count, to, 0); }
};

}  // namespace weft::cpu
