// Hyperbolic functions and their inverses, and the error function.
#include "backend/webgpu/wgsl/functions/parts.hpp"

namespace weft::webgpu::functions {
namespace {

constexpr WgslFunction kHyperbolicFunctions[] = {
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
};

}  // namespace

std::span<const WgslFunction> hyperbolic_functions() { return kHyperbolicFunctions; }

}  // namespace weft::webgpu::functions
