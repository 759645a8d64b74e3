// Products of many rows with tiles of integers: 16 rows by 16 columns by the elements of one scale in an instruction.
//
// The words of a block are rows of a right-hand tile unchanged, and a panel of 16 rows of x is a left-hand one. A group of
// weights is unpacked to bytes and floats once and is multiplied with all panels. Each element of y is summed in the order of
// tile_eight_bit, to the same bits. The tile instructions are a parameter, so that a test can run the code anywhere.
#pragma once

#include "backend/cpu/amx_tiles.inc.hpp"
#include "backend/cpu/quant/tile.inc.hpp"

namespace weft::cpu {
namespace {

/// Registers 0 to 3 hold sums, 4 and 5 rows of x, 6 and 7 weights; `k` elements are multiplied at once.
constexpr TileConfiguration tile_configuration(int k) {
  TileConfiguration c;
  for (int i = 0; i < 8; ++i) {
    c.rows[i] = static_cast<std::uint8_t>(i < 6 ? kTileRows : k / 4);
    c.row_bytes[i] = static_cast<std::uint16_t>(i == 4 || i == 5 ? k : 64);
  }
  return c;
}

/// Block after block: eight words, then for each of its scales 16 floats, then so for minimums.
template <class V, QuantFormat f>
void prepare_group(const std::byte* group, std::int64_t blocks, std::byte* to) {
  for (std::int64_t b = 0; b < blocks; ++b, to += kQuantScratchBytes) {
    const std::byte *scales = group + f.chunk_at(b), *values = group + f.values_at(b);
    const std::int64_t place = b % f.chunk_blocks();
    float* floats = reinterpret_cast<float*>(to + 512);
    for (int column = 0; column < kQuantGroup; column += V::kLanes) {
#pragma GCC unroll 8
      for (int g = 0; g < 8; ++g) V::store_int(to + 64 * g + 4 * column, weight_word<V, f>(values, g, column));
#pragma GCC unroll 2
      for (int sub = 0; sub < f.scales_per_block; ++sub) {
        V::store(floats + kQuantGroup * sub + column, weight_scale<V, f>(scales, place, sub, column));
        if constexpr (f.has_minimum)
          V::store(floats + kQuantGroup * (2 + sub) + column, weight_minimum<V, f>(scales, place, sub, column));
      }
    }
  }
}

/// The integers of a block: `out` gets [scale][16][16] sums of x q.
template <class Tiles, QuantFormat f, int kSlot>
inline void multiply_block(const std::byte* x, const std::byte* words, std::int32_t* out) {
  constexpr int k = kQuantBlock / f.scales_per_block;
  Tiles::template zero<2 * kSlot>();
  Tiles::template load<4>(x, kQuantBlock);
  Tiles::template load<6>(words, 64);
  Tiles::template multiply<2 * kSlot, 4, 6>();
  Tiles::template store<2 * kSlot>(out, 64);
  if constexpr (f.scales_per_block == 2) {
    Tiles::template zero<2 * kSlot + 1>();
    Tiles::template load<5>(x + k, kQuantBlock);
    Tiles::template load<7>(words + 64 * k / 4, 64);
    Tiles::template multiply<2 * kSlot + 1, 5, 7>();
    Tiles::template store<2 * kSlot + 1>(out + kTileRows * kQuantGroup, 64);
  }
}

/// The integers as floats, scaled, onto the sums.
template <class V, QuantFormat f, int kVectors>
inline void add_block(const std::int32_t* integers, const std::byte* x, const std::byte* prepared,
                      typename V::Float (&sum)[kTileRows][kVectors]) {
  const float* x_scales = reinterpret_cast<const float*>(x + 32 * kTileRows);
  const std::int32_t* minus_sums = reinterpret_cast<const std::int32_t*>(x + 36 * kTileRows);
  const float* scaled_sums = reinterpret_cast<const float*>(x + 48 * kTileRows);
  const float* floats = reinterpret_cast<const float*>(prepared + 512);
#pragma GCC unroll 2
  for (int sub = 0; sub < f.scales_per_block; ++sub) {
    const int kind = f.scales_per_block == 1 ? 2 : sub;
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const auto scale = V::load(floats + kQuantGroup * sub + v * V::kLanes);
#pragma GCC unroll 16
      for (int r = 0; r < kTileRows; ++r) {
        auto integer = V::load_int(
            reinterpret_cast<const std::byte*>(integers + kQuantGroup * (kTileRows * sub + r) + v * V::kLanes));
        if constexpr (f.zero_shift >= 0)
          integer = V::add_i32(integer, V::template shift_left<f.zero_shift>(minus_sums + kind * kTileRows + r));
        sum[r][v] = V::multiply_add(V::multiply(scale, V::broadcast(x_scales + r)), V::to_float(integer), sum[r][v]);
      }
      if constexpr (f.has_minimum) {
        const auto minimum = V::load(floats + kQuantGroup * (2 + sub) + v * V::kLanes);
#pragma GCC unroll 16
        for (int r = 0; r < kTileRows; ++r)
          sum[r][v] = V::multiply_add(minimum, V::broadcast(scaled_sums + kind * kTileRows + r), sum[r][v]);
      }
    }
  }
}

template <class V, class Tiles, QuantFormat f>
void tile_panels(const QuantTile& tile) {
  constexpr int kVectors = kQuantGroup / V::kLanes;
  static constexpr TileConfiguration kConfiguration = tile_configuration(kQuantBlock / f.scales_per_block);
  constexpr std::int64_t kXBytes = 60 * kTileRows;
  const std::int64_t blocks = tile.blocks;
  alignas(64) std::int32_t integers[2][2 * kTileRows * kQuantGroup];
  Tiles::configure(kConfiguration);
  const std::byte* group = tile.weights;
  float* y_group = tile.y;
  for (std::int64_t columns = tile.columns; columns > 0; columns -= kQuantGroup) {
    prepare_group<V, f>(group, blocks, tile.scratch);
    const std::byte* panel = tile.x;
    float* y = y_group;
    for (int rows = tile.rows; rows > 0; rows -= kTileRows) {
      typename V::Float sum[kTileRows][kVectors];
#pragma GCC unroll 16
      for (int r = 0; r < kTileRows; ++r)
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) sum[r][v] = V::zero();
      // The tiles of a block are multiplied while the integers of the previous block become floats.
      const std::byte *x = panel, *weights = tile.scratch;
      if (blocks > 0) multiply_block<Tiles, f, 0>(x, weights, integers[0]);
      for (std::int64_t b = 0; b < blocks; b += 2) {
        if (b + 1 < blocks) multiply_block<Tiles, f, 1>(x + kXBytes, weights + kQuantScratchBytes, integers[1]);
        add_block<V, f>(integers[0], x, weights, sum);
        if (b + 1 == blocks) break;
        x += kXBytes, weights += kQuantScratchBytes;
        if (b + 2 < blocks) multiply_block<Tiles, f, 0>(x + kXBytes, weights + kQuantScratchBytes, integers[0]);
        add_block<V, f>(integers[1], x, weights, sum);
        x += kXBytes, weights += kQuantScratchBytes;
      }
#pragma GCC unroll 16
      for (int r = 0; r < kTileRows; ++r)
        if (r < rows)
#pragma GCC unroll 4
          for (int v = 0; v < kVectors; ++v)
            store_columns<V>(y + r * tile.y_row + v * V::kLanes, sum[r][v], columns - v * V::kLanes);
      panel += tile.panel_bytes;
      y += kTileRows * tile.y_row;
    }
    group += tile.group_bytes;
    y_group += kQuantGroup;
  }
  Tiles::release();
}

template <class V, class Tiles, int kType = 0>
constexpr void fill_panels(QuantKernels& kernels, int height) {
  constexpr QuantFormat f = quant_format(kQuantTypes[kType]);
  if constexpr (!f.is_plain()) kernels.eight_bit[kType][height] = tile_panels<V, Tiles, f>;
  if constexpr (kType + 1 < kQuantTypeCount) fill_panels<V, Tiles, kType + 1>(kernels, height);
}

/// Other kernels, with panels of 16 rows as tiles.
template <class V, class Tiles>
constexpr QuantKernels with_tiles(QuantKernels kernels, const char* name) {
  kernels.name = name;
  int height = 0;
  while (height + 1 < kQuantHeights && kernels.eight_bit_heights[height] > 0) ++height;
  kernels.eight_bit_heights[height] = kTileRows;
  kernels.panels_together = true;
  fill_panels<V, Tiles>(kernels, height);
  return kernels;
}

}  // namespace
}  // namespace weft::cpu
