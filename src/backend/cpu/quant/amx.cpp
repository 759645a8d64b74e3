// Quantised products for AVX-512 with VNNI and AMX: few rows by vectors, panels of 16 by tiles.
#if defined(__AVX512VNNI__)
#include "backend/cpu/quant/amx.inc.hpp"
#include "backend/cpu/quant/avx512.inc.hpp"

namespace weft::cpu {
namespace {

struct Tiles : AmxTiles {
  /// sums += x q, x signed and q not.
  template <int kSums, int kX, int kQ>
  static void multiply() {
    asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kX), "i"(kQ));
  }
};

}  // namespace

namespace avx512 {
const QuantKernels& quant_amx() {
  static const QuantKernels kernels = with_tiles<QuantAvx512, Tiles>(quant_vnni(), "amx");
  return kernels;
}
}  // namespace avx512
}  // namespace weft::cpu
#endif
