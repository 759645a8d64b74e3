// Kernels for products of bf16 with sums in f32, for AMX: an instruction multiplies 16 rows by 16 columns by 16 pairs along
// k. The pairs left over are added by AVX-512 BF16.
#if defined(__AVX512BF16__)
#include <immintrin.h>

#include "backend/cpu/gemm_kernels.hpp"
#include "backend/cpu/tile_block.inc.hpp"

namespace weft::cpu {
namespace {

/// Words of A and B are pairs of bf16, sums are f32.
struct Bf16Tiles : AmxTiles {
  template <int kSums, int kA, int kB>
  static void multiply() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kA), "i"(kB));
  }
};

template <int kRows, int kVectors, bool kInBlocks>
void tile(std::int64_t depth, const float* a, std::int64_t a_stride, const float* b, std::int64_t b_stride, float* c,
          std::int64_t c_stride, int last, bool accumulate) {
  const std::int64_t a_row = kInBlocks ? kTileWords : a_stride, a_step = kInBlocks ? a_stride : kTileWords;
  constexpr int kWidth = kVectors * kTileWords;
  alignas(64) float block[kRows][kWidth];  // for sums of fewer columns than a tile has
  const bool is_whole = last == kTileWords;
  float* const to = is_whole ? c : block[0];
  const std::int64_t to_stride = is_whole ? c_stride : kWidth;
  multiply_tiles<Bf16Tiles, kRows, kVectors>(depth, a, a_row, a_step, b, b_stride, to, to_stride,
                                             is_whole && accumulate);

  const std::int64_t whole = depth / kTileWords;
  a += whole * a_step, b += whole * kTileWords * b_stride;
  const auto left = static_cast<int>(depth % kTileWords);
  if (is_whole && left == 0) return;
  const auto mask = static_cast<__mmask16>((1u << last) - 1);
  for (int r = 0; r < kRows; ++r, a += a_row, c += c_stride)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      const __mmask16 exists = v + 1 < kVectors ? 0xFFFF : mask;
      const int at = v * kTileWords;
      __m512 sum = _mm512_loadu_ps(to + r * to_stride + at);
      for (int p = 0; p < left; ++p) {
        std::uint32_t pair;
        __builtin_memcpy(&pair, a + p, sizeof pair);  // A may be the operand itself, of 16-bit elements
        const __m512i pairs = _mm512_set1_epi32(static_cast<int>(pair));
        sum = _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(pairs),
                               reinterpret_cast<__m512bh>(_mm512_maskz_loadu_ps(exists, b + p * b_stride + at)));
      }
      if (!is_whole && accumulate) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(exists, c + at), sum);
      _mm512_mask_storeu_ps(c + at, exists, sum);
    }
}

template <int kRows>
void fill(GemmKernels<float>& kernels) {
  if constexpr (kRows > 0) {
    for (int whole = 0; whole < 2; ++whole) {
      kernels.by_row[whole][kRows - 1][0] = tile<kRows, 1, false>;
      kernels.by_row[whole][kRows - 1][1] = tile<kRows, 2, false>;
      kernels.by_depth[whole][kRows - 1][0] = tile<kRows, 1, true>;
      kernels.by_depth[whole][kRows - 1][1] = tile<kRows, 2, true>;
    }
    fill<kRows - 1>(kernels);
  }
}

}  // namespace

namespace avx512 {
const GemmKernels<float>& gemm_amx() {
  static const GemmKernels<float> kernels = [] {
    GemmKernels<float> k{};
    k.rows = 2 * kTileRows, k.lanes = kTileWords;
    k.pack = kGemmBf16.pack, k.pack_transposed = kGemmBf16.pack_transposed, k.interleave = kGemmBf16.interleave;
    k.begin_panel = configure_block<Bf16Tiles>, k.end_panel = AmxTiles::release;
    k.depth_step = kTileWords;
    fill<2 * kTileRows>(k);
    return k;
  }();
  return kernels;
}
}  // namespace avx512
}  // namespace weft::cpu
#endif
