// Sums and copies of chosen rows for one instruction set; see SumRowsCall and CopyLinesFunction in tile.hpp.
#pragma once

#include <cstdint>

#include "backend/cpu/loop/tile.hpp"
#include "backend/cpu/vector.inc.hpp"

namespace weft::cpu {
namespace {

/// Vectors past the caches, where the processor has such a store.
template <int N, class T>
inline void store_past(T* to, V<T, N> x) {
#if defined(__AVX512F__)
  _mm512_stream_si512(reinterpret_cast<__m512i*>(to), (__m512i)x);
#elif defined(__AVX2__)
  _mm256_stream_si256(reinterpret_cast<__m256i*>(to), (__m256i)x);
#elif defined(__SSE2__)
  _mm_stream_si128(reinterpret_cast<__m128i*>(to), (__m128i)x);
#else
  store<N>(to, x);
#endif
}

template <class T, bool streams>
void sum_rows_of(const SumRowsCall& call) {
  // Long pieces, because how many rows there are is a branch that nothing foretells.
  constexpr int N = kVectorBytes / static_cast<int>(sizeof(T)), kTogether = 8, kBaseAhead = 4096;
  const auto* const rows = static_cast<const T*>(call.rows);
  const auto* const base = static_cast<const T*>(call.base);
  auto* const to = static_cast<T*>(call.to);
  alignas(64) static constexpr T zeros[N * kTogether] = {};
  std::int64_t c = 0;
  for (; c + N * kTogether <= call.count; c += N * kTogether) {
    V<T, N> sums[kTogether];
    // Requests go out between the loads, so that they do not wait for each other.
    const T* const next = call.later_count > 0 ? rows + call.later[0] * call.row + c : zeros;
    const T* const first = call.chosen > 0 ? rows + call.order[0] * call.row + c : zeros;
#pragma GCC unroll 8
    for (int v = 0; v < kTogether; ++v) {
      __builtin_prefetch(next + v * N, 0, 2);
      // Between rows from anywhere, memory does not guess that the base is read in order.
      if (base != nullptr) __builtin_prefetch(reinterpret_cast<const char*>(base + c + v * N) + kBaseAhead, 0, 2);
      sums[v] = splat<N>(T{0}) + load<N>(first + v * N);
    }
    for (std::int64_t k = 1; k < call.chosen; ++k) {
      const T* const from = rows + call.order[k] * call.row + c;
#pragma GCC unroll 8
      for (int v = 0; v < kTogether; ++v) sums[v] += load<N>(from + v * N);
    }
    for (std::int64_t k = 1; k < call.later_count; ++k) {
      const T* const from = rows + call.later[k] * call.row + c;
      for (int v = 0; v < kTogether; ++v) __builtin_prefetch(from + v * N, 0, 2);
    }
#pragma GCC unroll 8
    for (int v = 0; v < kTogether; ++v) {
      V<T, N> sum = sums[v];
      if (base != nullptr) sum = load<N>(base + c + v * N) + sum;
      if constexpr (streams)
        store_past<N>(to + c + v * N, sum);
      else
        store<N>(to + c + v * N, sum);
    }
  }
  for (; c < call.count; ++c) {
    T sum = 0;
    for (std::int64_t k = 0; k < call.chosen; ++k) sum += rows[call.order[k] * call.row + c];
    to[c] = base != nullptr ? base[c] + sum : sum;
  }
}

/// A store of a whole line at once cannot leave a part of it waiting.
void copy_lines(const char* from, char* to, std::int64_t lines, const char* next) {
  for (std::int64_t i = 0; i < lines * 64; i += 64) {
    if (next != nullptr) __builtin_prefetch(next + i, 0, 2);
    for (std::int64_t k = i; k < i + 64; k += kVectorBytes)
      store_past<kVectorBytes>(reinterpret_cast<std::uint8_t*>(to + k),
                               load<kVectorBytes>(reinterpret_cast<const std::uint8_t*>(from + k)));
  }
}

template <class T>
void sum_rows(const SumRowsCall& call) {
  call.streams&& reinterpret_cast<std::uintptr_t>(call.to) % 64 == 0 ? sum_rows_of<T, true>(call)
                                                                     : sum_rows_of<T, false>(call);
}

}  // namespace
}  // namespace weft::cpu
