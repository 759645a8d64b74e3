// Instructions of loop programs that read elements into registers. Included by run.cpp alone.
#pragma once

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "backend/cpu/loop/runner.hpp"
#include "backend/cpu/transpose.hpp"
#include "tensor/element.hpp"

namespace weft::cpu {

template <class Word>
inline void LoopRunner::fetch(const LoopInstruction& in) const {
  const Access& access = access_of(in);
  const char* base = in.operand < 0 ? binding_.product : binding_.inputs[static_cast<std::size_t>(in.operand)];
  const Word* from = reinterpret_cast<const Word*>(base);
  if (is_turned(in)) {
    const Slot& out = slots_[in.out];
    const Extent stride = Access::stride(access.fast), row = out.stride / static_cast<Extent>(sizeof(Word));
    transpose(from + access.row_offset(s0_) + access.fast_offset(f0_), stride, reinterpret_cast<Word*>(out.data), row,
              slow_, fast_);
    return;
  }
  if constexpr (sizeof(Word) >= 4)
    if (code_.columns && in.slow && in.fast && access.plain_slow() && access.plain_fast() &&
        Access::stride(access.fast) == 1)
      return copy_columns(access, from, reinterpret_cast<Word*>(slots_[in.out].data), slots_[in.out].stride);
  const bool reversed = !code_.columns && in.fast && access.is_reversed();
  each_row<Word>(in, [&](Extent s, Extent f, Extent count, Word* to) {
    if (reversed) {
      // Prefetchers that guess what comes next go upwards.
      const Word* const at = from + access.row_offset(s) + access.fast_offset(f);
      const Word* const next = f + count < code_.inner ? at - count
                               : s + 1 < code_.outer   ? from + access.row_offset(s + 1)
                                                       : nullptr;
      if constexpr (std::is_same_v<Word, std::uint32_t>) return tile_table().reverse32(at, to, count, next, in.streams);
      return copy_reversed(at, to, count, next);
    }
    if (is_of_pairs(access, f, count)) return copy_pairs(access, s, f, count, from, to);
    walk_row(
        access, s, f, count,
        [&](Extent i, Extent at, Extent stride, Extent n) { copy_strided(from + at, stride, to + i, 1, n); },
        [&](Extent i, Extent n) { std::fill_n(to + i, n, Word{}); });
  });
}

template <class Word>
inline void LoopRunner::copy_columns(const Access& access, const Word* from, Word* to, Extent to_row) const {
  constexpr Extent kAhead = 24, kLine = 64 / static_cast<Extent>(sizeof(Word));  // rows
  const Extent row = access.slow_stride();
  const Word* at = from + access.row_offset(s0_) + access.fast_offset(f0_);
  char* out = reinterpret_cast<char*>(to);
  for (Extent s = 0; s < slow_; ++s, at += row, out += to_row) {
    const Extent later = s0_ + s + kAhead;
    // After the last rows, those of the next block; at the end, this row, which is in the cache.
    const Word* const next = later < code_.inner        ? at + kAhead * row
                             : outer_end_ < code_.outer ? at + (kAhead - code_.inner) * row + fast_
                                                        : at;
    Extent c = 0;
    for (; c + kLine <= fast_; c += kLine) {
      __builtin_prefetch(next + c, 0, 2);
      std::memcpy(reinterpret_cast<Word*>(out) + c, at + c, 64);
    }
    if (c < fast_)
      std::memcpy(reinterpret_cast<Word*>(out) + c, at + c, static_cast<std::size_t>(fast_ - c) * sizeof(Word));
  }
}

inline void LoopRunner::fetch_packed(const LoopInstruction& in) const {
  const Access& access = access_of(in);
  const char* from = binding_.inputs[static_cast<std::size_t>(in.operand)];
  each_row<std::uint8_t>(in, [&](Extent s, Extent f, Extent count, std::uint8_t* to) {
    walk_row(
        access, s, f, count,
        [&](Extent i, Extent at, Extent stride, Extent n) {
          unpack_codes(in.packed_bits, from, at, stride, to + i, n);
        },
        [&](Extent i, Extent n) { std::fill_n(to + i, n, std::uint8_t{0}); });
  });
}

inline void LoopRunner::index(const LoopInstruction& in) const {
  const Access& access = access_of(in);
  each_row<std::uint32_t>(in, [&](Extent s, Extent f, Extent count, std::uint32_t* to) {
    walk_row(
        access, s, f, count,
        [&](Extent i, Extent at, Extent stride, Extent n) {
          for (Extent k = 0; k < n; ++k) to[i + k] = static_cast<std::uint32_t>(at + k * stride);
        },
        [&](Extent i, Extent n) { std::fill_n(to + i, n, 0u); });
  });
}

}  // namespace weft::cpu
