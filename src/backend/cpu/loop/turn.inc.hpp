// Transposition of rows of elements, in registers; see TurnCall.
#pragma once

#include "backend/cpu/loop/tile.hpp"
#include "backend/cpu/vector.inc.hpp"

namespace weft::cpu {
namespace {

/// Exchanges the lanes whose numbers have the bit `Half` of one vector with those without it of the other.
template <int Half, class Vector, std::size_t... lane>
inline void exchange(Vector& a, Vector& b, std::index_sequence<lane...>) {
  constexpr int N = sizeof...(lane);
  const Vector low = __builtin_shufflevector(
      a, b, (static_cast<int>(lane) & Half ? N + static_cast<int>(lane) - Half : static_cast<int>(lane))...);
  b = __builtin_shufflevector(
      a, b, (static_cast<int>(lane) & Half ? N + static_cast<int>(lane) : static_cast<int>(lane) + Half)...);
  a = low;
}
template <int Half, class Vector, int N>
inline void transpose_lanes(Vector (&rows)[N]) {
  if constexpr (Half < N) {
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i)
      if ((i & Half) == 0) exchange<Half>(rows[i], rows[i + Half], std::make_index_sequence<N>{});
    transpose_lanes<Half * 2>(rows);
  }
}

template <bool streams, class T, int N>
inline void store_past(T* to, V<T, N> v) {
#if defined(__AVX512F__)
  if constexpr (streams) return _mm512_stream_si512(reinterpret_cast<__m512i*>(to), (__m512i)v);
#elif defined(__AVX2__)
  if constexpr (streams) return _mm256_stream_si256(reinterpret_cast<__m256i*>(to), (__m256i)v);
#elif defined(__SSE2__)
  if constexpr (streams) return _mm_stream_si128(reinterpret_cast<__m128i*>(to), (__m128i)v);
#endif
  store<N>(to, v);
}

/// The rows that give a cache line of each column come together, so that whole lines are written.
template <bool streams, class T>
void turn_lines(const TurnCall& call) {
  constexpr int N = kVectorBytes / static_cast<int>(sizeof(T)), kLine = 64 / static_cast<int>(sizeof(T));
  constexpr int kLinesAhead = 4;
  const auto* const from = static_cast<const T*>(call.from);
  auto* const to = static_cast<T*>(call.to);
  std::int64_t r = 0;
  for (; r + kLine <= call.rows; r += kLine) {
    std::int64_t c = 0;
    for (; c + N <= call.columns; c += N) {
      const T* const block = from + r * call.from_row + c;
      if (call.rows_ahead == 0 && c % kLine == 0)
        for (int i = 0; i < kLine; ++i) __builtin_prefetch(block + i * call.from_row + kLinesAhead * kLine, 0, 2);
#pragma GCC unroll 1
      for (int part = 0; part < kLine; part += N) {
        V<T, N> rows[N];
#pragma GCC unroll 16
        for (int i = 0; i < N; ++i) rows[i] = load<N>(block + (part + i) * call.from_row);
        transpose_lanes<1>(rows);
#pragma GCC unroll 16
        for (int i = 0; i < N; ++i) store_past<streams, T, N>(to + (c + i) * call.to_row + r + part, rows[i]);
      }
      // Behind the stores the requests do not wait for the loads.
      if (call.rows_ahead > 0 && c % kLine == 0 && r + call.rows_ahead + kLine <= call.rows)
        for (int i = 0; i < kLine; ++i) __builtin_prefetch(block + (i + call.rows_ahead) * call.from_row, 0, 2);
    }
    for (; c < call.columns; ++c)
      for (int i = 0; i < kLine; ++i) to[c * call.to_row + r + i] = from[(r + i) * call.from_row + c];
  }
  for (; r < call.rows; ++r)
    for (std::int64_t c = 0; c < call.columns; ++c) to[c * call.to_row + r] = from[r * call.from_row + c];
}
template <class T>
void turn(const TurnCall& call) {
  constexpr std::int64_t kLine = 64 / sizeof(T);
  const bool aligned = reinterpret_cast<std::uintptr_t>(call.to) % 64 == 0 && call.to_row % kLine == 0;
  call.streams&& aligned ? turn_lines<true, T>(call) : turn_lines<false, T>(call);
}

}  // namespace
}  // namespace weft::cpu
