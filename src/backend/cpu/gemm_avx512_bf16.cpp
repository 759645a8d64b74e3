// Kernels for products of bf16 with sums in f32, for AVX-512 BF16. An element of an operand is a pair of neighbours along k in
// 32 bits, and one instruction adds both products of two pairs to a sum.
#if defined(__AVX512BF16__)
#include <algorithm>

#include "backend/cpu/gemm_avx512.inc.hpp"

namespace weft::cpu {
namespace {

struct VectorPairs : VectorF32 {
  static constexpr bool kPairs = true;
  static Register broadcast(const float* p) {
    std::uint32_t pair;
    __builtin_memcpy(&pair, p, sizeof pair);  // p may point to an operand itself, which is of 16-bit elements
    return _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(pair)));
  }
  static Register multiply_add(Register x, Register y, Register z) {
    return _mm512_dpbf16_ps(z, reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(y));
  }
};

/// Pairs of 32 columns of two rows, or of the first `left`.
struct Interleaved {
  static constexpr int kColumns = 32;
  __m512i low_order, high_order;

  Interleaved() {
    alignas(64) std::uint16_t low[kColumns], high[kColumns];
    for (int i = 0; i < kColumns; ++i) {
      low[i] = static_cast<std::uint16_t>(i / 2 + i % 2 * kColumns);
      high[i] = static_cast<std::uint16_t>(low[i] + kColumns / 2);
    }
    low_order = _mm512_load_si512(low), high_order = _mm512_load_si512(high);
  }
  void store(__m512i x, __m512i y, float* to, int left) const {
    _mm512_storeu_si512(to, _mm512_permutex2var_epi16(x, low_order, y));
    if (left > kColumns / 2) _mm512_storeu_si512(to + kColumns / 2, _mm512_permutex2var_epi16(x, high_order, y));
  }
};

void interleave(std::int64_t pairs, std::int64_t rows, int count, const std::uint16_t* from, std::int64_t stride,
                float* to, std::int64_t to_stride) {
  constexpr int kColumns = Interleaved::kColumns;
  const Interleaved interleaved;
  const std::int64_t whole_pairs = std::min(pairs, rows / 2);
  const int whole_columns = count / kColumns * kColumns, left = count - whole_columns;
  const __mmask32 exist = (__mmask32{1} << left) - 1;
  for (std::int64_t p = 0; p < pairs; ++p, from += 2 * stride, to += to_stride) {
    const bool is_whole = p < whole_pairs;
    const std::uint16_t* second = is_whole ? from + stride : from;
    const __mmask32 has_second = is_whole ? ~__mmask32{0} : __mmask32{0};
    __builtin_prefetch(from + kGemmAhead * stride);
    __builtin_prefetch(second + kGemmAhead * stride);
    for (int j = 0; j < whole_columns; j += kColumns)
      interleaved.store(_mm512_loadu_si512(from + j), _mm512_maskz_loadu_epi16(has_second, second + j), to + j,
                        kColumns);
    if (left > 0)
      interleaved.store(_mm512_maskz_loadu_epi16(exist, from + whole_columns),
                        _mm512_maskz_loadu_epi16(exist & has_second, second + whole_columns), to + whole_columns, left);
  }
}

constexpr GemmKernels<float> pair_kernels() {
  GemmKernels<float> kernels = gemm_kernels<VectorPairs, 14>();
  kernels.interleave = interleave;
  return kernels;
}

}  // namespace

namespace avx512 {
const GemmKernels<float> kGemmBf16 = pair_kernels();
}  // namespace avx512
}  // namespace weft::cpu
#endif
