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
  static __m512d combine(__m512d a, __m512d b) { return Op::combine(a, b); }
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
  /// Whether no product of a block's numbers leaves the range of a double: they are zero, or between 2^-30 and 2^30.
  static bool is_moderate(__m512 x) {
    const __m512i bits = _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff));
    const __m512i above = _mm512_sub_epi32(bits, _mm512_set1_epi32((127 - 30) << 23));
    return (_mm512_cmple_epu32_mask(above, _mm512_set1_epi32(60 << 23)) | _mm512_testn_epi32_mask(bits, bits)) ==
           0xffff;
  }

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
    const __m512i ab = apart(0, reverse), cd = apart(2, reverse);
    const __m512i first = together(0, reverse), second = together(16, reverse), last = _mm512_set1_epi64(7);
    __m512d before = _mm512_set1_pd(*total);
    for (; i + kBlock <= count; i += kBlock) {
      const std::int64_t at = reverse ? count - i - kBlock : i;
      _mm_prefetch(reinterpret_cast<const char*>(next + at), _MM_HINT_T1);
      _mm_prefetch(reinterpret_cast<const char*>(next + at + 16), _MM_HINT_T1);
      const __m512 x0 = _mm512_loadu_ps(x + at), x1 = _mm512_loadu_ps(x + at + 16);
      if constexpr (kIsProduct) {
        if (!is_moderate(x0) || !is_moderate(x1)) {
          before = _mm512_set1_pd(one_by_one<exclusive, reverse>(x, y, i, i + kBlock, count, before[0]));
          continue;
        }
      }
      const __m512 xab = _mm512_permutex2var_ps(x0, ab, x1), xcd = _mm512_permutex2var_ps(x0, cd, x1);
      const __m512d a = low(xab), b = combine(a, high(xab)), c = combine(b, low(xcd)), d = combine(c, high(xcd));
      __m512d lanes = combine(up<1>(d), d);
      lanes = combine(up<2>(lanes), lanes);
      lanes = combine(up<4>(lanes), lanes);
      const __m512d base = combine(before, up<1>(lanes));
      const __m512d ya = exclusive ? base : combine(base, a), yb = combine(base, exclusive ? a : b);
      const __m512d yc = combine(base, exclusive ? b : c), yd = combine(base, exclusive ? c : d);
      before = combine(before, _mm512_permutexvar_pd(last, lanes));
      const __m512 yab = narrow(ya, yb), ycd = narrow(yc, yd);
      const __m512 y0 = _mm512_permutex2var_ps(yab, first, ycd), y1 = _mm512_permutex2var_ps(yab, second, ycd);
      if (streams) {
        _mm512_stream_ps(y + at, y0);
        _mm512_stream_ps(y + at + 16, y1);
      } else {
        _mm512_storeu_ps(y + at, y0);
        _mm512_storeu_ps(y + at + 16, y1);
      }
    }
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
