// Products of eight-bit integers for NEON with FEAT_DotProd: SDOT adds four products of signed bytes to a sum of 32 bits.
#if defined(__ARM_FEATURE_DOTPROD)
#include <arm_neon.h>

#include "backend/cpu/integer_tile.inc.hpp"

namespace weft::cpu {
namespace {

struct VectorFours {
  using Element = std::int32_t;
  using Register = int32x4_t;
  static constexpr int kLanes = 4;
  static constexpr bool kMasksAreFree = false;
  static Register zero() { return vdupq_n_s32(0); }
  static int mask(int count) { return count; }
  static Register load(const std::int32_t* p) { return vld1q_s32(p); }
  static Register load_first(const std::int32_t* p, int count) {
    Register x = zero();
    for (int i = 0; i < count; ++i) x[i] = p[i];
    return x;
  }
  static void store(std::int32_t* p, Register x) { vst1q_s32(p, x); }
  static void store_first(std::int32_t* p, Register x, int count) {
    for (int i = 0; i < count; ++i) p[i] = x[i];
  }
  static Register broadcast(const std::int32_t* p) { return vdupq_n_s32(*p); }
  static Register add(Register x, Register y) { return vaddq_s32(x, y); }
  static Register multiply_add(Register x, Register y, Register z) {
    return vdotq_s32(z, vreinterpretq_s8_s32(x), vreinterpretq_s8_s32(y));
  }
  static Register multiply_add_lane(Register x, int lane, Register y, Register z) {
    const int8x16_t a = vreinterpretq_s8_s32(x), b = vreinterpretq_s8_s32(y);
    switch (lane) {  // a constant after unrolling; the instruction takes no other
      case 0: return vdotq_laneq_s32(z, b, a, 0);
      case 1: return vdotq_laneq_s32(z, b, a, 1);
      case 2: return vdotq_laneq_s32(z, b, a, 2);
      default: return vdotq_laneq_s32(z, b, a, 3);
    }
  }
};

}  // namespace

namespace neon {
const IntegerKernels kIntegers = integer_kernels<VectorFours, 12, 4>(&baseline::kIntegerBytes, true);
}  // namespace neon
}  // namespace weft::cpu
#endif
