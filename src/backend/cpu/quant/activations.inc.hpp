// Panels of activations for the kernels of tile.inc.hpp; kernels.hpp describes their layout.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/quant/kernels.hpp"
#include "backend/cpu/vector.inc.hpp"

namespace weft::cpu {
namespace {

constexpr int kPackedRowsMax = 16;                    // of a panel
constexpr int kBlockVectors = kQuantBlock / kFloats;  // of 16 elements or fewer, so that halves of a block are vectors

inline void load_block(const float* x, std::int64_t count, float* block) {
  for (std::int64_t i = 0; i < kQuantBlock; ++i) block[i] = i < count ? x[i] : 0.0f;
}

/// Folds to four lanes, which are joined for all rows at once, because the last steps of a fold depend on each other.
template <class T, int N, class Combine>
inline V<T, 4> fold_to_four(V<T, N> x, Combine combine) {
  if constexpr (N == 4) {
    return x;
  } else {
    using Half = std::make_integer_sequence<int, N / 2>;
    return fold_to_four<T, N / 2>(combine(part_of<T, N, 0>(x, Half()), part_of<T, N, N / 2>(x, Half())), combine);
  }
}

constexpr auto kGreater = [](auto a, auto b) { return a > b ? a : b; };
constexpr auto kSum = [](auto a, auto b) { return a + b; };

/// The bits of the highest and of the lowest number of a block, or of 0 and -0, each among four. As integers, NaN is
/// above infinity and that above every number; signed ones see positive numbers only, unsigned ones find the lowest of
/// the negative.
inline void range_of(const float* block, V<std::int32_t, 4>* highest, V<std::uint32_t, 4>* lowest) {
  I high = {};
  U low = splat<kFloats>(0x80000000u);
  for (int v = 0; v < kBlockVectors; ++v) {
    const F x = load<kFloats>(block + v * kFloats);
    high = kGreater((I)x, high);
    low = kGreater((U)x, low);
  }
  *highest = fold_to_four<std::int32_t, kFloats>(high, kGreater);
  *lowest = fold_to_four<std::uint32_t, kFloats>(low, kGreater);
}

constexpr int kUnits = kPackedRowsMax;  // blocks of rows that are packed side by side
template <class T>
using Units = V<T, kUnits>;

/// Fours of 4 units, each folded to one that is repeated four times.
template <class T, class Combine>
inline Units<T> fold_fours(const V<T, 4> (&fours)[4], Combine combine) {
  constexpr auto kJoined = [](auto x, auto y) {
    if constexpr (sizeof x == 4 * sizeof(T))
      return __builtin_shufflevector(x, y, 0, 1, 2, 3, 4, 5, 6, 7);
    else
      return __builtin_shufflevector(x, y, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  };
  Units<T> x = kJoined(kJoined(fours[0], fours[1]), kJoined(fours[2], fours[3]));
  x = combine(x, __builtin_shufflevector(x, x, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14));
  return combine(x, __builtin_shufflevector(x, x, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13));
}

/// What four of those give, unit after unit.
template <class T>
inline Units<T> merge_folded(const Units<T> (&part)[4]) {
  constexpr auto kEvenOdd = [](Units<T> x, Units<T> y) {
    return __builtin_shufflevector(x, y, 0, 17, 2, 19, 4, 21, 6, 23, 8, 25, 10, 27, 12, 29, 14, 31);
  };
  const Units<T> x = __builtin_shufflevector(kEvenOdd(part[0], part[1]), kEvenOdd(part[2], part[3]), 0, 1, 18, 19, 4, 5,
                                             22, 23, 8, 9, 26, 27, 12, 13, 30, 31);
  return __builtin_shufflevector(x, x, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
}

/// The scales of blocks with those ranges, and what their elements are multiplied by. `full`: integers down to -128, a step
/// of 1/128 of the largest and not 1/127. The sign of a scale is such that the largest becomes the -128.
template <bool full>
inline void scales_of(I highest, U lowest, F* scale, F* inverse) {
  const U high_bits = (U)highest, low_bits = lowest & 0x7FFFFFFFu;
  const auto up = high_bits > low_bits;
  const F most = (F)(up ? high_bits : low_bits), other = (F)(up ? low_bits : high_bits);
  F step = most / (full ? 128.0f : 127.0f);
  if constexpr (full) {
    const F second = other / 127.49f;  // the other end must not round to 128
    step = step > second ? step : second;
  }
  const F signed_step = full ? (up ? -step : step) : step;
  const F quotient = step > F{} ? splat(1.0f) / signed_step : F{};
  // The products of a denormal block are far below the precision of f32 sums. A block that is not finite has no scale.
  const U magnitude = (U)quotient & 0x7FFFFFFFu, limit = splat<kFloats>(__builtin_bit_cast(std::uint32_t, 3.0e38f));
  *inverse = magnitude <= limit ? quotient : F{};
  const F usable = magnitude <= limit ? signed_step : F{};
  *scale = (U)most >= 0x7F800000u ? splat(__builtin_nanf("")) : usable;
}

/// A block of integers that fit.
inline void store_bytes(const I (&integers)[kBlockVectors], std::int8_t* q) {
#if defined(__AVX2__) && !defined(__AVX512F__)
  const __m256i low = _mm256_packs_epi32((__m256i)integers[0], (__m256i)integers[1]);
  const __m256i high = _mm256_packs_epi32((__m256i)integers[2], (__m256i)integers[3]);
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);  // packing goes by halves of a vector
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), order));
#else
  for (int v = 0; v < kBlockVectors; ++v)
    store<kFloats>(q + v * kFloats, __builtin_convertvector(integers[v], V<std::int8_t, kFloats>));
#endif
}

/// The integers of a block, and their sums in each half, each as four that are not summed yet.
inline void round_block(const float* block, float inverse, std::int8_t* q, V<std::int32_t, 4>* first,
                        V<std::int32_t, 4>* second) {
  I half[2] = {}, integers[kBlockVectors];
  for (int v = 0; v < kBlockVectors; ++v) {
    // A block without a scale may contain NaN.
    const F scaled = inverse == 0 ? F{} : load<kFloats>(block + v * kFloats) * splat(inverse);
    integers[v] = __builtin_convertvector(round_even(scaled), I);
    half[2 * v / kBlockVectors] += integers[v];
  }
  store_bytes(integers, q);
  *first = fold_to_four<std::int32_t, kFloats>(half[0], kSum);
  *second = fold_to_four<std::int32_t, kFloats>(half[1], kSum);
}

/// Some blocks of all rows at a time, in three passes: ranges; scales, which are divisions side by side; integers.
/// `kHeight`: the height as a constant, or 0.
template <bool full, int kHeight>
inline void pack_blocks(const float* x, std::int64_t x_row, int rows, int asked, std::int64_t k, std::byte* panel) {
  const int height = kHeight > 0 ? kHeight : asked;
  const std::int64_t blocks = (k + kQuantBlock - 1) / kQuantBlock, block_bytes = 60 * height, at_once = kUnits / height;
  for (std::int64_t first = 0; first < blocks; first += at_once, panel += at_once * block_bytes) {
    // Units are in the order of memory: block after block, row after row. They go by fours; the last may be none.
    const int units = static_cast<int>(blocks - first < at_once ? blocks - first : at_once) * height;
    const int quads = (units + 3) / 4;
    float padded[kUnits][kQuantBlock];
    std::int8_t unused[kQuantBlock];
    const float* from[kUnits];
    std::int8_t* to[kUnits];
    for (int u = 0, r = 0, b = 0; u < 4 * quads; ++u) {
      const std::int64_t begin = (first + b) * kQuantBlock;
      const std::int64_t count = u < units && r < rows ? k - begin : 0;
      from[u] = x + r * x_row + begin;
      to[u] = u < units ? reinterpret_cast<std::int8_t*>(panel + b * block_bytes) + 32 * r : unused;
      if (count < kQuantBlock) {
        load_block(from[u], count, padded[u]);
        from[u] = padded[u];
      }
      if (++r == height) r = 0, ++b;
    }
    Units<std::int32_t> highest[4] = {}, sums[2][4] = {};
    Units<std::uint32_t> lowest[4] = {};
    for (int q = 0; q < quads; ++q) {
      V<std::int32_t, 4> high[4];
      V<std::uint32_t, 4> low[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) range_of(from[4 * q + i], &high[i], &low[i]);
      highest[q] = fold_fours<std::int32_t>(high, kGreater);
      lowest[q] = fold_fours<std::uint32_t>(low, kGreater);
    }
    std::int32_t high[kUnits], minus_sums[3][kUnits];
    std::uint32_t low[kUnits];
    float scales[kUnits], inverse[kUnits], scaled_sums[3][kUnits];
    store<kUnits>(high, merge_folded<std::int32_t>(highest));
    store<kUnits>(low, merge_folded<std::uint32_t>(lowest));
    for (int u = 0; u < kUnits; u += kFloats) {
      F scale, factor;
      scales_of<full>(load<kFloats>(high + u), load<kFloats>(low + u), &scale, &factor);
      store<kFloats>(scales + u, scale);
      store<kFloats>(inverse + u, factor);
    }
    for (int q = 0; q < quads; ++q) {
      V<std::int32_t, 4> halves[2][4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i)
        round_block(from[4 * q + i], inverse[4 * q + i], to[4 * q + i], &halves[0][i], &halves[1][i]);
      for (int half = 0; half < 2; ++half) sums[half][q] = fold_fours<std::int32_t>(halves[half], kSum);
    }
    Units<std::int32_t> totals[3] = {merge_folded<std::int32_t>(sums[0]), merge_folded<std::int32_t>(sums[1])};
    totals[2] = totals[0] + totals[1];
    for (int kind = 0; kind < 3; ++kind) {
      store<kUnits>(minus_sums[kind], -totals[kind]);
      store<kUnits>(scaled_sums[kind], load<kUnits>(scales) * __builtin_convertvector(totals[kind], Units<float>));
    }
    std::byte* block = panel;
    for (int u = 0; u < units; u += height, block += block_bytes) {
      float* to_scales = reinterpret_cast<float*>(block + 32 * height);
      std::int32_t* to_minus = reinterpret_cast<std::int32_t*>(block + 36 * height);
      float* to_scaled = reinterpret_cast<float*>(block + 48 * height);
      for (int r = 0; r < height; ++r) {
        to_scales[r] = scales[u + r];
        for (int kind = 0; kind < 3; ++kind) {
          to_minus[kind * height + r] = minus_sums[kind][u + r];
          to_scaled[kind * height + r] = scaled_sums[kind][u + r];
        }
      }
    }
  }
}

template <bool full>
void pack_eight_bit(const float* x, std::int64_t x_row, int rows, int height, std::int64_t k, std::byte* panel) {
  switch (height) {
    case 1: return pack_blocks<full, 1>(x, x_row, rows, height, k, panel);
    case kUnits: return pack_blocks<full, kUnits>(x, x_row, rows, height, k, panel);
    default: return pack_blocks<full, 0>(x, x_row, rows, height, k, panel);
  }
}

[[maybe_unused]] void pack_exact(const float* x, std::int64_t x_row, int rows, int height, std::int64_t k,
                                 std::byte* panel) {
  float* to = reinterpret_cast<float*>(panel);
  for (std::int64_t first = 0; first < k; first += kQuantBlock, to += 35 * height) {
    for (int r = 0; r < height; ++r) {
      float* row = to + 32 * r;
      load_block(x + r * x_row + first, r >= rows ? 0 : k - first < kQuantBlock ? k - first : kQuantBlock, row);
      float sums[2];
      for (int half = 0; half < 2; ++half) {
        float part[4] = {0, 0, 0, 0};
        for (int i = 0; i < 16; ++i) part[i % 4] += row[16 * half + i];
        sums[half] = (part[0] + part[2]) + (part[1] + part[3]);
      }
      to[32 * height + r] = sums[0];
      to[33 * height + r] = sums[1];
      to[34 * height + r] = sums[0] + sums[1];
    }
  }
}

}  // namespace
}  // namespace weft::cpu
