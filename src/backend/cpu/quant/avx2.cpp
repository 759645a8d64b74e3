// Quantised products for AVX2 with FMA and F16C.
#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include "backend/cpu/quant/avx2.inc.hpp"

namespace weft::cpu {
namespace {

struct Vector : QuantAvx2 {
  static constexpr const char* kName = "avx2";
  static constexpr bool kHasDot = false;
  static constexpr int kEightBitHeights[kQuantHeights] = {1, 2, 4, 0, 0};
};

}  // namespace

namespace avx2 {
const QuantKernels kQuant = make_quant_kernels<Vector>();
}
}  // namespace weft::cpu
#endif
