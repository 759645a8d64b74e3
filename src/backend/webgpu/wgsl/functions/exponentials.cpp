// Exponentials and logarithms.
#include "backend/webgpu/wgsl/functions/parts.hpp"

namespace weft::webgpu::functions {
namespace {

constexpr WgslFunction kExponentialFunctions[] = {
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
};

}  // namespace

std::span<const WgslFunction> exponential_functions() { return kExponentialFunctions; }

}  // namespace weft::webgpu::functions
