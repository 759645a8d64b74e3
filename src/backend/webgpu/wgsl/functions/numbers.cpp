// Infinity, NaN, signs and zeros, which compilers of shaders may take for granted; and casts between f32 and integers.
#include "backend/webgpu/wgsl/functions/parts.hpp"

namespace weft::webgpu::functions {
namespace {

constexpr WgslFunction kNumberFunctions[] = {
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
};

}  // namespace

std::span<const WgslFunction> number_functions() { return kNumberFunctions; }

}  // namespace weft::webgpu::functions
