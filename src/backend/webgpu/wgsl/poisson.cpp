#include "backend/webgpu/wgsl/poisson.hpp"

#include <fmt/format.h>

#include "backend/webgpu/wgsl/custom.hpp"
#include "graph/poisson.hpp"

namespace weft::webgpu {
namespace {

// As backend/cpu/poisson.cpp computes it. Bits of a float that is not negative are ordered as numbers; NaN is beyond them.
constexpr std::string_view kPoisson = R"(
  if (index < out0_size) {
    let lambda = rate(index);
    let bits = bitcast<u32>(lambda);
    var count = 0f;
    if (bits > bitcast<u32>(rate_max) && bits != 0x80000000u) {
      var nan = 0x7fc00000u;
      count = bitcast<f32>(nan);
    } else if (lambda > 0f) {
      let mode = floor(lambda);
      var above = 0f;
      if (mode < stirling) {
        above = exp(-lambda);
        for (var k = 1f; k <= mode; k += 1f) { above *= lambda / k; }
      } else {
        let d = (lambda - mode) / mode;
        let per_mode = 1f / mode;
        let squared = per_mode * per_mode;
        var power = -d * d * mode;
        var sum = 0f;
        for (var k = 2f; k <= terms; k += 1f) {
          sum += power / k;
          power *= -d;
        }
        let series = per_mode * (1f / 12f - squared * (1f / 360f - squared * (1f / 1260f - squared / 1680f)));
        above = exp(sum - series) / sqrt(6.28318530718f * mode);
      }
      var below = above;
      var rest = unit(index) - above;
      var high = mode;
      var low = mode;
      count = mode;
      while (rest >= 0f && above + below >= least) {
        high += 1f;
        above *= lambda / high;
        rest -= above;
        count = high;
        if (rest >= 0f) {
          count = mode;
          if (low > 0f) {
            below *= low / lambda;
            low -= 1f;
            rest -= below;
            count = select(mode, low, rest < 0f);
          } else {
            below = 0f;
          }
        }
      }
    }
    store0(index, count);
  })";

}  // namespace

void render_poisson_quantile(const kernel::CallKernel& kernel, const Target& target, Scratch&, Rendered& rendered) {
  static const KernelDefinition definition{
      .name = "poisson_quantile", .inputs = {"rate", "unit"}, .wgsl = std::string(kPoisson)};
  render_custom(definition,
                {{"rate_max", graph::kPoissonRateMax},
                 {"stirling", graph::kPoissonStirling},
                 {"terms", graph::kPoissonTerms},
                 {"least", 0x1p-33}},
                kernel, target, rendered);
}

}  // namespace weft::webgpu
