// Panels of activations for the kernels of quant_tile.inc.hpp; their layout stands in quant_kernels.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/quant_kernels.hpp"
#include "backend/cpu/vector.inc.hpp"

namespace weft::cpu {
namespace {

constexpr int kPackedRowsMax = 16;                    // of a panel
constexpr int kBlockVectors = kQuantBlock / kFloats;  // of 16 elements or fewer, so that halves of a block are vectors

inline std::uint32_t bits_of(float value) { return __builtin_bit_cast(std::uint32_t, value); }

inline void load_block(const float* x, std::int64_t count, float* block) {
  for (std::int64_t i = 0; i < kQuantBlock; ++i) block[i] = i < count ? x[i] : 0.0f;
}

/// Folded to four lanes, which are joined for all rows at once: the last steps of a fold wait for each other.
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
inline void range_of(const float* block, std::int32_t* highest, std::uint32_t* lowest) {
  I high = {};
  U low = splat<kFloats>(0x80000000u);
  for (int v = 0; v < kBlockVectors; ++v) {
    const F x = load<kFloats>(block + v * kFloats);
    high = kGreater((I)x, high);
    low = kGreater((U)x, low);
  }
  store<4>(highest, fold_to_four<std::int32_t, kFloats>(high, kGreater));
  store<4>(lowest, fold_to_four<std::uint32_t, kFloats>(low, kGreater));
}

template <class T, class Combine>
inline T join_four(const T* four, Combine combine) {
  return combine(combine(four[0], four[1]), combine(four[2], four[3]));
}

/// The scale of a block with that range, and what its elements are multiplied by. `full`: integers down to -128, a step
/// of 1/128 of the largest and not 1/127. The sign of the scale is such that the largest becomes the -128.
template <bool full>
inline void scale_of(std::int32_t highest, std::uint32_t lowest, float* to_scale, float* to_inverse) {
  lowest &= 0x7FFFFFFFu;
  const float high = __builtin_bit_cast(float, highest), low = __builtin_bit_cast(float, lowest);
  const bool up = static_cast<std::uint32_t>(highest) > lowest;
  const float most = up ? high : low, other = up ? low : high;
  // The other end must not round to 128.
  const float step = full ? most / 128.0f > other / 127.49f ? most / 128.0f : other / 127.49f : most / 127.0f;
  float scale = full && up ? -step : step;
  float inverse = step > 0 ? 1.0f / scale : 0.0f;
  if (bits_of(most) >= 0x7F800000u) {
    scale = __builtin_nanf("");
    inverse = 0;
  } else if (!(inverse <= 3.0e38f && inverse >= -3.0e38f)) {
    scale = inverse = 0;  // a denormal block: its products are far below what f32 sums keep
  }
  *to_scale = scale;
  *to_inverse = inverse;
}

/// The integers of a block, and their sums in each half, each as four that are not summed yet.
inline void round_block(const float* block, float inverse, std::int8_t* q, std::int32_t* first, std::int32_t* second) {
  I half[2] = {};
  for (int v = 0; v < kBlockVectors; ++v) {
    // A block without a scale may hold NaN.
    const F scaled = inverse == 0 ? F{} : load<kFloats>(block + v * kFloats) * splat(inverse);
    const I integer = __builtin_convertvector(round_even(scaled), I);
    store<kFloats>(q + v * kFloats, __builtin_convertvector(integer, V<std::int8_t, kFloats>));
    half[2 * v / kBlockVectors] += integer;
  }
  store<4>(first, fold_to_four<std::int32_t, kFloats>(half[0], kSum));
  store<4>(second, fold_to_four<std::int32_t, kFloats>(half[1], kSum));
}

/// Block after block, each in three passes over its rows: ranges, scales, which are divisions side by side, and integers.
template <bool full>
void pack_eight_bit(const float* x, std::int64_t x_row, int rows, int height, std::int64_t k, std::byte* panel) {
  for (std::int64_t first = 0; first < k; first += kQuantBlock, panel += 60 * height) {
    float* scales = reinterpret_cast<float*>(panel + 32 * height);
    std::int32_t* minus_sums = reinterpret_cast<std::int32_t*>(panel + 36 * height);
    float* scaled_sums = reinterpret_cast<float*>(panel + 48 * height);
    float padded[kPackedRowsMax][kQuantBlock], inverse[kPackedRowsMax];
    const float* blocks[kPackedRowsMax];
    std::int32_t highest[kPackedRowsMax][4];
    std::uint32_t lowest[kPackedRowsMax][4];
    for (int r = 0; r < height; ++r) {
      blocks[r] = x + r * x_row + first;
      if (r >= rows || k - first < kQuantBlock) {
        load_block(blocks[r], r < rows ? k - first : 0, padded[r]);
        blocks[r] = padded[r];
      }
      range_of(blocks[r], highest[r], lowest[r]);
    }
    for (int r = 0; r < height; ++r)
      scale_of<full>(join_four(highest[r], kGreater), join_four(lowest[r], kGreater), &scales[r], &inverse[r]);
    std::int32_t fours[2][kPackedRowsMax][4], sums[3][kPackedRowsMax];
    for (int r = 0; r < height; ++r)
      round_block(blocks[r], inverse[r], reinterpret_cast<std::int8_t*>(panel) + 32 * r, fours[0][r], fours[1][r]);
    for (int half = 0; half < 2; ++half)
      for (int r = 0; r < height; ++r) sums[half][r] = join_four(fours[half][r], kSum);
    for (int r = 0; r < height; ++r) sums[2][r] = sums[0][r] + sums[1][r];
    for (int kind = 0; kind < 3; ++kind)
      for (int r = 0; r < height; ++r) {
        minus_sums[kind * height + r] = -sums[kind][r];
        scaled_sums[kind * height + r] = scales[r] * static_cast<float>(sums[kind][r]);
      }
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
