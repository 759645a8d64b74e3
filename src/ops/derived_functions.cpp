// Functions of the expression language that are defined by text.
#include "ops/parse.hpp"
#include "ops/special_functions.hpp"

namespace weft::scalar {

std::span<const DerivedFunction> derived_functions() {
  static const std::vector<DerivedFunction> plain = {
      {"square", {"x"}, "x * x"},
      {"reciprocal", {"x"}, "1 / x"},
      {"fract", {"x"}, "x - floor(x)"},
      {"is_inf", {"x"}, "abs(x) == inf"},
      {"isinf", {"x"}, "abs(x) == inf"},
      {"is_finite", {"x"}, "abs(x) < inf"},
      {"isfinite", {"x"}, "abs(x) < inf"},
      // Neither the function nor its derivatives produce an infinity on the way.
      {"sigmoid", {"x"}, "var t = exp(x < 0 ? x : -x); (x < 0 ? t : 1) / (1 + t)"},
      // The exponent is never positive, so nothing overflows; both sides are smooth at 0.
      {"softplus", {"x"}, "(x < 0 ? 0 : x) + log1p(exp(x < 0 ? x : -x))"},
      {"relu", {"x"}, "x <= 0 ? 0 : x"},
      {"clamp", {"x", "lo", "hi"}, "min(max(x, lo), hi)"},
      {"saturate", {"x"}, "min(max(x, 0), 1)"},
      {"step", {"edge", "x"}, "edge <= x ? 1 : 0"},
      {"fma", {"x", "y", "z"}, "x * y + z"},
      // Starts from the nearer end, so that t = 0 and t = 1 give x and y exactly.
      {"mix", {"x", "y", "t"}, "t < 0.5 ? x + t * (y - x) : y - (y - x) * (1 - t)"},
      {"ldexp", {"x", "n"}, "x * exp2(n)"},
      // Scaled by the larger side, so that squares neither overflow nor vanish; an infinity wins over a NaN.
      {"hypot",
       {"x", "y"},
       "var a = abs(x); var b = abs(y); var m = max(a, b); var r = min(a, b) / m;"
       "a == inf || b == inf ? inf : m == 0 ? m : m * sqrt(1 + r * r)"},
      {"degrees", {"x"}, "x * (180 / pi)"},
      {"radians", {"x"}, "x * (pi / 180)"},
  };
  static const std::vector<DerivedFunction> functions = [] {
    std::vector<DerivedFunction> all = special_functions();
    all.insert(all.begin(), plain.begin(), plain.end());
    for (const auto& more : {bessel_functions(), incomplete_gamma_functions()})
      all.insert(all.end(), more.begin(), more.end());
    return all;
  }();
  return functions;
}

}  // namespace weft::scalar
