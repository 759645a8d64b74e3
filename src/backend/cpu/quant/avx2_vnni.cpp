// Quantised products for AVX2 with AVX-VNNI: tiles of up to 6 rows by 8 columns.
#if defined(__AVXVNNI__)
#include "backend/cpu/quant/avx2.inc.hpp"

namespace weft::cpu {
namespace {

struct Vector : QuantAvx2 {
  static constexpr const char* kName = "avx2_vnni";
  static constexpr bool kHasDot = true, kDotIsSigned = false;
  static constexpr int kEightBitHeights[kQuantHeights] = {1, 2, 4, 6, 0};
  static Int dot(Int sum, Int x, Int y) { return _mm256_dpbusd_avx_epi32(sum, x, y); }
};

}  // namespace

namespace avx2 {
const QuantKernels& quant_vnni() {
  static const QuantKernels kernels = with_eight_bit<Vector>(kQuant);
  return kernels;
}
}  // namespace avx2
}  // namespace weft::cpu
#endif
