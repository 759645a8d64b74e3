// Sums of f32 as integers of 64 bits, which threads may add up in any order.
#include "backend/webgpu/wgsl/functions/parts.hpp"

namespace weft::webgpu::functions {
namespace {

// Numbers that are added up have a scale in common: the exponent field of the greatest. Their unit is 2^-30 of the power of two
// that the greatest has, so each is an i32.
constexpr WgslFunction kFixedPointFunctions[] = {
    // The exponent field of an f32 by its bits; 1 also for zero and subnormal numbers, 255 for infinity and NaN.
    {"fixed_scale", {}, R"(fn fixed_scale(x: u32) -> u32 { return max((x & 0x7fffffffu) >> 23u, 1u); }
)"},
    // A number, rounded to the unit of a scale below 255, in two's complement.
    {"fixed_part", {}, R"(fn fixed_part(x: u32, scale: u32) -> u32 {
  let size = x & 0x7fffffffu;
  if (size < 0x800000u) {
    let up = 7u - min(scale - 1u, 7u);
    let off = clamp(scale, 9u, 39u) - 8u;
    let part = select((size + (1u << (off - 1u))) >> off, size << up, scale <= 8u);
    return select(part, 0u - part, x > 0x7fffffffu);
  }
  let units = bitcast<f32>(x - ((scale - 157u) << 23u));
  return select(bitcast<u32>(i32(round(units))), 0u, scale - (size >> 23u) > 40u);
}
)"},
    // What infinities and NaN leave in the low word: 1, 2 or 4.
    {"fixed_special", {}, R"(fn fixed_special(x: u32) -> u32 {
  return select(1u << (x >> 31u), 4u, (x & 0x7fffffu) != 0u);
}
)"},
    // The f32, as bits, nearest to a sum of 64 bits in the unit of a scale.
    {"fixed_value", {}, R"(fn fixed_value(sum: vec2u, scale: u32) -> u32 {
  if (scale == 255u) {
    return select(select(0x7f800000u, 0xff800000u, sum.x == 2u), 0x7fc00000u, sum.x > 2u);
  }
  let is_negative = sum.y > 0x7fffffffu;
  let low = select(sum.x, 0u - sum.x, is_negative);
  let high = select(sum.y, ~sum.y + u32(sum.x == 0u), is_negative);
  if ((low | high) == 0u) { return 0u; }
  let top = select(firstLeadingBit(low), firstLeadingBit(high) + 32u, high != 0u);
  let field = i32(scale + top) - 30;
  let down = i32(top) - 23 + max(1 - field, 0);
  var mantissa = low << u32(max(-down, 0));
  if (down > 0) {
    let bits = u32(down) - 1u;
    let lost = vec2u(select(low & ((1u << bits) - 1u), low, bits > 31u), select(0u, high & ((1u << (bits - 32u)) - 1u), bits > 32u));
    let joined = (low >> (bits & 31u)) | select(high << (32u - bits), 0u, bits == 0u);
    let twice = select(joined, high >> (bits - 32u), bits > 31u);
    mantissa = (twice >> 1u) + (twice & 1u & (u32((lost.x | lost.y) != 0u) | (twice >> 1u)));
  }
  let size = min(mantissa + (u32(max(field, 1)) - 1u) * 0x800000u, 0x7f800000u);
  return size | select(0u, 0x80000000u, is_negative);
}
)"},
};

}  // namespace

std::span<const WgslFunction> fixed_point_functions() { return kFixedPointFunctions; }

}  // namespace weft::webgpu::functions
