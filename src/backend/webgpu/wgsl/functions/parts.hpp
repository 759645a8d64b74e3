// The parts of the WGSL function library.
//
// Polynomials are minimax fits (relative error below 2^-25 after rounding the coefficients to f32). Nothing here relies on
// fma being fused, or on rounding tricks such as (a + b) - a, which shader compilers may simplify away. Exact splits mask
// bits.
#pragma once

#include <span>

#include "backend/webgpu/wgsl/functions.hpp"

namespace weft::webgpu::functions {

std::span<const WgslFunction> number_functions();
std::span<const WgslFunction> conversion_functions();
std::span<const WgslFunction> integer_functions();
std::span<const WgslFunction> exponential_functions();
std::span<const WgslFunction> fixed_point_functions();
std::span<const WgslFunction> angle_functions();
std::span<const WgslFunction> hyperbolic_functions();
std::span<const WgslFunction> power_functions();

}  // namespace weft::webgpu::functions
