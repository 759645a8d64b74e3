// Kernels for products of bf16 with sums in f32, for AVX-512 BF16. An element of an operand is a pair of neighbours along k in
// 32 bits, and one instruction adds both products of two pairs to a sum.
#if defined(__AVX512BF16__)
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

void interleave(std::int64_t pairs, std::int64_t rows, int count, const std::uint16_t* from, std::int64_t stride,
                float* to, std::int64_t to_stride) {
  constexpr int kElements = 32;  // of 16 bits in a register
  alignas(64) std::uint16_t low_order[kElements], high_order[kElements];
  for (int i = 0; i < kElements; ++i) {
    low_order[i] = static_cast<std::uint16_t>(i / 2 + i % 2 * kElements);
    high_order[i] = static_cast<std::uint16_t>(low_order[i] + kElements / 2);
  }
  const __m512i low = _mm512_load_si512(low_order), high = _mm512_load_si512(high_order);
  for (std::int64_t p = 0; p < pairs; ++p, from += 2 * stride, to += to_stride) {
    const std::uint16_t* second = from + stride;
    const __mmask32 has_second = 2 * p + 1 < rows ? ~__mmask32{0} : __mmask32{0};
    __builtin_prefetch(from + kGemmAhead * stride);
    __builtin_prefetch(second + kGemmAhead * stride);
    for (int j = 0; j < count; j += kElements) {
      const int left = count - j;
      const __mmask32 mask = left >= kElements ? ~__mmask32{0} : (__mmask32{1} << left) - 1;
      const __m512i x = _mm512_maskz_loadu_epi16(mask, from + j);
      const __m512i y = _mm512_maskz_loadu_epi16(mask & has_second, second + j);
      _mm512_storeu_si512(to + j, _mm512_permutex2var_epi16(x, low, y));
      if (left > kElements / 2) _mm512_storeu_si512(to + j + kElements / 2, _mm512_permutex2var_epi16(x, high, y));
    }
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
