// Products of eight-bit integers for AMX: an instruction multiplies 16 rows by 16 columns by 64 neighbours along k.
#if defined(__x86_64__)
#include "backend/cpu/integer_amx.inc.hpp"

namespace weft::cpu {
namespace {

struct ByteTiles : AmxTiles {
  template <int kSums, int kA, int kB>
  static void multiply() {
    asm volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kA), "i"(kB));
  }
};

}  // namespace

namespace avx512 {
const IntegerKernels& integers_amx() {
  static const IntegerKernels kernels = integer_tiles<ByteTiles>(&kIntegerBytes);
  return kernels;
}
}  // namespace avx512
}  // namespace weft::cpu
#endif
