// Results that do not fit the caches are written past them.
#pragma once

#include "backend/cpu/loop/tile.hpp"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace weft::cpu {

/// Larger results would only push other data out of the caches.
inline constexpr Extent kStreamBytes = 24 << 20;

/// Stores past the caches become visible to other threads.
inline void fence_streams() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

/// Copies rows of 32-bit or 64-bit elements, past the caches if `streams`. Rows begin `from_row` and `to_row` elements apart.
template <class T>
void copy_rows(const T* from, Extent from_row, T* to, Extent to_row, Extent rows, Extent width, bool streams) {
  constexpr auto kWord = static_cast<std::size_t>(sizeof(T) == 4 ? DType::u32 : DType::u64);
  constexpr auto kSize = static_cast<Extent>(sizeof(T));
  TileCall call;
  call.out = to;
  call.out_stride = to_row * kSize;
  call.slow = rows;
  call.fast = width;
  call.args[0] = {from, from_row * kSize, false};
  (streams ? tile_table().stream[kWord] : tile_table().cast[kWord][kWord])(call);
}

/// Writes runs of a result of 32-bit or 64-bit elements. The caller fills `place(at)` and then calls `finish(at, count)`. For a
/// large result the place is a buffer, which is copied past the caches. One thread uses the object.
template <class T>
class RunWriter {
 public:
  static constexpr Extent kRun = 1024;  // elements of a run, at most

  RunWriter(T* result, Extent size) : result_(result), streams_(size * static_cast<Extent>(sizeof(T)) > kStreamBytes) {}
  ~RunWriter() {
    if (streams_) fence_streams();
  }
  RunWriter(const RunWriter&) = delete;
  RunWriter& operator=(const RunWriter&) = delete;

  /// Whether results go past the caches. A caller may then do so itself: the fence is the writer's.
  bool streams() const { return streams_; }
  T* place(Extent at) { return streams_ ? buffer_ : result_ + at; }
  void finish(Extent at, Extent count) {
    if (streams_) copy_rows<T>(buffer_, count, result_ + at, count, 1, count, true);
  }

 private:
  T* result_;
  bool streams_;
  alignas(64) T buffer_[kRun];
};

}  // namespace weft::cpu
