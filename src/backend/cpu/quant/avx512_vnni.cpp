// Quantised products for AVX-512 with VNNI: tiles of up to 12 rows by 16 columns, twelve registers of integers and twelve
// of sums.
#if defined(__AVX512VNNI__)
#include "backend/cpu/quant/avx512.inc.hpp"

namespace weft::cpu {
namespace {

struct Vector : QuantAvx512 {
  static constexpr const char* kName = "avx512_vnni";
  static constexpr bool kHasDot = true, kDotIsSigned = false;
  static constexpr int kEightBitHeights[kQuantHeights] = {1, 2, 4, 8, 12};
  static Int dot(Int sum, Int x, Int y) { return _mm512_dpbusd_epi32(sum, x, y); }
};

}  // namespace

namespace avx512 {
const QuantKernels& quant_vnni() {
  static const QuantKernels kernels = with_eight_bit<Vector>(kQuant);
  return kernels;
}
}  // namespace avx512
}  // namespace weft::cpu
#endif
