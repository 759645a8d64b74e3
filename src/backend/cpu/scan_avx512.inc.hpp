// Running sums and products of f32 with AVX-512, totals in f64; see ScanParts in tile.hpp.
//
// A block is 32 elements, taken apart so that lane k holds elements 4k to 4k + 3 in four vectors: three steps then combine all
// four of them, and only the totals of the lanes need a scan across lanes.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <type_traits>

#include "backend/cpu/scan_parts.inc.hpp"

namespace weft::cpu {
namespace {

/// As RunningTotal<Op, float, float, double>.
template <class Op>
struct RunningFloats {
  static constexpr std::int64_t kBlock = 32;
  static constexpr int kBeside = 4;  // blocks
  static constexpr bool kIsProduct = std::is_same_v<Op, RunningProduct>;

  /// Lane i of the first half is at element `first` + 4 i of a block, and lane i of the second half one later.
  static __m512i apart(int first, bool reverse) {
    alignas(64) std::int32_t at[16];
    for (int i = 0; i < 16; ++i) {
      const int element = first + i / 8 + i % 8 * 4;
      at[i] = reverse ? static_cast<int>(kBlock) - 1 - element : element;
    }
    return _mm512_load_si512(at);
  }
  /// The inverse: 16 elements of a block from place `begin` on.
  static __m512i together(int begin, bool reverse) {
    alignas(64) std::int32_t at[16];
    for (int i = 0; i < 16; ++i) {
      const int place = begin + i, element = reverse ? static_cast<int>(kBlock) - 1 - place : place;
      at[i] = element % 4 * 8 + element / 4;
    }
    return _mm512_load_si512(at);
  }
  /// a * 1 + b or a * b - 0, with the bits of the sum or the product. Additions alone share their units with the conversions, where
  /// some processors have others for products.
  static __m512d combine(__m512d a, __m512d b) {
    return kIsProduct ? _mm512_fmadd_pd(a, b, _mm512_set1_pd(-0.0)) : _mm512_fmadd_pd(a, _mm512_set1_pd(1), b);
  }
  /// The lanes `count` further up, below the identity.
  template <int count>
  static __m512d up(__m512d x) {
    const __m512d none = _mm512_set1_pd(Op::kIdentity);
    return _mm512_castsi512_pd(_mm512_alignr_epi64(_mm512_castpd_si512(x), _mm512_castpd_si512(none), 8 - count));
  }
  static __m512d low(__m512 x) { return _mm512_cvtps_pd(_mm512_castps512_ps256(x)); }
  static __m512d high(__m512 x) { return _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1)); }
  static __m512 narrow(__m512d low, __m512d high) {
    return _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(low)), _mm512_cvtpd_ps(high), 1);
  }
  /// How far the bits of |x| are above those of 2^-30.
  static __m512i above_least(__m512 x) {
    const __m512i bits = _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff));
    return _mm512_sub_epi32(bits, _mm512_set1_epi32((127 - 30) << 23));
  }
  static bool are_below_most(__m512i above) {
    return _mm512_cmple_epu32_mask(above, _mm512_set1_epi32(60 << 23)) == 0xffff;
  }
  /// Whether no product of a block's numbers leaves the range of a double: they are zero, or between 2^-30 and 2^30.
  static bool is_moderate(__m512 x) {
    const __mmask16 is_zero = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_EQ_OQ);
    return are_below_most(_mm512_mask_mov_epi32(above_least(x), is_zero, _mm512_setzero_si512()));
  }
  template <int blocks>
  static bool are_moderate(const __m512 (&x0)[blocks], const __m512 (&x1)[blocks]) {
    __m512i above = _mm512_setzero_si512();
#pragma GCC unroll 4
    for (int k = 0; k < blocks; ++k)
      above = _mm512_max_epu32(above, _mm512_max_epu32(above_least(x0[k]), above_least(x1[k])));
    if (are_below_most(above)) return true;
    for (int k = 0; k < blocks; ++k)  // zeros are not often there
      if (!is_moderate(x0[k]) || !is_moderate(x1[k])) return false;
    return true;
  }

  /// Where elements of a block go, and where they come back from.
  struct Places {
    __m512i ab, cd, first, second;
    explicit Places(bool reverse)
        : ab(apart(0, reverse)), cd(apart(2, reverse)), first(together(0, reverse)), second(together(16, reverse)) {}
  };

  /// Blocks in the order of the scan. Each step is made for all of them before the next one: those of one block wait for each other,
  /// and would fill the queues of the processor meanwhile.
  template <int blocks>
  struct Blocks {
    __m512d a[blocks], b[blocks], c[blocks], d[blocks], lanes[blocks];

    template <bool reverse>
    static std::int64_t place(int block) {
      return (reverse ? blocks - 1 - block : block) * kBlock;
    }
    /// False if products may leave the range of a double.
    template <bool reverse>
    bool read(const float* x, const Places& places) {
      __m512 x0[blocks], x1[blocks];
#pragma GCC unroll 4
      for (int k = 0; k < blocks; ++k)
        x0[k] = _mm512_loadu_ps(x + place<reverse>(k)), x1[k] = _mm512_loadu_ps(x + place<reverse>(k) + 16);
      if constexpr (kIsProduct)
        if (!are_moderate(x0, x1)) return false;
#pragma GCC unroll 4
      for (int k = 0; k < blocks; ++k) {
        const __m512 ab = _mm512_permutex2var_ps(x0[k], places.ab, x1[k]),
                     cd = _mm512_permutex2var_ps(x0[k], places.cd, x1[k]);
        a[k] = low(ab), b[k] = high(ab), c[k] = low(cd), d[k] = high(cd);
      }
      const auto each = [&](auto step) {
#pragma GCC unroll 4
        for (int k = 0; k < blocks; ++k) step(k);
      };
      each([&](int k) { b[k] = combine(a[k], b[k]); });
      each([&](int k) { c[k] = combine(b[k], c[k]); });
      each([&](int k) { d[k] = combine(c[k], d[k]); });
      each([&](int k) { lanes[k] = combine(up<1>(d[k]), d[k]); });
      each([&](int k) { lanes[k] = combine(up<2>(lanes[k]), lanes[k]); });
      each([&](int k) { lanes[k] = combine(up<4>(lanes[k]), lanes[k]); });
      return true;
    }
    /// The total after the blocks.
    template <bool exclusive, bool reverse>
    __m512d write(__m512d before, float* y, const Places& places, bool streams) const {
      const __m512i last = _mm512_set1_epi64(7);
      __m512 y0[blocks], y1[blocks];
#pragma GCC unroll 4
      for (int k = 0; k < blocks; ++k) {
        const __m512d base = combine(before, up<1>(lanes[k]));
        before = combine(before, _mm512_permutexvar_pd(last, lanes[k]));
        const __m512d ya = exclusive ? base : combine(base, a[k]), yb = combine(base, exclusive ? a[k] : b[k]);
        const __m512d yc = combine(base, exclusive ? b[k] : c[k]), yd = combine(base, exclusive ? c[k] : d[k]);
        const __m512 yab = narrow(ya, yb), ycd = narrow(yc, yd);
        y0[k] = _mm512_permutex2var_ps(yab, places.first, ycd);
        y1[k] = _mm512_permutex2var_ps(yab, places.second, ycd);
      }
      // Behind one branch for all: the compiler would move the steps of a block behind the branch of the one before it.
      const auto put = [&](auto store) {
#pragma GCC unroll 4
        for (int k = 0; k < blocks; ++k) store(y + place<reverse>(k), y0[k]), store(y + place<reverse>(k) + 16, y1[k]);
      };
      if (streams)
        put([](float* to, __m512 v) { _mm512_stream_ps(to, v); });
      else
        put([](float* to, __m512 v) { _mm512_storeu_ps(to, v); });
      return before;
    }
  };

  template <bool exclusive, bool reverse>
  static double one_by_one(const float* x, float* y, std::int64_t begin, std::int64_t end, std::int64_t count,
                           double total) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t place = reverse ? count - 1 - i : i;
      const double next = Op::combine(total, double{x[place]});
      y[place] = static_cast<float>(exclusive ? total : next);
      total = next;
    }
    return total;
  }

  template <bool exclusive, bool reverse>
  static void run(const void* from, const void* ahead, void* to, std::int64_t count, void* carry, bool streams) {
    const auto *const x = static_cast<const float*>(from), *const next = static_cast<const float*>(ahead);
    auto* const y = static_cast<float*>(to);
    auto* const total = static_cast<double*>(carry);
    // Stores past the caches write whole lines.
    const auto line = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(reverse ? y + count : y) / 4 % 16);
    std::int64_t i = 0;
    if (streams && line != 0) {
      const std::int64_t head = reverse ? line : 16 - line;
      i = head < count ? head : count;
      *total = one_by_one<exclusive, reverse>(x, y, 0, i, count, *total);
    }
    const Places places(reverse);
    __m512d before = _mm512_set1_pd(*total);
    const auto blocks = [&]<int blocks>(std::integral_constant<int, blocks>) {
      const std::int64_t size = blocks * kBlock, at = reverse ? count - i - size : i;
      for (std::int64_t line = 0; line < size; line += 16)
        _mm_prefetch(reinterpret_cast<const char*>(next + at + line), _MM_HINT_T1);
      Blocks<blocks> some;
      if (!some.template read<reverse>(x + at, places)) return false;
      before = some.template write<exclusive, reverse>(before, y + at, places, streams);
      i += size;
      return true;
    };
    const auto one = [&] {
      if (!blocks(std::integral_constant<int, 1>{})) {
        before = _mm512_set1_pd(one_by_one<exclusive, reverse>(x, y, i, i + kBlock, count, before[0]));
        i += kBlock;
      }
    };
    while (i + kBeside * kBlock <= count)
      if (!blocks(std::integral_constant<int, kBeside>{}))
        for (int k = 0; k < kBeside; ++k) one();
    while (i + kBlock <= count) one();
    *total = one_by_one<exclusive, reverse>(x, y, i, count, count, before[0]);
  }

  static void total(const void* from, std::int64_t count, void* result) {
    constexpr int kBeside = 4, kLanes = 8;
    const auto* const x = static_cast<const float*>(from);
    __m512d totals[kBeside];
    for (__m512d& each : totals) each = _mm512_set1_pd(Op::kIdentity);
    std::int64_t i = 0;
    for (; i + kBeside * kLanes <= count; i += kBeside * kLanes)
#pragma GCC unroll 4
      for (int k = 0; k < kBeside; ++k)
        totals[k] = combine(totals[k], _mm512_cvtps_pd(_mm256_loadu_ps(x + i + k * kLanes)));
    const __m512d some = combine(combine(totals[0], totals[1]), combine(totals[2], totals[3]));
    double all = fold<double, kLanes>((V<double, kLanes>)some, [](auto a, auto b) { return Op::combine(a, b); });
    for (; i < count; ++i) all = Op::combine(all, double{x[i]});
    *static_cast<double*>(result) = all;
  }
};

/// As RunningTotal<Op, float, float, double>::step.
template <class Op, bool exclusive>
void step_floats(const void* from, const void* ahead, void* to, std::int64_t count, void* carries, bool streams) {
  const auto *const x = static_cast<const float*>(from), *const next = static_cast<const float*>(ahead);
  auto* const y = static_cast<float*>(to);
  auto* const totals = static_cast<double*>(carries);
  const bool past = streams && reinterpret_cast<std::uintptr_t>(y) % 64 == 0;
  std::int64_t c = 0;
  for (; c + 16 <= count; c += 16) {
    _mm_prefetch(reinterpret_cast<const char*>(next + c), _MM_HINT_T1);
    const auto half = [&](std::int64_t at) {
      const __m512d before = _mm512_loadu_pd(totals + at);
      const __m512d after = Op::combine(before, _mm512_cvtps_pd(_mm256_loadu_ps(x + at)));
      _mm512_storeu_pd(totals + at, after);
      return _mm512_cvtpd_ps(exclusive ? before : after);
    };
    const __m256 low = half(c), high = half(c + 8);
    const __m512 both = _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
    if (past)
      _mm512_stream_ps(y + c, both);
    else
      _mm512_storeu_ps(y + c, both);
  }
  for (; c < count; ++c) {
    const double before = totals[c];
    totals[c] = Op::combine(before, double{x[c]});
    y[c] = static_cast<float>(exclusive ? before : totals[c]);
  }
}

template <class Op>
void fill_scans_of_floats(ScanParts (&parts)[kTypeCount]) {
  using Floats = RunningFloats<Op>;
  ScanParts& mine = parts[static_cast<std::size_t>(DType::f32)];
  mine.run[0][0] = Floats::template run<false, false>;
  mine.run[0][1] = Floats::template run<false, true>;
  mine.run[1][0] = Floats::template run<true, false>;
  mine.run[1][1] = Floats::template run<true, true>;
  mine.total = Floats::total;
  mine.step[0] = step_floats<Op, false>;
  mine.step[1] = step_floats<Op, true>;
  mine.streams = true;
}

}  // namespace
}  // namespace weft::cpu
