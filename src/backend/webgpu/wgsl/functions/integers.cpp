// Work on integers: orders of floats, powers, wide products, random numbers, remainders of floats.
#include "backend/webgpu/wgsl/functions/parts.hpp"

namespace weft::webgpu::functions {
namespace {

constexpr WgslFunction kIntegerFunctions[] = {
    // Larger for larger numbers; -0 as 0.
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
};

}  // namespace

std::span<const WgslFunction> integer_functions() { return kIntegerFunctions; }

}  // namespace weft::webgpu::functions
