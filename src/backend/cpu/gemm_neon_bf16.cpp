// Kernels for products of bf16 with sums in f32, for NEON with FEAT_BF16. An element of an operand is a pair of neighbours along k
// in 32 bits, and BFDOT adds both products of two pairs to a sum. It rounds in its own way (Arm's manual: BFDotAdd), and takes
// denormals for zeros.
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#include "backend/cpu/gemm_vector16.inc.hpp"

namespace weft::cpu {
namespace {

struct VectorPairs : VectorF32 {
  static constexpr bool kPairs = true;
  static Register broadcast(const float* p) {
    std::uint32_t pair;
    __builtin_memcpy(&pair, p, sizeof pair);  // p may point to an operand itself, which is of 16-bit elements
    return (Register)vdupq_n_u32(pair);
  }
  static Register multiply_add(Register x, Register y, Register z) {
    return vbfdotq_f32(z, (bfloat16x8_t)x, (bfloat16x8_t)y);
  }
  static Register multiply_add_lane(Register x, int lane, Register y, Register z) {
    const bfloat16x8_t a = (bfloat16x8_t)x, b = (bfloat16x8_t)y;
    switch (lane) {  // a constant after unrolling; the instruction takes no other
      case 0: return vbfdotq_laneq_f32(z, b, a, 0);
      case 1: return vbfdotq_laneq_f32(z, b, a, 1);
      case 2: return vbfdotq_laneq_f32(z, b, a, 2);
      default: return vbfdotq_laneq_f32(z, b, a, 3);
    }
  }
};

void interleave(std::int64_t pairs, std::int64_t rows, int count, const std::uint16_t* from, std::int64_t stride,
                float* to, std::int64_t to_stride) {
  constexpr int kColumns = 8;
  for (std::int64_t p = 0; p < pairs; ++p, from += 2 * stride, to += to_stride) {
    const std::uint16_t* second = 2 * p + 1 < rows ? from + stride : nullptr;
    auto* words = reinterpret_cast<std::uint16_t*>(to);
    __builtin_prefetch(from + kGemmAhead * stride);
    int j = 0;
    for (; j + kColumns <= count; j += kColumns) {
      const uint16x8_t x = vld1q_u16(from + j), y = second != nullptr ? vld1q_u16(second + j) : vdupq_n_u16(0);
      vst1q_u16(words + 2 * j, vzip1q_u16(x, y));
      vst1q_u16(words + 2 * j + kColumns, vzip2q_u16(x, y));
    }
    for (; j < count; ++j) words[2 * j] = from[j], words[2 * j + 1] = second != nullptr ? second[j] : 0;
  }
}

constexpr GemmKernels<float> pair_kernels() {
  GemmKernels<float> kernels = gemm_kernels<VectorPairs, 12>();
  kernels.interleave = interleave;
  return kernels;
}

}  // namespace

namespace neon {
const GemmKernels<float> kGemmBf16 = pair_kernels();
}  // namespace neon
}  // namespace weft::cpu
#endif
