// Trigonometric functions and their inverses.
#include "backend/webgpu/wgsl/functions/parts.hpp"

namespace weft::webgpu::functions {
namespace {

constexpr WgslFunction kAngleFunctions[] = {
    // x = quadrant * pi/2 + r with |r| <= pi/4, for |x|: 96 bits of 2/pi, chosen by x's exponent, times its mantissa.
    {"reduce_angle", {"nan_f32", "mul_wide"}, R"(struct Angle { r: f32, quadrant: u32 }
fn reduce_angle(x: f32) -> Angle {
  let a = abs(x);
  if (a <= 0.7853981f) { return Angle(a, 0u); }
  let bits = bitcast<u32>(a);
  if (bits >= 0x7f800000u) { return Angle(nan_f32(), 0u); }
  var two_over_pi = array<u32, 8>(0u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u, 0xdb629599u, 0x3c439041u, 0xfe5163abu);
  let position = (bits >> 23u) - 120u;
  let word = position >> 5u;
  let shift = position & 31u;
  let t0 = two_over_pi[word];
  let t1 = two_over_pi[word + 1u];
  let t2 = two_over_pi[word + 2u];
  let t3 = two_over_pi[word + 3u];
  let up = 31u - shift;
  let w0 = (t0 << shift) | ((t1 >> 1u) >> up);
  let w1 = (t1 << shift) | ((t2 >> 1u) >> up);
  let w2 = (t2 << shift) | ((t3 >> 1u) >> up);
  let mantissa = (bits & 0x7fffffu) | 0x800000u;
  let p1 = mul_wide(mantissa, w1);
  let low = p1.x + mul_wide(mantissa, w2).y;
  let high = mantissa * w0 + p1.y + select(0u, 1u, low < p1.x);
  let quadrant = (high + 0x20000000u) >> 30u;
  let rest = high - (quadrant << 30u);
  let negative = (rest & 0x80000000u) != 0u;
  let f_low = select(low, 0u - low, negative);
  let f_high = select(rest, select(~rest, 0u - rest, low == 0u), negative);
  let fraction = fma(f32(f_low), 2.1684043e-19f, f32(f_high) * 9.313226e-10f);
  let r = fma(fraction, -4.371139e-08f, fraction * 1.5707964f);
  return Angle(select(r, -r, negative), quadrant & 3u);
}
)"},
    {"sin_core_f32", {}, R"(fn sin_core_f32(r: f32) -> f32 {
  let z = r * r;
  return fma(r * z, fma(z, fma(z, -0.00019517298f, 0.008332178f), -0.16666655f), r);
}
)"},
    {"cos_core_f32", {}, R"(fn cos_core_f32(r: f32) -> f32 {
  let z = r * r;
  return fma(z * z, fma(z, fma(z, 2.4438452e-05f, -0.0013887368f), 0.041666646f), fma(z, -0.5f, 1f));
}
)"},
    {"sin_f32",
     {"nan_f32", "is_nan_f32", "reduce_angle", "sin_core_f32", "cos_core_f32"},
     R"(fn sin_f32(x: f32) -> f32 {
  let angle = reduce_angle(x);
  let y = select(sin_core_f32(angle.r), cos_core_f32(angle.r), (angle.quadrant & 1u) != 0u);
  let flip = ((angle.quadrant & 2u) << 30u) ^ (bitcast<u32>(x) & 0x80000000u);
  return select(bitcast<f32>(bitcast<u32>(y) ^ flip), nan_f32(), is_nan_f32(angle.r));
}
)"},
    {"cos_f32",
     {"nan_f32", "is_nan_f32", "reduce_angle", "sin_core_f32", "cos_core_f32"},
     R"(fn cos_f32(x: f32) -> f32 {
  let angle = reduce_angle(x);
  let y = select(cos_core_f32(angle.r), sin_core_f32(angle.r), (angle.quadrant & 1u) != 0u);
  let flip = ((angle.quadrant + 1u) & 2u) << 30u;
  return select(bitcast<f32>(bitcast<u32>(y) ^ flip), nan_f32(), is_nan_f32(angle.r));
}
)"},
    {"tan_f32", {"nan_f32", "is_nan_f32", "reduce_angle"}, R"(fn tan_f32(x: f32) -> f32 {
  let angle = reduce_angle(x);
  let z = angle.r * angle.r;
  var p = fma(z, 0.00946562f, 0.0029743982f);
  p = fma(z, p, 0.024528299f);
  p = fma(z, p, 0.05338124f);
  p = fma(z, p, 0.133392f);
  p = fma(z, p, 0.3333314f);
  var y = fma(angle.r * z, p, angle.r);
  if ((angle.quadrant & 1u) != 0u) { y = -1f / y; }
  y = bitcast<f32>(bitcast<u32>(y) ^ (bitcast<u32>(x) & 0x80000000u));
  return select(y, nan_f32(), is_nan_f32(angle.r));
}
)"},
    // For a in [0, 1].
    {"atan_unit_f32", {}, R"(fn atan_unit_f32(a: f32) -> f32 {
  let far = a > 0.41421357f;
  let t = select(a, (a - 1f) / (a + 1f), far);
  let z = t * t;
  var p = fma(z, 0.08060301f, -0.13879848f);
  p = fma(z, p, 0.19977926f);
  p = fma(z, p, -0.33332956f);
  let y = fma(t * z, p, t);
  return select(y, y + 0.7853982f, far);
}
)"},
    {"atan_f32", {"is_nan_f32", "with_sign_f32", "atan_unit_f32"}, R"(fn atan_f32(x: f32) -> f32 {
  let a = abs(x);
  var y: f32;
  if (a > 1f) {
    y = 1.5707964f - atan_unit_f32(1f / a);
  } else {
    y = atan_unit_f32(a);
  }
  return select(with_sign_f32(y, x), x, is_nan_f32(x));
}
)"},
    {"atan2_f32", {"nan_f32", "is_nan_f32", "with_sign_f32", "atan_unit_f32"}, R"(fn atan2_f32(y: f32, x: f32) -> f32 {
  let scale = select(1f, 0.0625f, abs(x) > 1e+37f || abs(y) > 1e+37f);
  let ax = abs(x) * scale;
  let ay = abs(y) * scale;
  let top = max(ax, ay);
  let both_infinite = bitcast<u32>(min(ax, ay)) == 0x7f800000u;
  let ratio = select(select(min(ax, ay) / top, 0f, (bitcast<u32>(top) & 0x7fffffffu) == 0u), 1f, both_infinite);
  var angle = atan_unit_f32(ratio);
  angle = select(angle, 1.5707964f - angle, ay > ax);
  angle = select(angle, 3.1415927f - angle, (bitcast<u32>(x) & 0x80000000u) != 0u);
  return select(with_sign_f32(angle, y), nan_f32(), is_nan_f32(x) || is_nan_f32(y));
}
)"},
    // For |x| <= 1/2.
    {"asin_core_f32", {}, R"(fn asin_core_f32(x: f32) -> f32 {
  let z = x * x;
  var p = fma(z, 0.042218618f, 0.024147563f);
  p = fma(z, p, 0.045477107f);
  p = fma(z, p, 0.074952416f);
  p = fma(z, p, 0.16666754f);
  return fma(x * z, p, x);
}
)"},
    {"asin_f32", {"nan_f32", "is_nan_f32", "with_sign_f32", "asin_core_f32"}, R"(fn asin_f32(x: f32) -> f32 {
  let a = abs(x);
  if (is_nan_f32(x) || a > 1f) { return nan_f32(); }
  if (a <= 0.5f) { return asin_core_f32(x); }
  return with_sign_f32(1.5707964f - 2f * asin_core_f32(sqrt(0.5f * (1f - a))), x);
}
)"},
    {"acos_f32", {"nan_f32", "is_nan_f32", "asin_core_f32"}, R"(fn acos_f32(x: f32) -> f32 {
  let a = abs(x);
  if (is_nan_f32(x) || a > 1f) { return nan_f32(); }
  if (a <= 0.5f) { return 1.5707964f - (asin_core_f32(x) + 4.371139e-08f); }
  let y = 2f * asin_core_f32(sqrt(0.5f * (1f - a)));
  return select(y, 3.1415927f - y, x < 0f);
}
)"},
};

}  // namespace

std::span<const WgslFunction> angle_functions() { return kAngleFunctions; }

}  // namespace weft::webgpu::functions
