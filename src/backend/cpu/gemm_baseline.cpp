// Matrix-product kernels in the compiler's portable vectors of 16 bytes: SSE2 or NEON, which every processor has.
#include "backend/cpu/gemm_vector16.inc.hpp"

namespace weft::cpu {
namespace {

#if defined(__aarch64__)
constexpr int kRows = 12;  // with two vectors to a row, 24 of the 32 registers hold sums
#else
constexpr int kRows = 4;
#endif

}  // namespace

namespace baseline {
const GemmKernels<float> kGemmF32 = gemm_kernels<VectorF32, kRows>();
const GemmKernels<double> kGemmF64 = gemm_kernels<VectorF64, kRows>();
}  // namespace baseline
}  // namespace weft::cpu
