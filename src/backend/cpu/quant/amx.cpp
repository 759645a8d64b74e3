// Quantised products for AVX-512 with VNNI and AMX: few rows by vectors, panels of 16 by tiles.
#if defined(__AVX512VNNI__)
#include "backend/cpu/quant/amx.inc.hpp"
#include "backend/cpu/quant/avx512.inc.hpp"

namespace weft::cpu {
namespace {

/// The instructions. The compilers' wrappers do not declare that a load reads memory.
struct Tiles {
  static void configure(const TileConfiguration& c) { asm volatile("ldtilecfg %0" : : "m"(c)); }
  static void release() { asm volatile("tilerelease"); }
  template <int kRegister>
  static void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(kRegister));
  }
  template <int kRegister>
  static void load(const void* from, std::int64_t row_bytes) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(row_bytes), "i"(kRegister) : "memory");
  }
  template <int kRegister>
  static void store(void* to, std::int64_t row_bytes) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(row_bytes), "i"(kRegister) : "memory");
  }
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
