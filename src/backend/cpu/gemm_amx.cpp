// Kernels for products of bf16 with sums in f32, for AMX: an instruction multiplies 16 rows by 16 columns by 16 pairs along k.
#if defined(__AVX512BF16__)
#include "backend/cpu/bf16_amx.inc.hpp"

namespace weft::cpu {
namespace {

/// Words of A and B are pairs of bf16, sums are f32.
struct Bf16Tiles : AmxTiles {
  template <int kSums, int kA, int kB>
  static void multiply() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kA), "i"(kB));
  }
};

}  // namespace

namespace avx512 {
const GemmKernels<float>& gemm_amx() {
  static const GemmKernels<float> kernels = bf16_tiles<Bf16Tiles>(kGemmBf16);
  return kernels;
}
}  // namespace avx512
}  // namespace weft::cpu
#endif
