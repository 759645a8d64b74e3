// Copies of words in the opposite order for one instruction set; see ReverseFunction in tile.hpp.
#pragma once

#include "backend/cpu/loop/turn.inc.hpp"
#include "backend/cpu/vector.inc.hpp"

namespace weft::cpu {
namespace {

template <int N, std::size_t... lane>
inline V<std::uint32_t, N> reversed_lanes(V<std::uint32_t, N> x, std::index_sequence<lane...>) {
  return __builtin_shufflevector(x, x, (N - 1 - static_cast<int>(lane))...);
}

/// The source is read upwards, which hardware foresees better than the other way.
template <bool streams>
void reverse_words_of(const std::uint32_t* from, std::uint32_t* to, std::int64_t count, const std::uint32_t* next) {
  constexpr int N = kVectorBytes / 4;
  constexpr std::int64_t kAhead = kStreamAhead / 4;
  const std::uint32_t *const first = from - (count - 1), *const last = to + count;
  const std::uint32_t* const beyond =
      next != nullptr ? next - (2 * count - 1) : first;  // its element `count` is the first of `next`
  std::int64_t i = 0;
  if constexpr (streams)
    for (; i < count && reinterpret_cast<std::uintptr_t>(last - i) % 64 != 0; ++i) to[count - 1 - i] = first[i];
  for (; i + N <= count; i += N) {
    __builtin_prefetch((i + kAhead < count ? first : beyond) + i + kAhead);
    store_past<streams, std::uint32_t, N>(to + count - i - N,
                                          reversed_lanes<N>(load<N>(first + i), std::make_index_sequence<N>{}));
  }
  for (; i < count; ++i) to[count - 1 - i] = first[i];
}

void reverse_words(const std::uint32_t* from, std::uint32_t* to, std::int64_t count, const std::uint32_t* next,
                   bool streams) {
  streams ? reverse_words_of<true>(from, to, count, next) : reverse_words_of<false>(from, to, count, next);
}

}  // namespace
}  // namespace weft::cpu
