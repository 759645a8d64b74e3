// Powers of floats.
#include "backend/webgpu/wgsl/functions/parts.hpp"

namespace weft::webgpu::functions {
namespace {

constexpr WgslFunction kPowerFunctions[] = {
    // The upper 12 bits of the mantissa: products of two such numbers are exact.
    {"upper_half_f32", {}, R"(fn upper_half_f32(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) & 0xfffff000u); }
)"},
    // a^y for finite a > 0 and finite y: y log2(a) with about 30 correct bits.
    {"pow_core_f32", {"scale_f32", "log_split_f32", "upper_half_f32"}, R"(fn pow_core_f32(a: f32, y_given: f32) -> f32 {
  let y = clamp(y_given, -1.0995116e+12f, 1.0995116e+12f);
  let parts = log_split_f32(a);
  let f = parts.y - 1f;
  let d = parts.y + 1f;
  let s = f / d;
  let s_high = upper_half_f32(s);
  let d_high = upper_half_f32(d);
  let d_low = parts.y - (d_high - 1f);
  let s_low = ((f - s_high * d_high) - s_high * d_low) / d;
  let z = s * s;
  var p = fma(z, 0.23582147f, 0.2853731f);
  p = fma(z, p, 0.40000334f);
  p = fma(z, p, 0.6666666f);
  let ln_high = 2f * s_high;
  let ln_low = 2f * s_low + s * z * p;
  let high = ln_high * 1.4423828125f;
  let low = fma(ln_high, 0.0003122284f, ln_low * 1.442695f);
  let l_high = upper_half_f32(parts.x + (high + low));
  let l_low = ((parts.x - l_high) + high) + low;
  let y_high = upper_half_f32(y);
  let y_low = y - y_high;
  let e_high = l_high * y_high;
  let e_low = l_high * y_low + l_low * y;
  let whole = round(clamp(e_high + e_low, -160f, 130f));
  let rest = clamp((e_high - whole) + e_low, -1f, 1f);
  var q = fma(rest, 1.5310063e-05f, 0.00015461446f);
  q = fma(rest, q, 0.0013333454f);
  q = fma(rest, q, 0.009618057f);
  q = fma(rest, q, 0.05550411f);
  q = fma(rest, q, 0.2402265f);
  q = fma(rest, q, 0.6931472f);
  return scale_f32(fma(rest, q, 1f), i32(whole));
}
)"},
    {"pow_f32", {"inf_f32", "nan_f32", "pow_core_f32"}, R"(fn pow_f32(x: f32, y: f32) -> f32 {
  let a_bits = bitcast<u32>(x) & 0x7fffffffu;
  let y_bits = bitcast<u32>(y) & 0x7fffffffu;
  if (y_bits == 0u || bitcast<u32>(x) == 0x3f800000u) { return 1f; }
  if (a_bits > 0x7f800000u || y_bits > 0x7f800000u) { return nan_f32(); }
  let is_whole = y_bits >= 0x4b800000u || trunc(y) == y;
  let is_odd = is_whole && y_bits < 0x4b800000u && (i32(clamp(y, -16777216f, 16777216f)) & 1i) != 0i;
  let negative = (bitcast<u32>(x) & 0x80000000u) != 0u;
  let a = bitcast<f32>(a_bits);
  var r: f32;
  if (a_bits == 0u || a_bits == 0x7f800000u || y_bits == 0x7f800000u) {
    let grows = (a_bits > 0x3f800000u) == ((bitcast<u32>(y) & 0x80000000u) == 0u);
    r = select(select(0f, inf_f32(), grows), 1f, a_bits == 0x3f800000u);
  } else {
    if (negative && !is_whole) { return nan_f32(); }
    r = pow_core_f32(a, y);
  }
  return select(r, -r, negative && is_odd);
}
)"},
};

}  // namespace

std::span<const WgslFunction> power_functions() { return kPowerFunctions; }

}  // namespace weft::webgpu::functions
