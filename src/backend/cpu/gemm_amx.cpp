// Kernels for products of bf16 with sums in f32, for AMX: an instruction multiplies 16 rows by 16 columns by 16 pairs along
// k. Four tiles of sums share two of A and two of B. The pairs left over are added by AVX-512 BF16.
#if defined(__AVX512BF16__)
#include <immintrin.h>

#include "backend/cpu/gemm_kernels.hpp"

namespace weft::cpu {
namespace {

constexpr int kTileRows = 16;
constexpr int kTileColumns = 16;
constexpr int kTilePairs = 16;

struct alignas(64) Configuration {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};

/// Registers 0 to 3 hold sums of the upper and of the lower rows, 4 and 5 these rows of A, 6 and 7 rows of B.
void configure(int rows) {
  Configuration c;
  const int upper = rows < kTileRows ? rows : kTileRows;
  for (int i = 0; i < 8; ++i) {
    const bool is_lower = i == 2 || i == 3 || i == 5;
    const int height = i >= 6 ? kTilePairs : is_lower ? rows - upper : upper;
    c.rows[i] = static_cast<std::uint8_t>(height);
    c.row_bytes[i] = height > 0 ? 4 * kTileColumns : 0;
  }
  asm volatile("ldtilecfg %0" : : "m"(c));
}
void release() { asm volatile("tilerelease"); }

// The compilers' wrappers do not declare that a load reads memory.
template <int kRegister>
inline void zero() {
  asm volatile("tilezero %%tmm%c0" : : "i"(kRegister));
}
template <int kRegister>
inline void load(const float* from, std::int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(4 * stride), "i"(kRegister) : "memory");
}
template <int kRegister>
inline void store(float* to, std::int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(4 * stride), "i"(kRegister) : "memory");
}
template <int kSums, int kA, int kB>
inline void multiply() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kA), "i"(kB));
}

/// Calls use(half, vector) for the tiles of sums.
template <int kRows, int kVectors, class Use>
inline void each_tile(Use use) {
  use.template operator()<0, 0>();
  if constexpr (kVectors > 1) use.template operator()<0, 1>();
  if constexpr (kRows > kTileRows) use.template operator()<1, 0>();
  if constexpr (kRows > kTileRows && kVectors > 1) use.template operator()<1, 1>();
}

template <int kRows, int kVectors>
void tile(std::int64_t depth, const float* a, std::int64_t a_stride, const float* b, std::int64_t b_stride, float* c,
          std::int64_t c_stride, int last, bool accumulate) {
  constexpr int kWidth = kVectors * kTileColumns;
  alignas(64) float block[kRows][kWidth];  // for sums of fewer columns than a tile has
  const bool is_whole = last == kTileColumns;
  float* const to = is_whole ? c : block[0];
  const std::int64_t to_stride = is_whole ? c_stride : kWidth;
  const auto place = [&](int half, int vector) { return to + half * kTileRows * to_stride + vector * kTileColumns; };
  each_tile<kRows, kVectors>([&]<int kHalf, int kVector>() {
    if (is_whole && accumulate)
      load<2 * kHalf + kVector>(place(kHalf, kVector), to_stride);
    else
      zero<2 * kHalf + kVector>();
  });
  for (std::int64_t k = kTilePairs; k <= depth; k += kTilePairs, a += kTilePairs, b += kTilePairs * b_stride) {
    load<6>(b, b_stride);
    load<4>(a, a_stride);
    if constexpr (kVectors > 1) load<7>(b + kTileColumns, b_stride);
    if constexpr (kRows > kTileRows) load<5>(a + kTileRows * a_stride, a_stride);
    each_tile<kRows, kVectors>(
        []<int kHalf, int kVector>() { multiply<2 * kHalf + kVector, 4 + kHalf, 6 + kVector>(); });
  }
  each_tile<kRows, kVectors>(
      [&]<int kHalf, int kVector>() { store<2 * kHalf + kVector>(place(kHalf, kVector), to_stride); });

  const auto left = static_cast<int>(depth % kTilePairs);
  if (is_whole && left == 0) return;
  const auto mask = static_cast<__mmask16>((1u << last) - 1);
  for (int r = 0; r < kRows; ++r, a += a_stride, c += c_stride)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      const __mmask16 exists = v + 1 < kVectors ? 0xFFFF : mask;
      const int at = v * kTileColumns;
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
    for (auto& tiles : kernels.by_row) {
      tiles[kRows - 1][0] = tile<kRows, 1>;
      tiles[kRows - 1][1] = tile<kRows, 2>;
    }
    fill<kRows - 1>(kernels);
  }
}

}  // namespace

namespace avx512 {
const GemmKernels<float>& gemm_amx() {
  static const GemmKernels<float> kernels = [] {
    GemmKernels<float> k{};
    k.rows = 2 * kTileRows, k.lanes = kTileColumns;
    k.pack = kGemmBf16.pack, k.pack_transposed = kGemmBf16.pack_transposed, k.interleave = kGemmBf16.interleave;
    k.begin_panel = configure, k.end_panel = release;
    k.depth_step = kTilePairs;
    fill<2 * kTileRows>(k);
    return k;
  }();
  return kernels;
}
}  // namespace avx512
}  // namespace weft::cpu
#endif
