// The kernels of GemmKernels<float> for pairs of bf16 on tiles of AMX. The pairs that whole tiles leave over are copied beside
// zeros, so that one more tile takes them.
#pragma once

#include "backend/cpu/gemm_avx512.inc.hpp"
#include "backend/cpu/tile_block.inc.hpp"

namespace weft::cpu {
namespace {

template <class Tiles, int kRows, int kVectors, bool kInBlocks>
void bf16_tile(std::int64_t depth, const float* a, std::int64_t a_stride, const float* b, std::int64_t b_stride,
               float* c, std::int64_t c_stride, int last, bool accumulate) {
  const std::int64_t a_row = kInBlocks ? kTileWords : a_stride, a_step = kInBlocks ? a_stride : kTileWords;
  constexpr int kWidth = kVectors * kTileWords;
  const auto exists = [last](int vector) {
    return vector + 1 < kVectors ? __mmask16{0xFFFF} : static_cast<__mmask16>((1u << last) - 1);
  };
  alignas(64) float block[kRows][kWidth];  // for sums of fewer columns than a tile has
  alignas(64) float a_rest[kRows][kTileWords], b_rest[kTileWords][kWidth];
  RestOfDepth<float> rest;
  const std::int64_t whole = depth / kTileWords, left = depth % kTileWords;
  if (left > 0) {
    const float *from_a = a + whole * a_step, *from_b = b + whole * kTileWords * b_stride;
    const auto pairs = static_cast<__mmask16>((1u << left) - 1);
    for (int r = 0; r < kRows; ++r, from_a += a_row) _mm512_store_ps(a_rest[r], _mm512_maskz_loadu_ps(pairs, from_a));
    for (int p = 0; p < kTileWords; ++p, from_b += b_stride)
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v)
        _mm512_store_ps(b_rest[p] + v * kTileWords,
                        p < left ? _mm512_maskz_loadu_ps(exists(v), from_b + v * kTileWords) : _mm512_setzero_ps());
    rest = {a_rest[0], b_rest[0]};
  }
  const bool is_whole = last == kTileWords;
  multiply_tiles<Tiles, kRows, kVectors>(depth, a, a_row, a_step, b, b_stride, is_whole ? c : block[0],
                                         is_whole ? c_stride : kWidth, is_whole && accumulate, rest);
  if (is_whole) return;
  for (int r = 0; r < kRows; ++r, c += c_stride)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      const int at = v * kTileWords;
      __m512 sum = _mm512_load_ps(block[r] + at);
      if (accumulate) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(exists(v), c + at), sum);
      _mm512_mask_storeu_ps(c + at, exists(v), sum);
    }
}

template <class Tiles, int kRows>
void fill_bf16_tiles(GemmKernels<float>& kernels) {
  if constexpr (kRows > 0) {
    for (int whole = 0; whole < 2; ++whole) {
      kernels.by_row[whole][kRows - 1][0] = bf16_tile<Tiles, kRows, 1, false>;
      kernels.by_row[whole][kRows - 1][1] = bf16_tile<Tiles, kRows, 2, false>;
      kernels.by_depth[whole][kRows - 1][0] = bf16_tile<Tiles, kRows, 1, true>;
      kernels.by_depth[whole][kRows - 1][1] = bf16_tile<Tiles, kRows, 2, true>;
    }
    fill_bf16_tiles<Tiles, kRows - 1>(kernels);
  }
}

template <bool kWhole>
inline void interleave_block_of(std::int64_t pairs, std::int64_t rows, int count, const std::uint16_t* from,
                                std::int64_t stride, float* to) {
  const auto exist = kWhole ? __mmask16{0xFFFF} : static_cast<__mmask16>((1u << count) - 1);
  VectorF32::Register block[kTileWords];
#pragma GCC unroll 16
  for (int p = 0; p < kTileWords; ++p, from += 2 * stride) {
    __mmask16 first = exist, second = exist;
    if constexpr (!kWhole) {
      if (p >= pairs) first = 0;
      if (2 * p + 1 >= rows) second = 0;
    }
    const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(first, from));
    const __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(second, from + stride));
    __builtin_prefetch(from + 2 * kTileWords * stride);  // rows far apart are not prefetched by the hardware
    __builtin_prefetch(from + (2 * kTileWords + 1) * stride);
    block[p] = _mm512_castsi512_ps(_mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
  }
  transpose<VectorF32>(block);
  if constexpr (kWhole) {
#pragma GCC unroll 16
    for (int j = 0; j < kTileWords; ++j) VectorF32::store(to + j * kTileWords, block[j]);
  } else {
    for (int j = 0; j < count; ++j) VectorF32::store(to + j * kTileWords, block[j]);
  }
}

/// A step of k takes 16 rows of pairs, which are turned in registers.
inline void interleave_block(std::int64_t pairs, std::int64_t rows, int count, const std::uint16_t* from,
                             std::int64_t stride, float* to) {
  if (pairs == kTileWords && rows >= 2 * kTileWords && count == kTileWords)
    interleave_block_of<true>(pairs, rows, count, from, stride, to);
  else
    interleave_block_of<false>(pairs, rows, count, from, stride, to);
}

/// `Tiles` multiplies pairs of bf16; other functions are those of `pairs`.
template <class Tiles>
GemmKernels<float> bf16_tiles(const GemmKernels<float>& pairs) {
  GemmKernels<float> kernels{};
  kernels.rows = 2 * kTileRows, kernels.lanes = kTileWords;
  kernels.pack = pairs.pack, kernels.pack_transposed = pairs.pack_transposed, kernels.interleave = pairs.interleave;
  kernels.setup = {configure_block<Tiles>, Tiles::release};
  kernels.depth_step = kTileWords;
  kernels.interleave_block = interleave_block;
  fill_bf16_tiles<Tiles, 2 * kTileRows>(kernels);
  return kernels;
}

}  // namespace
}  // namespace weft::cpu
