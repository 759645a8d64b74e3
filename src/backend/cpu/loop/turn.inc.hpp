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

/// Where rows are read next from column `c` on: further on in the rows from `from` on, or at their end, in those of the next call.
template <class T>
inline const T* ahead_of(const TurnCall& call, const T* from, std::int64_t row, std::int64_t c) {
  if (c < call.columns || call.next == nullptr) return from + c;
  return static_cast<const T*>(call.next) + row * call.from_row + (c - call.columns);
}

/// The rows from number `row` on that give kLines cache lines of each column come together, so that whole lines are written.
template <int kLines, bool streams, class T>
void turn_lines(const TurnCall& call, std::int64_t row) {
  constexpr int N = kVectorBytes / static_cast<int>(sizeof(T)), kLine = 64 / static_cast<int>(sizeof(T));
  constexpr int kRows = kLines * kLine, kLinesAhead = 4;
  // Past the caches memory takes parts of lines slowly, and neighbouring lines faster than lines far apart, so they wait in the L1
  // cache until they are complete.
  constexpr bool waits = streams && kRows > N;
  const auto* const from = static_cast<const T*>(call.from) + row * call.from_row;
  auto* const to = static_cast<T*>(call.to) + row;
  alignas(64) T near[waits ? N * kRows : 1];
  std::int64_t c = 0;
  for (; c + N <= call.columns; c += N) {
    const T* const block = from + c;
    if (call.rows_ahead == 0 && c % kLine == 0) {
      const T* const ahead = ahead_of(call, from, row, c + kLinesAhead * kLine);
      for (int i = 0; i < kRows; ++i) __builtin_prefetch(ahead + i * call.from_row, 0, 2);
    }
#pragma GCC unroll 1
    for (int part = 0; part < kRows; part += N) {
      V<T, N> rows[N];
#pragma GCC unroll 16
      for (int i = 0; i < N; ++i) rows[i] = load<N>(block + (part + i) * call.from_row);
      transpose_lanes<1>(rows);
#pragma GCC unroll 16
      for (int i = 0; i < N; ++i) {
        if constexpr (waits)
          store<N>(near + i * kRows + part, rows[i]);
        else
          store_past<streams, T, N>(to + (c + i) * call.to_row + part, rows[i]);
      }
    }
    if constexpr (waits)
      for (int i = 0; i < N; ++i)
#pragma GCC unroll 16
        for (int part = 0; part < kRows; part += N)
          store_past<streams, T, N>(to + (c + i) * call.to_row + part, load<N>(near + i * kRows + part));
    // Behind the stores the requests do not wait for the loads.
    if (call.rows_ahead > 0 && c % kLine == 0 && row + call.rows_ahead + kRows <= call.rows)
      for (int i = 0; i < kRows; ++i) __builtin_prefetch(block + (i + call.rows_ahead) * call.from_row, 0, 2);
  }
  for (; c < call.columns; ++c)
    for (int i = 0; i < kRows; ++i) to[c * call.to_row + i] = from[i * call.from_row + c];
}
template <bool streams, class T>
void turn_rows(const TurnCall& call) {
  constexpr int kLine = 64 / static_cast<int>(sizeof(T));
  std::int64_t r = 0;
  if constexpr (streams)
    for (; r + 2 * kLine <= call.rows; r += 2 * kLine) turn_lines<2, true, T>(call, r);
  for (; r + kLine <= call.rows; r += kLine) turn_lines<1, streams, T>(call, r);
  const auto* const from = static_cast<const T*>(call.from);
  auto* const to = static_cast<T*>(call.to);
  for (; r < call.rows; ++r)
    for (std::int64_t c = 0; c < call.columns; ++c) to[c * call.to_row + r] = from[r * call.from_row + c];
}
template <class T>
void turn(const TurnCall& call) {
  constexpr std::int64_t kLine = 64 / sizeof(T);
  const bool aligned = reinterpret_cast<std::uintptr_t>(call.to) % 64 == 0 && call.to_row % kLine == 0;
  call.streams&& aligned ? turn_rows<true, T>(call) : turn_rows<false, T>(call);
}

}  // namespace
}  // namespace weft::cpu
