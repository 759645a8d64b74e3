// Quantised products for NEON with FEAT_DotProd.
#if defined(__ARM_FEATURE_DOTPROD)
#include "backend/cpu/quant/neon.inc.hpp"

namespace weft::cpu {
namespace {

struct Vector : QuantNeon {
  static constexpr const char* kName = "neon_dot";
  static Int dot(Int sum, Int x, Int y) { return vdotq_s32(sum, vreinterpretq_s8_s32(x), vreinterpretq_s8_s32(y)); }
};

}  // namespace

namespace neon {
const QuantKernels& quant_dot() {
  static const QuantKernels kernels = with_eight_bit<Vector>(baseline::kQuant);
  return kernels;
}
}  // namespace neon
}  // namespace weft::cpu
#endif
