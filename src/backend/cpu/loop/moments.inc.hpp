// Sums together with sums of squared differences from the mean, in one pass over the values; see TileMoments in tile.hpp.
//
// Differences are taken from a number near the mean: the mean so far, or at first that of some values. What the sum of their
// squares loses by that is small beside the squared distance of such a number from the mean, which is part of the result: if all
// of a tile is far from the numbers before it, or some of its first values from the others, then the variance is large.
#pragma once

#include "backend/cpu/loop/tile.hpp"
#include "backend/cpu/vector.inc.hpp"

namespace weft::cpu {
namespace {

/// Some values, by their differences from `shift`; lane by lane, or for scalars.
template <class X>
struct Moments {
  X sum, differences, squares;
  void add(X x, X shift) {
    const X d = x - shift;
    sum += x, differences += d, squares += d * d;
  }
  void add(const Moments& other) { sum += other.sum, differences += other.differences, squares += other.squares; }
};

/// Joins `count` values to `before` others of the same line: Chan, Golub and LeVeque 1983.
template <class X>
inline void join_moments(const Moments<X>& some, X shift, double count, double before, X* sum, X* mean, X* squares) {
  const X off = some.differences / count;
  const X around = some.squares - some.differences * off;
  const X apart = shift + off - *mean;
  *sum += some.sum;
  *squares += (around < 0 ? X{} : around) + apart * apart * (before * count / (before + count));
  *mean += apart * (count / (before + count));
}

/// The lanes of a vector of floats as doubles, from lane `first` on.
template <class T>
inline D doubles_from(const T* lanes) {
  return __builtin_convertvector(load<kDoubles>(lanes), D);
}

/// About the mean of the first values. One value alone would not do: if it is far from n others, rounding errors of n squares of
/// this distance would be beside one of them.
template <class T>
inline T mean_of_first(const T* x, std::int64_t count) {
  constexpr int N = kVectorBytes / static_cast<int>(sizeof(T)), kFirst = 64;
  T sum = 0;
  if (count < kFirst) {
    for (std::int64_t i = 0; i < count; ++i) sum += x[i];
    return sum / static_cast<T>(count);
  }
  V<T, N> sums = {};
  for (int i = 0; i < kFirst; i += N) sums += load<N>(x + i);
  for (int i = 0; i < N; ++i) sum += sums[i];
  return sum / T{kFirst};
}

template <class T>
void moments_fast(const TileMoments& call) {
  constexpr int N = kVectorBytes / static_cast<int>(sizeof(T)), kBeside = 4;
  using X = V<T, N>;
  for (std::int64_t s = 0; s < call.slow && call.fast > 0; ++s) {
    const auto* const x =
        reinterpret_cast<const T*>(static_cast<const char*>(call.arg.data) + s * call.arg.slow_stride);
    const T shift = call.before == 0 ? mean_of_first(x, call.fast) : static_cast<T>(call.means[s]);
    const X shifts = splat<N>(shift);
    Moments<X> some[kBeside] = {};
    std::int64_t i = 0;
    for (; i + kBeside * N <= call.fast; i += kBeside * N)
#pragma GCC unroll 4
      for (int k = 0; k < kBeside; ++k) {
        __builtin_prefetch(reinterpret_cast<const char*>(x + i + k * N) + kStreamAhead, 0, 2);
        some[k].add(load<N>(x + i + k * N), shifts);
      }
    for (; i + N <= call.fast; i += N) some[0].add(load<N>(x + i), shifts);
    some[0].add(some[1]), some[2].add(some[3]), some[0].add(some[2]);
    const auto across = [](X v) { return static_cast<double>(fold<T, N>(v, [](auto a, auto b) { return a + b; })); };
    Moments<double> all{across(some[0].sum), across(some[0].differences), across(some[0].squares)};
    for (; i < call.fast; ++i) all.add(x[i], shift);
    join_moments<double>(all, shift, static_cast<double>(call.fast), static_cast<double>(call.before), call.sums + s,
                         call.means + s, call.squares + s);
  }
}

/// Down the columns, in groups of rows so that sums of f32 stay short before they widen, a stripe of columns after another. Groups
/// are so short that differences of the first one may be taken from its first row.
template <class T>
void moments_slow(const TileMoments& call) {
  constexpr int N = kVectorBytes / static_cast<int>(sizeof(T)), kGroup = 64, kBeside = 8, kStripe = 64;
  using X = V<T, N>;
  const auto row = [&](std::int64_t s) {
    return reinterpret_cast<const T*>(static_cast<const char*>(call.arg.data) + s * call.arg.slow_stride);
  };
  for (std::int64_t begin = 0; begin < call.slow; begin += kGroup) {
    const std::int64_t end = begin + kGroup < call.slow ? begin + kGroup : call.slow;
    const auto count = static_cast<double>(end - begin), before = static_cast<double>(call.before + begin);
    const std::int64_t ahead = kBeside * call.arg.slow_stride, whole = call.fast / N;
    for (std::int64_t v = 0; v < whole; v += kStripe) {
      const std::int64_t vectors = whole - v < kStripe ? whole - v : kStripe;
      Moments<X> some[kStripe] = {};
      X shifts[kStripe];
      for (std::int64_t i = 0; i < vectors; ++i) {
        if (before == 0) {
          shifts[i] = load<N>(row(begin) + (v + i) * N);
        } else {
          alignas(64) T lanes[N];
          for (int lane = 0; lane < N; ++lane) lanes[lane] = static_cast<T>(call.means[(v + i) * N + lane]);
          shifts[i] = load<N>(lanes);
        }
      }
      std::int64_t s = begin;
      for (; s + kBeside <= end; s += kBeside)
        for (std::int64_t i = 0; i < vectors; ++i) {
          Moments<X> here = some[i];
          const char* from = reinterpret_cast<const char*>(row(s) + (v + i) * N);
          for (int beside = 0; beside < kBeside; ++beside, from += call.arg.slow_stride) {
            __builtin_prefetch(from + ahead, 0, 2);
            here.add(load<N>(reinterpret_cast<const T*>(from)), shifts[i]);
          }
          some[i] = here;
        }
      for (; s < end; ++s)
        for (std::int64_t i = 0; i < vectors; ++i) some[i].add(load<N>(row(s) + (v + i) * N), shifts[i]);
      for (std::int64_t i = 0; i < vectors; ++i) {
        alignas(64) T lanes[4][N];
        store<N>(lanes[0], some[i].sum), store<N>(lanes[1], some[i].differences);
        store<N>(lanes[2], some[i].squares), store<N>(lanes[3], shifts[i]);
        for (int lane = 0; lane < N; lane += kDoubles) {
          const std::int64_t at = (v + i) * N + lane;
          D sum = load<kDoubles>(call.sums + at), mean = load<kDoubles>(call.means + at),
            squares = load<kDoubles>(call.squares + at);
          join_moments<D>({doubles_from(lanes[0] + lane), doubles_from(lanes[1] + lane), doubles_from(lanes[2] + lane)},
                          doubles_from(lanes[3] + lane), count, before, &sum, &mean, &squares);
          store<kDoubles>(call.sums + at, sum), store<kDoubles>(call.means + at, mean);
          store<kDoubles>(call.squares + at, squares);
        }
      }
    }
    for (std::int64_t f = whole * N; f < call.fast; ++f) {
      const T shift = before == 0 ? row(begin)[f] : static_cast<T>(call.means[f]);
      Moments<T> some{};
      for (std::int64_t s = begin; s < end; ++s) some.add(row(s)[f], shift);
      join_moments<double>({some.sum, some.differences, some.squares}, shift, count, before, call.sums + f,
                           call.means + f, call.squares + f);
    }
  }
}

}  // namespace
}  // namespace weft::cpu
