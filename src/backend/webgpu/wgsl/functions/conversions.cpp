// Types that only memory holds, as f32 and back.
#include "backend/webgpu/wgsl/functions/parts.hpp"

namespace weft::webgpu::functions {
namespace {

constexpr WgslFunction kConversionFunctions[] = {
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
    {"rounded_f16",
     {"f32_from_f16", "f16_from_f32"},
     R"(fn rounded_f16(x: f32) -> f32 { return f32_from_f16(f16_from_f32(x)); }
)"},
    {"rounded_bf16", {}, R"(fn rounded_bf16(x: f32) -> f32 {
  let bits = bitcast<u32>(x);
  let rounded = bits + 0x7fffu + ((bits >> 16u) & 1u);
  return bitcast<f32>(select(rounded, bits | 0x400000u, (bits & 0x7fffffffu) > 0x7f800000u) & 0xffff0000u);
}
)"},
    {"bf16_from_f32",
     {"rounded_bf16"},
     R"(fn bf16_from_f32(x: f32) -> u32 { return bitcast<u32>(rounded_bf16(x)) >> 16u; }
)"},
    // Two neighbours that are rounded, in a word.
    {"pair_of_bf16", {}, R"(fn pair_of_bf16(x: f32, y: f32) -> u32 {
  return (bitcast<u32>(x) >> 16u) | (bitcast<u32>(y) & 0xffff0000u);
}
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
};

}  // namespace

std::span<const WgslFunction> conversion_functions() { return kConversionFunctions; }

}  // namespace weft::webgpu::functions
