// Quantised products for AVX-512 F, DQ, BW and VL.
#if defined(__AVX512BW__)
#include "backend/cpu/quant/avx512.inc.hpp"

namespace weft::cpu {
namespace {

struct Vector : QuantAvx512 {
  static constexpr const char* kName = "avx512";
  static constexpr bool kHasDot = false;
  static constexpr int kEightBitHeights[kQuantHeights] = {1, 2, 4, 8, 0};
};

}  // namespace

namespace avx512 {
const QuantKernels kQuant = make_quant_kernels<Vector>();
}
}  // namespace weft::cpu
#endif
