// The kernels of QuantKernels, written once over a vector type and compiled once per instruction set. As in
// gemm_tile.inc.hpp everything has internal linkage, and no inline function of the standard library is used.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/quant/activations.inc.hpp"

namespace weft::cpu {
namespace {

/// Weights are fetched this far ahead of their use while a product waits for memory.
constexpr std::int64_t kQuantAhead = 512;

// --- Weights of a block, `V::kLanes` columns from `column` on.

/// Word `g` (a constant after unrolling) of a block's values.
template <class V, QuantFormat f>
inline typename V::Int weight_word(const std::byte* values, int g, int column) {
  using Int = typename V::Int;
  if constexpr (f.values == QuantValues::byte) {
    return V::load_int(values + 64 * g + 4 * column);
  } else {
    const Int both = V::load_int(values + 64 * (g % 4) + 4 * column);
    Int word = g < 4 ? V::low_nibbles(both) : V::high_nibbles(both);
    if constexpr (f.values == QuantValues::iq4_table) word = V::look_up(kIq4Values, word);
    if constexpr (f.values == QuantValues::e2m1_table) word = V::look_up(kE2m1Values, word);
    if constexpr (f.planes() > 0) word = V::add_bits(word, values + 256 + 8 * g, column, 16);
    if constexpr (f.planes() > 1) word = V::add_bits(word, values + 320 + 8 * g, column, 32);
    return word;
  }
}

/// The scale of block `i` of a chunk, whose scales begin at `scales`; `sub` counts the scales of a block.
template <class V, QuantFormat f>
inline typename V::Float weight_scale(const std::byte* scales, std::int64_t i, int sub, int column) {
  if constexpr (f.scales == QuantScales::half) {
    return V::load_f16(scales + 32 * i + 2 * column);
  } else if constexpr (f.scales == QuantScales::single) {
    return V::load(reinterpret_cast<const float*>(scales) + column);
  } else {
    const std::byte* codes = scales + 32 * (f.has_minimum ? 2 : 1);
    return V::multiply(V::load_f16(scales + 2 * column),
                       V::load_i8(codes + 16 * (i * f.scales_per_block + sub) + column));
  }
}

template <class V, QuantFormat f>
inline typename V::Float weight_minimum(const std::byte* scales, std::int64_t i, int sub, int column) {
  static_assert(f.has_minimum);
  if constexpr (f.scales == QuantScales::half) {
    return V::load_f16(scales + 64 + 32 * i + 2 * column);
  } else {
    const std::byte* codes = scales + 64 + 16 * kQuantSuper * f.scales_per_block;
    return V::multiply(V::load_f16(scales + 32 + 2 * column),
                       V::load_i8(codes + 16 * (i * f.scales_per_block + sub) + column));
  }
}

/// Prefetches memory that a product of few rows reads some blocks later: a block's share of its chunk.
template <QuantFormat f, int kRows>
inline void fetch_ahead(const std::byte* values) {
  constexpr std::int64_t kShare = (f.chunk_bytes() / f.chunk_blocks() + 63) / 64 * 64;
  if constexpr (kRows <= 4)
    for (std::int64_t line = 0; line < kShare; line += 64) __builtin_prefetch(values + kQuantAhead + line);
}

template <class V>
inline void store_columns(float* y, typename V::Float value, std::int64_t columns) {
  if (columns >= V::kLanes) {
    V::store(y, value);
  } else {
    alignas(64) float lanes[V::kLanes];
    V::store(lanes, value);
    for (std::int64_t j = 0; j < columns; ++j) y[j] = lanes[j];
  }
}

// --- Activations of eight bits.

/// The integers of one scale's elements: acc[r][v] = sum over words of x * (q - zero).
template <class V, QuantFormat f, int kRows, int kVectors>
inline void dot_words(const std::byte* values, const std::byte* x, const std::int32_t* minus_sums, int first, int last,
                      int column, typename V::Int (&acc)[kRows][kVectors]) {
  using Int = typename V::Int;
  if constexpr (V::kHasDot) {
    // Where instructions take signed bytes only, q - 128 is one.
    constexpr bool kCentred = V::kDotIsSigned && f.max > 127;
    static_assert(!kCentred || f.zero() == 128);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v)
        acc[r][v] = kCentred || f.zero_shift < 0 ? V::zero_int() : V::template shift_left<f.zero_shift>(minus_sums + r);
#pragma GCC unroll 8
    for (int g = first; g < last; ++g)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        Int word = weight_word<V, f>(values, g, column + v * V::kLanes);
        if constexpr (kCentred) word = V::flip_top_bits(word);
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) acc[r][v] = V::dot(acc[r][v], word, V::broadcast_int(x + 32 * r + 4 * g));
      }
  } else if constexpr (f.max <= 127) {
    // Sums of pairs of products have 16 bits; as many as cannot overflow are added before they are widened.
    constexpr int kFits = f.max <= 15 ? 8 : f.max <= 31 ? 4 : f.max <= 63 ? 2 : 1;
    constexpr int kWords = 8 / f.scales_per_block, kChunk = kFits < kWords ? kFits : kWords;
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v)
        acc[r][v] = f.zero_shift < 0 ? V::zero_int() : V::template shift_left<f.zero_shift>(minus_sums + r);
#pragma GCC unroll 8
    for (int chunk = first; chunk < last; chunk += kChunk)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        Int pairs[kRows];
#pragma GCC unroll 8
        for (int i = 0; i < kChunk; ++i) {
          const int g = chunk + i;
          const Int word = weight_word<V, f>(values, g, column + v * V::kLanes);
#pragma GCC unroll 16
          for (int r = 0; r < kRows; ++r) {
            const Int product = V::multiply_pairs(word, V::broadcast_int(x + 32 * r + 4 * g));
            pairs[r] = i == 0 ? product : V::add_i16(pairs[r], product);
          }
        }
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) acc[r][v] = V::add_i32(acc[r][v], V::widen_pairs(pairs[r]));
      }
  } else {
    // Bytes that fill their range: |q - 128| times x with its sign, whose pairs just fit 16 bits.
    static_assert(f.zero() == 128);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) acc[r][v] = V::zero_int();
#pragma GCC unroll 8
    for (int g = first; g < last; ++g)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const Int word = V::flip_top_bits(weight_word<V, f>(values, g, column + v * V::kLanes));
        const Int magnitude = V::magnitude(word);
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) {
          const Int x_signed = V::with_sign_of(V::broadcast_int(x + 32 * r + 4 * g), word);
          acc[r][v] = V::add_i32(acc[r][v], V::widen_pairs(V::multiply_pairs(magnitude, x_signed)));
        }
      }
  }
}

/// The first `kRuns * groups` groups of 16 columns, in this many runs of memory side by side, because the processor prefetches
/// only a limited distance in each.
template <class V, QuantFormat f, int kRows, int kRuns>
void tile_eight_bit_runs(const QuantTile& tile, std::int64_t groups) {
  using Float = typename V::Float;
  // Few rows take all columns of a group at once, so that memory is read sequentially; many rows take as many as fit registers.
  constexpr int kVectors = kRows <= V::kWholeGroupRows ? kQuantGroup / V::kLanes : 1;
  constexpr int kWords = 8 / f.scales_per_block;
  constexpr std::int64_t kValueBytes = f.value_bytes(), kScaleBytes = f.scale_bytes();
  constexpr int kChunk = f.chunk_blocks();
  const std::int64_t run_bytes = groups * tile.group_bytes, run_columns = groups * kQuantGroup;
  for (std::int64_t group = 0; group < groups; ++group) {
    const std::byte* first = tile.weights + group * tile.group_bytes;
    float* y = tile.y + group * kQuantGroup;
    for (int column = 0; column < kQuantGroup; column += kVectors * V::kLanes) {
      Float sum[kRuns][kRows][kVectors];
#pragma GCC unroll 4
      for (int s = 0; s < kRuns; ++s)
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
          for (int v = 0; v < kVectors; ++v) sum[s][r][v] = V::zero();

      const std::byte* scales = first;
      const std::byte* values = first + kScaleBytes;
      const std::byte* x = tile.x;
      for (std::int64_t block = 0; block < tile.blocks; ++block) {
        const float* x_scales = reinterpret_cast<const float*>(x + 32 * kRows);
        const std::int32_t* minus_sums = reinterpret_cast<const std::int32_t*>(x + 36 * kRows);
        const float* scaled_sums = reinterpret_cast<const float*>(x + 48 * kRows);
#pragma GCC unroll 4
        for (int s = 0; s < kRuns; ++s) {
          const std::byte* run_values = values + s * run_bytes;
          const std::byte* run_scales = scales + s * run_bytes;
          fetch_ahead<f, kRows>(run_values);
#pragma GCC unroll 2
          for (int sub = 0; sub < f.scales_per_block; ++sub) {
            const int kind = f.scales_per_block == 1 ? 2 : sub;
            typename V::Int acc[kRows][kVectors];
            dot_words<V, f, kRows, kVectors>(run_values, x, minus_sums + kind * kRows, sub * kWords, (sub + 1) * kWords,
                                             column, acc);
#pragma GCC unroll 4
            for (int v = 0; v < kVectors; ++v) {
              const Float scale = weight_scale<V, f>(run_scales, block & (kChunk - 1), sub, column + v * V::kLanes);
#pragma GCC unroll 16
              for (int r = 0; r < kRows; ++r)
                sum[s][r][v] = V::multiply_add(V::multiply(scale, V::broadcast(x_scales + r)), V::to_float(acc[r][v]),
                                               sum[s][r][v]);
              if constexpr (f.has_minimum) {
                const Float minimum =
                    weight_minimum<V, f>(run_scales, block & (kChunk - 1), sub, column + v * V::kLanes);
#pragma GCC unroll 16
                for (int r = 0; r < kRows; ++r)
                  sum[s][r][v] = V::multiply_add(minimum, V::broadcast(scaled_sums + kind * kRows + r), sum[s][r][v]);
              }
            }
          }
        }
        values += kValueBytes;
        if ((block & (kChunk - 1)) == kChunk - 1) {
          scales = values;
          values += kScaleBytes;
        }
        x += 60 * kRows;
      }
#pragma GCC unroll 4
      for (int s = 0; s < kRuns; ++s)
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r)
          if (r < tile.rows)
#pragma GCC unroll 4
            for (int v = 0; v < kVectors; ++v) {
              const std::int64_t at = s * run_columns + column + v * V::kLanes;
              store_columns<V>(y + r * tile.y_row + at, sum[s][r][v], tile.columns - group * kQuantGroup - at);
            }
    }
  }
}

template <class V, QuantFormat f, int kRows>
void tile_eight_bit(const QuantTile& tile) {
  constexpr int kRuns = kRows == 1 ? V::kRuns : 1;
  const std::int64_t groups = (tile.columns + kQuantGroup - 1) / kQuantGroup, each = groups / kRuns;
  tile_eight_bit_runs<V, f, kRows, kRuns>(tile, each);
  if constexpr (kRuns > 1) {
    const std::int64_t done = kRuns * each;
    QuantTile rest = tile;
    rest.weights += done * tile.group_bytes;
    rest.y += done * kQuantGroup;
    rest.columns -= done * kQuantGroup;
    tile_eight_bit_runs<V, f, kRows, 1>(rest, groups - done);
  }
}

// --- Activations as they are.

template <class V, QuantFormat f, int kRows>
void tile_exact(const QuantTile& tile) {
  using Float = typename V::Float;
  using Int = typename V::Int;
  constexpr int kWords = 8 / f.scales_per_block, kZero = f.zero();
  constexpr std::int64_t kValueBytes = f.value_bytes(), kScaleBytes = f.scale_bytes();
  constexpr int kChunk = f.chunk_blocks();
  const std::byte* group = tile.weights;
  float* y = tile.y;
  for (std::int64_t columns = tile.columns; columns > 0; columns -= kQuantGroup) {
    for (int column = 0; column < kQuantGroup; column += V::kLanes) {
      Float sum[kRows];
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) sum[r] = V::zero();
      const std::byte* scales = group;
      const std::byte* values = group + kScaleBytes;
      const float* x = reinterpret_cast<const float*>(tile.x);
      for (std::int64_t block = 0; block < tile.blocks; ++block) {
        fetch_ahead<f, kRows>(values);
        const float* x_sums = x + 32 * kRows;
#pragma GCC unroll 2
        for (int sub = 0; sub < f.scales_per_block; ++sub) {
          // Two chains of additions a row, so that one row alone does not wait for each sum.
          Float part[kRows][2];
#pragma GCC unroll 16
          for (int r = 0; r < kRows; ++r) part[r][0] = part[r][1] = V::zero();
#pragma GCC unroll 8
          for (int g = sub * kWords; g < (sub + 1) * kWords; ++g) {
            const Int word = weight_word<V, f>(values, g, column);
#pragma GCC unroll 4
            for (int t = 0; t < 4; ++t) {
              const Float weight = V::to_float(V::subtract(V::byte_of(word, t), kZero));
#pragma GCC unroll 16
              for (int r = 0; r < kRows; ++r)
                part[r][t % 2] = V::multiply_add(weight, V::broadcast(x + 32 * r + 4 * g + t), part[r][t % 2]);
            }
          }
          const Float scale = weight_scale<V, f>(scales, block & (kChunk - 1), sub, column);
#pragma GCC unroll 16
          for (int r = 0; r < kRows; ++r) sum[r] = V::multiply_add(scale, V::add(part[r][0], part[r][1]), sum[r]);
          if constexpr (f.has_minimum) {
            const int kind = f.scales_per_block == 1 ? 2 : sub;
            const Float minimum = weight_minimum<V, f>(scales, block & (kChunk - 1), sub, column);
#pragma GCC unroll 16
            for (int r = 0; r < kRows; ++r)
              sum[r] = V::multiply_add(minimum, V::broadcast(x_sums + kind * kRows + r), sum[r]);
          }
        }
        values += kValueBytes;
        if ((block & (kChunk - 1)) == kChunk - 1) {
          scales = values;
          values += kScaleBytes;
        }
        x += 35 * kRows;
      }
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r)
        if (r < tile.rows) store_columns<V>(y + r * tile.y_row + column, sum[r], columns - column);
    }
    group += tile.group_bytes;
    y += kQuantGroup;
  }
}

template <class V, QuantValues values>
inline typename V::Float plain_weight(const std::byte* at) {
  if constexpr (values == QuantValues::f16) return V::load_f16(at);
  if constexpr (values == QuantValues::bf16) return V::load_bf16(at);
  if constexpr (values == QuantValues::f32) return V::load(reinterpret_cast<const float*>(at));
}

template <class V, QuantFormat f, int kRows>
void tile_plain(const QuantTile& tile) {
  using Float = typename V::Float;
  constexpr std::int64_t kValueBytes = f.value_bytes();
  constexpr std::int64_t kBytes = kValueBytes / (kQuantGroup * kQuantBlock);
  const std::byte* group = tile.weights;
  float* y = tile.y;
  for (std::int64_t columns = tile.columns; columns > 0; columns -= kQuantGroup) {
    for (int column = 0; column < kQuantGroup; column += V::kLanes) {
      Float part[kRows][2];
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) part[r][0] = part[r][1] = V::zero();
      const std::byte* values = group + kBytes * column;
      const float* x = reinterpret_cast<const float*>(tile.x);
      for (std::int64_t block = 0; block < tile.blocks; ++block) {
        fetch_ahead<f, kRows>(values);
        for (int k = 0; k < kQuantBlock; k += 4)
#pragma GCC unroll 4
          for (int t = 0; t < 4; ++t) {
            const Float weight = plain_weight<V, f.values>(values + kBytes * kQuantGroup * (k + t));
#pragma GCC unroll 16
            for (int r = 0; r < kRows; ++r)
              part[r][t % 2] = V::multiply_add(weight, V::broadcast(x + 32 * r + k + t), part[r][t % 2]);
          }
        values += kValueBytes;
        x += 35 * kRows;
      }
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r)
        if (r < tile.rows)
          store_columns<V>(y + r * tile.y_row + column, V::add(part[r][0], part[r][1]), columns - column);
    }
    group += tile.group_bytes;
    y += kQuantGroup;
  }
}

// --- The table.

template <class V, int kType, int kHeight>
constexpr void fill_exact(QuantKernels& kernels) {
  constexpr QuantFormat f = quant_format(kQuantTypes[kType]);
  if constexpr (V::kExactHeights[kHeight] > 0) {
    if constexpr (f.is_plain()) {
      kernels.exact[kType][kHeight] = tile_plain<V, f, V::kExactHeights[kHeight]>;
    } else {
      kernels.exact[kType][kHeight] = tile_exact<V, f, V::kExactHeights[kHeight]>;
    }
  }
  if constexpr (kHeight + 1 < kQuantHeights) {
    fill_exact<V, kType, kHeight + 1>(kernels);
  } else if constexpr (kType + 1 < kQuantTypeCount) {
    fill_exact<V, kType + 1, 0>(kernels);
  }
}

template <class V, int kType, int kHeight>
constexpr void fill_eight_bit(QuantKernels& kernels) {
  constexpr QuantFormat f = quant_format(kQuantTypes[kType]);
  if constexpr (V::kEightBitHeights[kHeight] > 0 && !f.is_plain())
    kernels.eight_bit[kType][kHeight] = tile_eight_bit<V, f, V::kEightBitHeights[kHeight]>;
  if constexpr (kHeight + 1 < kQuantHeights) {
    fill_eight_bit<V, kType, kHeight + 1>(kernels);
  } else if constexpr (kType + 1 < kQuantTypeCount) {
    fill_eight_bit<V, kType + 1, 0>(kernels);
  }
}

/// `kernels` with the eight-bit ones of V in place of its own.
template <class V>
constexpr QuantKernels with_eight_bit(QuantKernels kernels) {
  kernels.name = V::kName;
  for (int i = 0; i < kQuantHeights; ++i) kernels.eight_bit_heights[i] = V::kEightBitHeights[i];
  kernels.has_dot = V::kHasDot;
  for (auto& heights : kernels.eight_bit)
    for (auto& tile : heights) tile = nullptr;
  fill_eight_bit<V, 0, 0>(kernels);
  return kernels;
}

template <class V>
constexpr QuantKernels make_quant_kernels() {
  QuantKernels kernels{};
  for (int i = 0; i < kQuantHeights; ++i) kernels.exact_heights[i] = V::kExactHeights[i];
  fill_exact<V, 0, 0>(kernels);
  kernels.pack_eight_bit[0] = pack_eight_bit<false>;
  kernels.pack_eight_bit[1] = pack_eight_bit<true>;
  kernels.pack_exact = pack_exact;
  return with_eight_bit<V>(kernels);
}

}  // namespace
}  // namespace weft::cpu
