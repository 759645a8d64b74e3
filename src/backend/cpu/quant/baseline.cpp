// Quantised products in portable vectors.
#include "backend/cpu/quant/portable.inc.hpp"

namespace weft::cpu {
namespace baseline {
const QuantKernels kQuant = make_quant_kernels<QuantPortable>();
}
}  // namespace weft::cpu
