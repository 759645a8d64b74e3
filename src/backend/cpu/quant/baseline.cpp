// Quantised products for any processor of the architecture: in NEON, or in portable vectors.
#if defined(__aarch64__)
#include "backend/cpu/quant/neon.inc.hpp"
#else
#include "backend/cpu/quant/portable.inc.hpp"
#endif

namespace weft::cpu {
namespace {

#if defined(__aarch64__)
struct Vector : QuantNeon {
  static constexpr const char* kName = "baseline";
};
#else
using Vector = QuantPortable;
#endif

}  // namespace

namespace baseline {
const QuantKernels kQuant = make_quant_kernels<Vector>();
}
}  // namespace weft::cpu
