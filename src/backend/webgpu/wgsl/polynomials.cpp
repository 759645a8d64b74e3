#include "backend/webgpu/wgsl/polynomials.hpp"

#include <fmt/format.h>

#include "backend/webgpu/wgsl/custom.hpp"
#include "compile/call_attributes.hpp"
#include "graph/polynomials.hpp"

namespace weft::webgpu {
namespace {

// The coefficients of graph::polynomial_step as WGSL.
std::string step_text(graph::PolynomialKind kind) {
  switch (kind) {
    case graph::PolynomialKind::chebyshev_t:
      return "let a = select(2f, 1f, k == 0f); let b = 0f; let c = 1f; let d = 1f;";
    case graph::PolynomialKind::chebyshev_u: return "let a = 2f; let b = 0f; let c = 1f; let d = 1f;";
    case graph::PolynomialKind::chebyshev_v:
      return "let a = 2f; let b = select(0f, -1f, k == 0f); let c = 1f; let d = 1f;";
    case graph::PolynomialKind::chebyshev_w:
      return "let a = 2f; let b = select(0f, 1f, k == 0f); let c = 1f; let d = 1f;";
    case graph::PolynomialKind::hermite_h: return "let a = 2f; let b = 0f; let c = 2f * k; let d = 1f;";
    case graph::PolynomialKind::hermite_he: return "let a = 1f; let b = 0f; let c = k; let d = 1f;";
    case graph::PolynomialKind::laguerre_l: return "let a = -1f; let b = 2f * k + 1f; let c = k; let d = k + 1f;";
    case graph::PolynomialKind::legendre_p: break;
  }
  return "let a = 2f * k + 1f; let b = 0f; let c = k; let d = k + 1f;";
}

// As backend/cpu/polynomials.cpp computes it. NaN is tested by bits: those of a float that is not negative are ordered as numbers.
constexpr std::string_view kPolynomial = R"(
  if (index < out0_size) {{
    let degree = n(index);
    let bits = bitcast<u32>(degree) & 0x7fffffffu;
    var now: array<f32, {0}>;
    var before: array<f32, {0}>;
    now[0] = select(0f, 1f, degree > -1f);
    if (bits > 0x7f800000u || degree > degree_max) {{
      var nan = 0x7fc00000u;
      now[{0} - 1] = bitcast<f32>(nan);
    }} else {{
      for (var k = 0f; k + 1f <= degree; k += 1f) {{
        {1}
        for (var order = {0}i - 1; order >= 0; order--) {{
          var next = (a * x(index) + b) * now[order] - c * before[order];
          if (order > 0) {{ next += f32(order) * a * now[order - 1]; }}
          before[order] = now[order];
          now[order] = next / d;
        }}
      }}
    }}
    store0(index, now[{0} - 1]);
  }})";

}  // namespace

void render_orthogonal_polynomial(const kernel::CallKernel& kernel, const Target& target, Scratch&,
                                  Rendered& rendered) {
  const auto attributes = kernel::attributes_of<graph::PolynomialAttributes>(kernel);
  const KernelDefinition definition{
      .name = "orthogonal_polynomial",
      .inputs = {"x", "n"},
      .wgsl = fmt::format(kPolynomial, attributes.derivative + 1, step_text(attributes.kind))};
  render_custom(definition, {{"degree_max", graph::kPolynomialDegreeMax}}, kernel, target, rendered);
}

}  // namespace weft::webgpu
