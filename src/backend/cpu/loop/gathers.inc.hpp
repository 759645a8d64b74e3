// Instructions of loop programs that read elements by index. Included by run.cpp alone.
#pragma once

#include <algorithm>
#include <cstring>

#include "backend/cpu/loop/runner.hpp"
#include "tensor/element.hpp"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace weft::cpu {
namespace {

/// Copies bytes, past the caches if `streams`, while the lines of `next` (if not null) are on their way: requests that go out
/// between the stores do not wait for each other.
void copy_row(const char* from, char* to, Extent bytes, bool streams, const char* next) {
  Extent i = 0;
  if (streams && reinterpret_cast<std::uintptr_t>(to) % 64 == 0) {
    tile_table().copy_lines(from, to, bytes / 64, next);
    i = bytes / 64 * 64;
    if (i == bytes) return;
  }
#if defined(__SSE2__)
  if (streams && reinterpret_cast<std::uintptr_t>(to) % 16 == 0) {
    for (; i + 64 <= bytes; i += 64) {
      if (next != nullptr) __builtin_prefetch(next + i, 0, 2);
      for (Extent k = i; k < i + 64; k += 16)
        _mm_stream_si128(reinterpret_cast<__m128i*>(to + k),
                         _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + k)));
    }
  }
#endif
  if (next != nullptr)
    for (Extent line = i; line < bytes; line += 64) __builtin_prefetch(next + line, 0, 2);
  std::memcpy(to + i, from + i, static_cast<std::size_t>(bytes - i));
}

/// Element k is at from[k * stride + indices[k] * axis_stride], or zero if its index is outside.
template <class Word>
inline void take_elements(const LoopInstruction& in, const Word* from, Extent stride, const std::int32_t* indices,
                          Word* to, Extent count) {
  const auto extent = static_cast<std::uint32_t>(in.axis_extent);
  std::uint32_t signs = 0;  // the highest bit: of an index that is negative or too large
  for (Extent k = 0; k < count; ++k) {
    const auto index = static_cast<std::uint32_t>(indices[k]);
    signs |= index | (extent - 1 - index);
  }
  if (in.axis_extent == 0 || in.axis_extent > INT32_MAX || signs >> 31 != 0) {
    for (Extent k = 0; k < count; ++k) {
      const std::int32_t index = indices[k];
      to[k] = index < 0 || index >= in.axis_extent ? Word{} : from[k * stride + index * in.axis_stride];
    }
  } else if (in.axis_stride == 1 && stride == 0) {
    for (Extent k = 0; k < count; ++k) to[k] = from[indices[k]];
  } else {
    for (Extent k = 0; k < count; ++k, from += stride) to[k] = from[indices[k] * in.axis_stride];
  }
}

}  // namespace

template <class Word>
inline void LoopRunner::gather(const LoopInstruction& in) const {
  const Access& access = access_of(in);
  const Word* from = reinterpret_cast<const Word*>(binding_.inputs[static_cast<std::size_t>(in.operand)]);
  const Source& chosen = in.args[0];
  const Slot& slot = slots_[chosen.value];
  const bool is_of_row =
      access.plain_slow() && access.fast.empty() && in.axis_stride == 1 && in.axis_extent <= INT32_MAX;
  const bool is_plain = access.plain_slow() && access.plain_fast() && Access::stride(access.fast) == 1;
  each_row<Word>(in, [&](Extent s, Extent f, Extent count, Word* to) {
    const auto* indices =
        reinterpret_cast<const std::int32_t*>(slot.data + (chosen.slow ? (s - s0_) * slot.stride : 0));
    const auto outside = [&](std::int32_t index) { return index < 0 || index >= in.axis_extent; };
    const bool one = !chosen.fast;
    if (one && outside(*indices)) {
      std::fill_n(to, count, Word{});
      return;
    }
    const Word* row = one ? from + *indices * in.axis_stride : from;
    if (one && is_plain) {
      const char* const source = reinterpret_cast<const char*>(row + access.row_offset(s) + access.fast_offset(f));
      return copy_row(source, reinterpret_cast<char*>(to), count * static_cast<Extent>(sizeof(Word)), in.streams,
                      row_ahead<Word>(in, s, f, count));
    }
    walk_row(
        access, s, f, count,
        [&](Extent i, Extent at, Extent stride, Extent n) {
          if (one) return copy_strided(row + at, stride, to + i, 1, n);
          if constexpr (sizeof(Word) == 4)
            if (is_of_row) return take_from_row(in, from + at, s, f + i, indices + i, to + i, n);
          take_elements(in, from + at, stride, indices + i, to + i, n);
        },
        [&](Extent i, Extent n) { std::fill_n(to + i, n, Word{}); });
  });
}

inline void LoopRunner::take_from_row(const LoopInstruction& in, const std::uint32_t* row, Extent s, Extent f,
                                      const std::int32_t* indices, std::uint32_t* to, Extent count) const {
  constexpr Extent kRowBytes = 256 << 10;  // longer rows do not stay in the cache
  TakeCall call{row,
                static_cast<std::uint32_t>(in.axis_extent),
                reinterpret_cast<const std::uint32_t*>(indices),
                to,
                count,
                in.streams,
                nullptr,
                0};
  const Extent bytes = in.axis_extent * 4;
  if (s + 1 < code_.outer && bytes <= kRowBytes && !code_.columns) {
    const auto share = [&](Extent column) { return bytes * column / code_.inner; };
    call.next = binding_.inputs[static_cast<std::size_t>(in.operand)] + access_of(in).row_offset(s + 1) * 4 + share(f);
    call.next_bytes = share(f + count) - share(f);
  }
  tile_table().take(call);
}

template <class Word>
inline const char* LoopRunner::row_ahead(const LoopInstruction& in, Extent s, Extent f, Extent count) const {
  constexpr Extent kBytesAhead = 4096;
  const Access& access = access_of(in);
  const Source& chosen = in.args[0];
  const auto size = static_cast<Extent>(sizeof(Word));
  const Extent ahead = s + std::clamp<Extent>(kBytesAhead / (count * size), 1, 32);
  const Value& index = code_.values[static_cast<std::size_t>(chosen.value)];
  const bool in_memory = index.place == Place::memory && !index.access.by_runs && !access.by_runs;
  if (!chosen.slow || ahead >= (in_memory ? code_.outer : s0_ + slow_)) return nullptr;
  const Slot& slot = slots_[chosen.value];
  const auto at = *reinterpret_cast<const std::int32_t*>(slot.data + (ahead - s0_) * slot.stride);
  if (at < 0 || at >= in.axis_extent) return nullptr;
  return binding_.inputs[static_cast<std::size_t>(in.operand)] +
         (access.row_offset(ahead) + access.fast_offset(f) + at * in.axis_stride) * size;
}

inline void LoopRunner::gather_packed(const LoopInstruction& in) const {
  const Access& access = access_of(in);
  const char* from = binding_.inputs[static_cast<std::size_t>(in.operand)];
  const Source& chosen = in.args[0];
  const Slot& slot = slots_[chosen.value];
  each_row<std::uint8_t>(in, [&](Extent s, Extent f, Extent count, std::uint8_t* to) {
    const auto* indices =
        reinterpret_cast<const std::int32_t*>(slot.data + (chosen.slow ? (s - s0_) * slot.stride : 0));
    std::fill_n(to, count, std::uint8_t{0});
    const auto take = [&](std::int32_t index, Extent i, Extent at, Extent stride, Extent n) {
      if (index >= 0 && index < in.axis_extent)
        unpack_codes(in.packed_bits, from, at + index * in.axis_stride, stride, to + i, n);
    };
    walk_row(
        access, s, f, count,
        [&](Extent i, Extent at, Extent stride, Extent n) {
          if (!chosen.fast) return take(*indices, i, at, stride, n);
          for (Extent k = 0; k < n; ++k) take(indices[i + k], i + k, at + k * stride, 0, 1);
        },
        [](Extent, Extent) {});
  });
}

}  // namespace weft::cpu
