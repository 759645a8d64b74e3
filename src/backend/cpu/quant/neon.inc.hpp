// Vectors of NEON for tile.inc.hpp.
#pragma once

#include <arm_neon.h>

#include "backend/cpu/quant/tile.inc.hpp"

namespace weft::cpu {
namespace {

struct QuantNeon {
  using Float = float32x4_t;
  using Int = int32x4_t;
  static constexpr bool kHasDot = true, kDotIsSigned = true;
  static constexpr int kLanes = 4;
  static constexpr int kWholeGroupRows = 2;
  static constexpr int kRuns = 1;
  static constexpr int kEightBitHeights[kQuantHeights] = {1, 2, 4, 8, 0};
  static constexpr int kExactHeights[kQuantHeights] = {1, 4, 8, 0, 0};

  static Float zero() { return vdupq_n_f32(0); }
  static Float load(const float* p) { return vld1q_f32(p); }
  static void store(float* p, Float x) { vst1q_f32(p, x); }
  static Float broadcast(const float* p) { return vdupq_n_f32(*p); }
  static Float add(Float x, Float y) { return vaddq_f32(x, y); }
  static Float multiply(Float x, Float y) { return vmulq_f32(x, y); }
  static Float multiply_add(Float x, Float y, Float z) { return vfmaq_f32(z, x, y); }
  static Float to_float(Int x) { return vcvtq_f32_s32(x); }
  static Float load_f16(const std::byte* p) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(reinterpret_cast<const std::uint16_t*>(p))));
  }
  static Float load_bf16(const std::byte* p) {
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(reinterpret_cast<const std::uint16_t*>(p)), 16));
  }
  static Float load_i8(const std::byte* p) {
    std::int32_t four;
    __builtin_memcpy(&four, p, sizeof four);
    const int16x8_t wide = vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(four)));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide)));
  }

  static Int zero_int() { return vdupq_n_s32(0); }
  static Int load_int(const std::byte* p) {
    return vreinterpretq_s32_u8(vld1q_u8(reinterpret_cast<const std::uint8_t*>(p)));
  }
  static Int broadcast_int(const std::byte* p) { return vdupq_n_s32(*reinterpret_cast<const std::int32_t*>(p)); }
  template <int kShift>
  static Int shift_left(const std::int32_t* p) {
    return vshlq_n_s32(vdupq_n_s32(*p), kShift);
  }
  static Int low_nibbles(Int x) { return vandq_s32(x, vdupq_n_s32(0x0F0F0F0F)); }
  static Int high_nibbles(Int x) { return vreinterpretq_s32_u8(vshrq_n_u8(vreinterpretq_u8_s32(x), 4)); }
  static Int look_up(const std::uint8_t* table, Int index) {
    return vreinterpretq_s32_u8(vqtbl1q_u8(vld1q_u8(table), vreinterpretq_u8_s32(index)));
  }
  static Int add_bits(Int x, const std::byte* bits, int column, int value) {
    const auto* mask = reinterpret_cast<const std::uint8_t*>(bits + column / 2);
    const uint8x16_t spread = vcombine_u8(vdup_n_u8(mask[0]), vdup_n_u8(mask[1]));
    const uint8x16_t bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201));
    const uint8x16_t set = vandq_u8(vtstq_u8(spread, bit), vdupq_n_u8(static_cast<std::uint8_t>(value)));
    return vorrq_s32(x, vreinterpretq_s32_u8(set));
  }
  static Int add_i32(Int x, Int y) { return vaddq_s32(x, y); }
  static Int flip_top_bits(Int x) { return veorq_s32(x, vreinterpretq_s32_u8(vdupq_n_u8(0x80))); }
  static Int byte_of(Int x, int t) {
    return vreinterpretq_s32_u32(vandq_u32(vshlq_u32(vreinterpretq_u32_s32(x), vdupq_n_s32(-8 * t)), vdupq_n_u32(255)));
  }
  static Int subtract(Int x, int y) { return vsubq_s32(x, vdupq_n_s32(y)); }

  /// Without an instruction for four products: products have 16 bits, and are widened before they are added.
  static Int dot(Int sum, Int x, Int y) {
    const int8x16_t a = vreinterpretq_s8_s32(x), b = vreinterpretq_s8_s32(y);
    const int16x8_t low = vmull_s8(vget_low_s8(a), vget_low_s8(b)), high = vmull_high_s8(a, b);
    return vaddq_s32(sum, vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)));
  }
};

}  // namespace
}  // namespace weft::cpu
