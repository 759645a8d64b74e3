// Polynomials are minimax fits (relative error below 2^-25 after rounding the coefficients to f32). Nothing here relies on
// fma being fused, or on rounding tricks such as (a + b) - a, which shader compilers may simplify away. Exact splits mask
// bits.
#include "backend/webgpu/wgsl/functions.hpp"

namespace weft::webgpu {
namespace {

constexpr WgslFunction kFunctions[] = {
    {"inf_f32", {}, R"(fn inf_f32() -> f32 { var bits = 0x7f800000u; return bitcast<f32>(bits); }
)"},
    {"nan_f32", {}, R"(fn nan_f32() -> f32 { var bits = 0x7fc00000u; return bitcast<f32>(bits); }
)"},
    {"is_nan_f32", {}, R"(fn is_nan_f32(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }
)"},
    // A constant zero as a factor or a divisor, computed with bits, because compilers fold x * 0 to 0 and x / 0 to any value.
    {"times_zero_f32", {"nan_f32"}, R"(fn times_zero_f32(x: f32, zero: f32) -> f32 {
  let sign = (bitcast<u32>(x) ^ bitcast<u32>(zero)) & 0x80000000u;
  return select(bitcast<f32>(sign), nan_f32(), (bitcast<u32>(x) & 0x7f800000u) == 0x7f800000u);
}
)"},
    {"over_zero_f32", {"nan_f32"}, R"(fn over_zero_f32(x: f32, zero: f32) -> f32 {
  let sign = (bitcast<u32>(x) ^ bitcast<u32>(zero)) & 0x80000000u;
  let size = bitcast<u32>(x) & 0x7fffffffu;
  return select(bitcast<f32>(sign | 0x7f800000u), nan_f32(), size == 0u || size > 0x7f800000u);
}
)"},
    // NVIDIA divides by multiplying with the reciprocal, and the reciprocal of a divisor beyond 2^126 is flushed to 0, so
    // infinity divided by the largest number gave NaN.
    {"div_f32", {}, R"(fn div_f32(x: f32, y: f32) -> f32 {
  let scale = select(1f, 0.25f, abs(y) > 0x1p126f);
  return (x * scale) / (y * scale);
}
)"},
    {"max_f32", {"nan_f32", "is_nan_f32"}, R"(fn max_f32(a: f32, b: f32) -> f32 {
  return select(max(a, b), nan_f32(), is_nan_f32(a) || is_nan_f32(b));
}
)"},
    {"min_f32", {"nan_f32", "is_nan_f32"}, R"(fn min_f32(a: f32, b: f32) -> f32 {
  return select(min(a, b), nan_f32(), is_nan_f32(a) || is_nan_f32(b));
}
)"},
    {"with_sign_f32", {}, R"(fn with_sign_f32(magnitude: f32, sign: f32) -> f32 {
  return bitcast<f32>((bitcast<u32>(magnitude) & 0x7fffffffu) | (bitcast<u32>(sign) & 0x80000000u));
}
)"},
    {"sign_f32", {"is_nan_f32", "with_sign_f32"}, R"(fn sign_f32(x: f32) -> f32 {
  return select(with_sign_f32(1f, x), x, (bitcast<u32>(x) & 0x7fffffffu) == 0u || is_nan_f32(x));
}
)"},
    {"i32_from_f32", {"is_nan_f32"}, R"(fn i32_from_f32(x: f32) -> i32 {
  let inside = i32(clamp(x, -2147483648f, 2147483520f));
  return select(select(inside, 2147483647i, x >= 2147483648f), 0i, is_nan_f32(x));
}
)"},
    {"u32_from_f32", {"is_nan_f32"}, R"(fn u32_from_f32(x: f32) -> u32 {
  let inside = u32(clamp(x, 0f, 4294967040f));
  return select(select(inside, 0xffffffffu, x >= 4294967296f), 0u, is_nan_f32(x));
}
)"},
    // WGSL lets a device choose the rounding (SwiftShader truncates). Both halves are exact; their sum is rounded correctly.
    {"f32_from_u32", {}, "fn f32_from_u32(x: u32) -> f32 { return f32(x >> 16u) * 65536f + f32(x & 0xffffu); }\n"},
    // Larger for larger numbers; -0 as 0.
    // 16-bit floats by integers, as conversions of a device may flush denormals and round as they like.
    {"f32_from_f16",
     {},
     R"(fn f32_from_f16(bits: u32) -> f32 {
  let rest = bits & 0x7fffu;
  let large = (rest << 13u) + select(0x38000000u, 0x70000000u, rest >= 0x7c00u);
  let magnitude = select(large, bitcast<u32>(f32(rest) * 0x1p-24f), rest < 0x400u);
  return bitcast<f32>(magnitude | ((bits & 0x8000u) << 16u));
}
)",
     "fn f32_from_f16(bits: u32) -> f32 { return unpack2x16float(bits).x; }\n"},
    // Four neighbours, as buffers hold them.
    {"vec4f_from_f16",
     {"f32_from_f16"},
     R"(fn vec4f_from_f16(v: vec2<u32>) -> vec4f {
  return vec4f(f32_from_f16(v.x & 0xffffu), f32_from_f16(v.x >> 16u), f32_from_f16(v.y & 0xffffu), f32_from_f16(v.y >> 16u));
}
)",
     R"(fn vec4f_from_f16(v: vec2<u32>) -> vec4f { return vec4f(unpack2x16float(v.x), unpack2x16float(v.y)); }
)"},
    {"vec4f_from_bf16", {}, R"(fn vec4f_from_bf16(v: vec2<u32>) -> vec4f {
  return bitcast<vec4f>(vec4<u32>(v.x << 16u, v.x & 0xffff0000u, v.y << 16u, v.y & 0xffff0000u));
}
)"},
    {"f16_from_f32",
     {},
     R"(fn f16_from_f32(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  let rest = bits & 0x7fffffffu;
  let normal = (rest + 0xfffu + ((rest >> 13u) & 1u) - 0x38000000u) >> 13u;
  // Numbers at 0.5 are 2^-24 apart, as the subnormal halves are: the sum rounds, and its last bits are the half's.
  let small = bitcast<u32>(bitcast<f32>(rest) + 0.5f) - 0x3f000000u;
  var half = min(select(normal, small, rest < 0x38800000u), 0x7c00u);
  half = select(half, 0x7e00u | ((rest >> 13u) & 0x3ffu), rest > 0x7f800000u);
  return half | ((bits >> 16u) & 0x8000u);
}
)",
     {},
     "fn f16_from_f32(x: f32) -> u32 { return pack2x16float(vec2f(x, 0f)); }\n"},
    // Two neighbours in a word.
    {"halves_from_f32",
     {"f16_from_f32"},
     "fn halves_from_f32(x: f32, y: f32) -> u32 { return f16_from_f32(x) | (f16_from_f32(y) << 16u); }\n",
     {},
     "fn halves_from_f32(x: f32, y: f32) -> u32 { return pack2x16float(vec2f(x, y)); }\n"},
    {"bf16_from_f32", {}, R"(fn bf16_from_f32(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  let rounded = (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
  return select(rounded, (bits >> 16u) | 0x40u, (bits & 0x7fffffffu) > 0x7f800000u);
}
)"},
    {"rounded_f16",
     {"f32_from_f16", "f16_from_f32"},
     R"(fn rounded_f16(x: f32) -> f32 { return f32_from_f16(f16_from_f32(x)); }
)"},
    {"rounded_bf16",
     {"bf16_from_f32"},
     R"(fn rounded_bf16(x: f32) -> f32 { return bitcast<f32>(bf16_from_f32(x) << 16u); }
)"},
    // Storage types: like f16, with fewer bits. Values that are too large become the largest number.
    {"f32_from_fp8_e4m3", {}, R"(fn f32_from_fp8_e4m3(bits: u32) -> f32 {
  let rest = bits & 0x7fu;
  let large = (rest << 20u) + 0x3c000000u;
  var magnitude = select(large, bitcast<u32>(f32(rest) * 0x1p-9f), rest < 8u);
  magnitude = select(magnitude, 0x7fc00000u, rest > 0x7eu);
  return bitcast<f32>(magnitude | ((bits & 0x80u) << 24u));
}
)"},
    {"fp8_e4m3_from_f32", {}, R"(fn fp8_e4m3_from_f32(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  let rest = bits & 0x7fffffffu;
  let normal = ((rest + 0x7ffffu + ((rest >> 20u) & 1u)) >> 20u) - 960u;
  let places = min(141u - min(rest >> 23u, 120u), 31u);
  let digits = (rest & 0x7fffffu) | 0x800000u;
  let small = (digits + (1u << (places - 1u)) - 1u + ((digits >> places) & 1u)) >> places;
  let code = min(select(normal, small, rest < 0x3c800000u), 0x7eu);
  return select(code, 0x7fu, rest > 0x7f800000u) | ((bits >> 31u) << 7u);
}
)"},
    {"f32_from_fp8_e5m2", {}, R"(fn f32_from_fp8_e5m2(bits: u32) -> f32 {
  let rest = bits & 0x7fu;
  let large = (rest << 21u) + 0x38000000u;
  var magnitude = select(large, bitcast<u32>(f32(rest) * 0x1p-16f), rest < 4u);
  magnitude = select(magnitude, 0x7f800000u, rest == 0x7cu);
  magnitude = select(magnitude, 0x7fc00000u, rest > 0x7cu);
  return bitcast<f32>(magnitude | ((bits & 0x80u) << 24u));
}
)"},
    {"fp8_e5m2_from_f32", {}, R"(fn fp8_e5m2_from_f32(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  let rest = bits & 0x7fffffffu;
  let normal = ((rest + 0xfffffu + ((rest >> 21u) & 1u)) >> 21u) - 448u;
  let places = min(134u - min(rest >> 23u, 112u), 31u);
  let digits = (rest & 0x7fffffu) | 0x800000u;
  let small = (digits + (1u << (places - 1u)) - 1u + ((digits >> places) & 1u)) >> places;
  var code = min(select(normal, small, rest < 0x38800000u), 0x7bu);
  code = select(code, 0x7cu, rest == 0x7f800000u);
  return select(code, 0x7eu, rest > 0x7f800000u) | ((bits >> 31u) << 7u);
}
)"},
    {"f32_from_fp4_e2m1", {}, R"(fn f32_from_fp4_e2m1(bits: u32) -> f32 {
  let rest = bits & 0x7u;
  let large = (rest << 22u) + 0x3f000000u;
  let magnitude = select(large, bitcast<u32>(f32(rest) * 0x1p-1f), rest < 2u);
  return bitcast<f32>(magnitude | ((bits & 0x8u) << 28u));
}
)"},
    {"fp4_e2m1_from_f32", {}, R"(fn fp4_e2m1_from_f32(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  let rest = bits & 0x7fffffffu;
  let normal = ((rest + 0x1fffffu + ((rest >> 22u) & 1u)) >> 22u) - 252u;
  let places = min(149u - min(rest >> 23u, 126u), 31u);
  let digits = (rest & 0x7fffffu) | 0x800000u;
  let small = (digits + (1u << (places - 1u)) - 1u + ((digits >> places) & 1u)) >> places;
  let code = min(select(normal, small, rest < 0x3f800000u), 0x7u);
  return select(code | ((bits >> 31u) << 3u), 0u, rest > 0x7f800000u);
}
)"},
    {"small_integer_f32", {"is_nan_f32"}, R"(fn small_integer_f32(x: f32, low: f32, high: f32) -> f32 {
  return select(f32(i32(round(clamp(x, low, high)))), 0f, is_nan_f32(x));
}
)"},
    {"order_key_f32", {}, R"(fn order_key_f32(x: f32) -> u32 {
  let bits = select(bitcast<u32>(x), 0u, (bitcast<u32>(x) & 0x7fffffffu) == 0u);
  return select(bits | 0x80000000u, ~bits, (bits & 0x80000000u) != 0u);
}
)"},
    {"pow_i32", {}, R"(fn pow_i32(a: i32, b: i32) -> i32 {
  if (b < 0i) { return select(select(0i, select(1i, -1i, (b & 1i) != 0i), a == -1i), 1i, a == 1i); }
  var result = 1i;
  var base = a;
  for (var n = b; n > 0i; n >>= 1u) {
    if ((n & 1i) != 0i) { result *= base; }
    base *= base;
  }
  return result;
}
)"},
    {"pow_u32", {}, R"(fn pow_u32(a: u32, b: u32) -> u32 {
  var result = 1u;
  var base = a;
  for (var n = b; n > 0u; n >>= 1u) {
    if ((n & 1u) != 0u) { result *= base; }
    base *= base;
  }
  return result;
}
)"},
    // 64-bit product as (low, high).
    {"mul_wide", {}, R"(fn mul_wide(a: u32, b: u32) -> vec2u {
  let al = a & 0xffffu;
  let ah = a >> 16u;
  let bl = b & 0xffffu;
  let bh = b >> 16u;
  let low = al * bl;
  let middle = ah * bl + (low >> 16u);
  let carry = al * bh + (middle & 0xffffu);
  return vec2u(a * b, ah * bh + (middle >> 16u) + (carry >> 16u));
}
)"},
    {"philox_block", {"mul_wide"}, R"(fn philox_block(seed: vec2u, counter: vec4u) -> vec4u {
  var c = counter;
  var key = seed;
  for (var round = 0u; round < 10u; round++) {
    let p = mul_wide(0xd2511f53u, c.x);
    let q = mul_wide(0xcd9e8d57u, c.z);
    c = vec4u(q.y ^ c.y ^ key.x, q.x, p.y ^ c.w ^ key.y, p.x);
    key += vec2u(0x9e3779b9u, 0xbb67ae85u);
  }
  return c;
}
)"},
    {"philox", {"philox_block"}, R"(fn philox(seed: u32, stream: u32, index: u32) -> u32 {
  return philox_block(vec2u(seed, stream), vec4u(index, 0u, 0u, 0u)).x;
}
)"},
    // Long division of the mantissas, one bit per turn.
    {"rem_f32", {"nan_f32"}, R"(fn rem_f32(x: f32, y: f32) -> f32 {
  let sign = bitcast<u32>(x) & 0x80000000u;
  var a = bitcast<u32>(x) & 0x7fffffffu;
  var b = bitcast<u32>(y) & 0x7fffffffu;
  if (a >= 0x7f800000u || b > 0x7f800000u || b == 0u) { return nan_f32(); }
  if (a < b) { return x; }
  var a_exponent = i32(a >> 23u);
  var b_exponent = i32(b >> 23u);
  a = select((a & 0x7fffffu) | 0x800000u, a, a_exponent == 0i);
  b = select((b & 0x7fffffu) | 0x800000u, b, b_exponent == 0i);
  a_exponent = max(a_exponent, 1i);
  b_exponent = max(b_exponent, 1i);
  for (; a_exponent > b_exponent; a_exponent--) {
    if (a >= b) { a -= b; }
    a <<= 1u;
  }
  if (a >= b) { a -= b; }
  if (a == 0u) { return bitcast<f32>(sign); }
  let shift = min(i32(countLeadingZeros(a)) - 8i, b_exponent - 1i);
  a <<= u32(shift);
  b_exponent -= shift;
  let magnitude = select(a, (a & 0x7fffffu) | (u32(b_exponent) << 23u), a >= 0x800000u);
  return bitcast<f32>(sign | magnitude);
}
)"},
    {"power_of_two", {}, R"(fn power_of_two(n: i32) -> f32 { return bitcast<f32>(u32(n + 127i) << 23u); }
)"},
    {"scale_f32", {"power_of_two"}, R"(fn scale_f32(x: f32, n: i32) -> f32 {
  let half = n >> 1u;
  return x * power_of_two(half) * power_of_two(n - half);
}
)"},
    // (n, e^r - 1) where x = n ln 2 + r and |r| <= ln 2 / 2.
    {"exp_parts_f32", {}, R"(fn exp_parts_f32(x: f32) -> vec2f {
  let n = round(x * 1.442695f);
  let r = (x - n * 0.693145751953125f) - n * 1.4286068e-06f;
  var p = fma(r, 0.00019914132f, 0.0013940998f);
  p = fma(r, p, 0.008333273f);
  p = fma(r, p, 0.041666355f);
  p = fma(r, p, 0.16666667f);
  p = fma(r, p, 0.5f);
  return vec2f(n, fma(r * r, p, r));
}
)"},
    // e^x * 2^k for small k.
    {"scaled_exp_f32", {"is_nan_f32", "scale_f32", "exp_parts_f32"}, R"(fn scaled_exp_f32(x: f32, k: i32) -> f32 {
  let parts = exp_parts_f32(clamp(x, -106f, 90f));
  return select(scale_f32(1f + parts.y, i32(parts.x) + k), x, is_nan_f32(x));
}
)"},
    // e^x for x <= 0, at least 2^-126. A NaN gives some number.
    {"exp_of_negative_f32", {"power_of_two", "exp_parts_f32"}, R"(fn exp_of_negative_f32(x: f32) -> f32 {
  let parts = exp_parts_f32(max(x, -87f));
  return (1f + parts.y) * power_of_two(i32(parts.x));
}
)"},
    {"exp_f32", {"scaled_exp_f32"}, R"(fn exp_f32(x: f32) -> f32 { return scaled_exp_f32(x, 0i); }
)"},
    {"expm1_f32", {"is_nan_f32", "power_of_two", "exp_parts_f32"}, R"(fn expm1_f32(x: f32) -> f32 {
  let parts = exp_parts_f32(clamp(x, -20f, 89f));
  let t = power_of_two(i32(parts.x) - 1i);
  return select(fma(t, parts.y, t - 0.5f) * 2f, x, is_nan_f32(x) || abs(x) < 5e-08f);
}
)"},
    {"exp2_f32", {"is_nan_f32", "scale_f32"}, R"(fn exp2_f32(x: f32) -> f32 {
  let c = clamp(x, -152f, 129f);
  let n = round(c);
  let r = c - n;
  var p = fma(r, 1.5310063e-05f, 0.00015461446f);
  p = fma(r, p, 0.0013333454f);
  p = fma(r, p, 0.009618057f);
  p = fma(r, p, 0.05550411f);
  p = fma(r, p, 0.2402265f);
  p = fma(r, p, 0.6931472f);
  return select(scale_f32(fma(r, p, 1f), i32(n)), x, is_nan_f32(x));
}
)"},
    // ln(1 + f) for f in [-0.293, 0.415]: with s = f / (2 + f), ln = 2 atanh(s) = f - s (f - s^2 R(s^2)).
    {"log1p_core_f32", {}, R"(fn log1p_core_f32(f: f32) -> f32 {
  let s = f / (2f + f);
  let z = s * s;
  var p = fma(z, 0.23582147f, 0.2853731f);
  p = fma(z, p, 0.40000334f);
  p = fma(z, p, 0.6666666f);
  return f - s * (f - z * p);
}
)"},
    // (k, m) where x = 2^k m and m in [sqrt(1/2), sqrt(2)), for x > 0; denormals count by their bits.
    {"log_split_f32", {}, R"(fn log_split_f32(x: f32) -> vec2f {
  var bits = bitcast<u32>(x);
  var base = 0i;
  if (bits < 0x00800000u) {
    bits = bitcast<u32>(f32(bits));
    base = -149i;
  }
  let k = bitcast<i32>(bits - 0x3f3504f3u) >> 23u;
  return vec2f(f32(k + base), bitcast<f32>(bits - (bitcast<u32>(k) << 23u)));
}
)"},
    // Replaces the result of a logarithm outside (0, infinity).
    {"log_edges_f32", {"inf_f32", "nan_f32"}, R"(fn log_edges_f32(x: f32, y: f32) -> f32 {
  let bits = bitcast<u32>(x);
  if (bits > 0x7f800000u || bits == 0x7f800000u || bits == 0u) {
    if (bits == 0x7f800000u) { return x; }
    if ((bits & 0x7fffffffu) == 0u) { return -inf_f32(); }
    return nan_f32();
  }
  return y;
}
)"},
    {"log_f32", {"log1p_core_f32", "log_split_f32", "log_edges_f32"}, R"(fn log_f32(x: f32) -> f32 {
  let parts = log_split_f32(x);
  let low = fma(parts.x, 1.4286068e-06f, log1p_core_f32(parts.y - 1f));
  return log_edges_f32(x, fma(parts.x, 0.693145751953125f, low));
}
)"},
    {"log2_f32", {"log1p_core_f32", "log_split_f32", "log_edges_f32"}, R"(fn log2_f32(x: f32) -> f32 {
  let parts = log_split_f32(x);
  return log_edges_f32(x, fma(log1p_core_f32(parts.y - 1f), 1.442695f, parts.x));
}
)"},
    {"log10_f32", {"log1p_core_f32", "log_split_f32", "log_edges_f32"}, R"(fn log10_f32(x: f32) -> f32 {
  let parts = log_split_f32(x);
  let low = fma(parts.x, 7.903417e-07f, log1p_core_f32(parts.y - 1f) * 0.4342945f);
  return log_edges_f32(x, fma(parts.x, 0.301029205322265625f, low));
}
)"},
    {"log1p_f32", {"is_nan_f32", "log1p_core_f32", "log_f32"}, R"(fn log1p_f32(x: f32) -> f32 {
  if (x > -0.29f && x < 0.41f && !is_nan_f32(x)) { return log1p_core_f32(x); }
  return log_f32(1f + x);
}
)"},
    // ln(1 + x) for x in [0, 1] without a branch: 2 atanh(x / (2 + x)), within 2 units in the last place.
    {"log1p_of_part_f32", {}, R"(fn log1p_of_part_f32(x: f32) -> f32 {
  let s = x / (2f + x);
  let z = s * s;
  return 2f * s * fma(z, fma(z, fma(z, fma(z, 0.14087328f, 0.13980709f), 0.20012426f), 0.33333158f), 1f);
}
)"},
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
    {"sinh_f32", {"with_sign_f32", "scaled_exp_f32"}, R"(fn sinh_f32(x: f32) -> f32 {
  let a = abs(x);
  if (a < 1f) {
    let z = x * x;
    return fma(x * z, fma(z, fma(z, fma(z, 2.8174395e-06f, 0.00019836066f), 0.0083333505f), 0.16666667f), x);
  }
  return with_sign_f32(scaled_exp_f32(a, -1i) - scaled_exp_f32(-a, -1i), x);
}
)"},
    {"cosh_f32",
     {"scaled_exp_f32"},
     R"(fn cosh_f32(x: f32) -> f32 { return scaled_exp_f32(abs(x), -1i) + scaled_exp_f32(-abs(x), -1i); }
)"},
    {"tanh_f32", {"is_nan_f32", "with_sign_f32", "power_of_two", "exp_parts_f32"}, R"(fn tanh_f32(x: f32) -> f32 {
  let a = abs(x);
  let z = x * x;
  var p = fma(z, -0.005717042f, 0.020650584f);
  p = fma(z, p, -0.053743497f);
  p = fma(z, p, 0.13331491f);
  p = fma(z, p, -0.33333284f);
  let near = fma(x * z, p, x);
  let parts = exp_parts_f32(2f * min(a, 10f));
  let e = (1f + parts.y) * power_of_two(i32(parts.x));
  let far = with_sign_f32(1f - 2f / (e + 1f), x);
  return select(select(far, near, a < 0.625f), x, is_nan_f32(x));
}
)"},
    {"asinh_f32", {"is_nan_f32", "with_sign_f32", "log_f32", "log1p_f32"}, R"(fn asinh_f32(x: f32) -> f32 {
  let a = abs(x);
  var y: f32;
  if (a > 65536f) {
    y = log_f32(a) + 0.6931472f;
  } else {
    y = log1p_f32(a + a * a / (1f + sqrt(fma(a, a, 1f))));
  }
  return select(with_sign_f32(y, x), x, is_nan_f32(x));
}
)"},
    {"acosh_f32", {"nan_f32", "is_nan_f32", "log_f32", "log1p_f32"}, R"(fn acosh_f32(x: f32) -> f32 {
  if (is_nan_f32(x) || x < 1f) { return nan_f32(); }
  if (x > 65536f) { return log_f32(x) + 0.6931472f; }
  let t = x - 1f;
  return log1p_f32(t + sqrt(2f * t + t * t));
}
)"},
    {"atanh_f32", {"inf_f32", "nan_f32", "is_nan_f32", "with_sign_f32", "log1p_f32"}, R"(fn atanh_f32(x: f32) -> f32 {
  let a = abs(x);
  if (is_nan_f32(x) || a > 1f) { return nan_f32(); }
  if (a == 1f) { return with_sign_f32(inf_f32(), x); }
  return with_sign_f32(0.5f * log1p_f32(2f * a / (1f - a)), x);
}
)"},
    // Near zero x + x Q(x^2); further out 1 - e^-P(|x|), where P fits -ln(erfc).
    {"erf_f32", {"is_nan_f32", "with_sign_f32", "scaled_exp_f32"}, R"(fn erf_f32(x: f32) -> f32 {
  let a = abs(x);
  if (a < 0.9375f) {
    let z = x * x;
    var q = fma(z, -0.00059194217f, 0.0049791313f);
    q = fma(z, q, -0.026757035f);
    q = fma(z, q, 0.11281552f);
    q = fma(z, q, -0.37612468f);
    q = fma(z, q, 0.12837915f);
    return fma(x, q, x);
  }
  let t = min(a, 4f);
  var p = fma(t, 2.1362917e-05f, -0.0004375537f);
  p = fma(t, p, 0.0041860156f);
  p = fma(t, p, -0.025158746f);
  p = fma(t, p, 0.10834082f);
  p = fma(t, p, 0.6332918f);
  p = fma(t, p, 1.1295422f);
  p = fma(t, p, -0.00018035351f);
  let y = select(1f - scaled_exp_f32(-p, 0i), 1f, a >= 4f);
  return select(with_sign_f32(y, x), x, is_nan_f32(x));
}
)"},
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

std::span<const WgslFunction> wgsl_functions() { return kFunctions; }

}  // namespace weft::webgpu
