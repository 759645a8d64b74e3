// Picks from columns that were copied together, while the next columns are copied; see ColumnGatherCall in tile.hpp.
#pragma once

#include "backend/cpu/loop/tile.hpp"
#include "backend/cpu/loop/turn.inc.hpp"
#include "backend/cpu/vector.inc.hpp"

namespace weft::cpu {
namespace {

/// Lane i is element (indices[i], c + i) of `near`, or zero where that row is outside.
template <class Word>
inline V<Word, kVectorBytes / static_cast<int>(sizeof(Word))> pick(const ColumnGatherCall& call,
                                                                   const std::uint32_t* indices, std::int64_t c) {
  constexpr int N = kVectorBytes / static_cast<int>(sizeof(Word));
  const auto* const near = static_cast<const Word*>(call.near) + c;
#if defined(__AVX512F__)
  if constexpr (sizeof(Word) == 4) {
    const __m512i index = _mm512_loadu_si512(indices),
                  lanes = (__m512i)V<std::int32_t, 16>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const __m512i at =
        _mm512_add_epi32(_mm512_mullo_epi32(index, _mm512_set1_epi32(static_cast<int>(call.width))), lanes);
    const __mmask16 inside = _mm512_cmplt_epu32_mask(index, _mm512_set1_epi32(static_cast<int>(call.extent)));
    return (V<Word, N>)_mm512_mask_i32gather_epi32(__m512i{}, inside, at, near, 4);
  }
#endif
  V<Word, N> picked = {};
  for (int i = 0; i < N; ++i)
    if (indices[i] < call.extent) picked[i] = near[indices[i] * call.width + i];
  return picked;
}

template <class Word, bool streams>
void gather_rows(const ColumnGatherCall& call) {
  constexpr std::int64_t N = kVectorBytes / sizeof(Word), kAhead = 24;  // rows whose lines memory does not guess
  const auto* from = static_cast<const Word*>(call.from);
  auto* copy = static_cast<Word*>(call.copy);
  const auto* indices = call.indices;
  auto* to = static_cast<Word*>(call.to);
  const std::int64_t steps = call.rows > 0 ? call.rows : call.extent;
  std::int64_t copied = 0;
  for (std::int64_t r = 0; r < steps; ++r) {
    for (const std::int64_t end = call.copied == 0 ? 0 : call.extent * (r + 1) / steps; copied < end; ++copied) {
      const std::int64_t ahead = copied + kAhead < call.extent ? kAhead * call.from_row : 0;
      std::int64_t c = 0;
      for (; c + N <= call.copied; c += N) {
        __builtin_prefetch(from + ahead + c, 0, 2);
        store<N>(copy + c, load<N>(from + c));
      }
      for (; c < call.copied; ++c) copy[c] = from[c];
      from += call.from_row, copy += call.copied;
    }
    if (call.rows == 0) continue;
    const std::int64_t ahead = r + kAhead < call.rows ? kAhead * call.index_row : 0;
    std::int64_t c = 0;
    for (; c + N <= call.width; c += N) {
      __builtin_prefetch(indices + ahead + c, 0, 2);
      store_past<streams, Word, N>(to + c, pick<Word>(call, indices + c, c));
    }
    for (; c < call.width; ++c)
      to[c] = indices[c] < call.extent ? static_cast<const Word*>(call.near)[indices[c] * call.width + c] : Word{0};
    indices += call.index_row, to += call.to_row;
  }
}

template <class Word>
void column_gather(const ColumnGatherCall& call) {
  constexpr std::int64_t kLine = 64 / sizeof(Word);
  const bool aligned = reinterpret_cast<std::uintptr_t>(call.to) % 64 == 0 && call.to_row % kLine == 0;
  call.streams&& aligned ? gather_rows<Word, true>(call) : gather_rows<Word, false>(call);
}

}  // namespace
}  // namespace weft::cpu
