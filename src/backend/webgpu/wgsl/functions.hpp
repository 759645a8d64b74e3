// The WGSL function library of Helpers: the text of each function, by name.
#pragma once

#include <array>
#include <span>
#include <string_view>

namespace weft::webgpu {

struct WgslFunction {
  std::string_view name;
  std::array<std::string_view, 5> calls;  // the other functions of the library that it calls, then ""
  std::string_view text;
  std::string_view with_exact_halves = {};    // the text if unpack2x16float is exact; empty: the same
  std::string_view with_rounded_halves = {};  // the text if pack2x16float rounds to nearest; empty: the same
};

std::span<const WgslFunction> wgsl_functions();

}  // namespace weft::webgpu
