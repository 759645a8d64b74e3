// Matrix-product kernels for AVX-512: tiles of 14 rows by two vectors, 28 of the 32 registers for sums.
#if defined(__AVX512F__)
#include "backend/cpu/gemm_avx512.inc.hpp"

namespace weft::cpu {
namespace {

struct VectorF64 {
  using Element = double;
  using Register = __m512d;
  static constexpr int kLanes = 8;
  static constexpr bool kMasksAreFree = true;
  static Register zero() { return _mm512_setzero_pd(); }
  static __mmask8 mask(int count) { return static_cast<__mmask8>((1u << count) - 1); }
  static Register load(const double* p) { return _mm512_loadu_pd(p); }
  static Register load_first(const double* p, __mmask8 mask) { return _mm512_maskz_loadu_pd(mask, p); }
  static void store(double* p, Register x) { _mm512_storeu_pd(p, x); }
  static void store_first(double* p, Register x, __mmask8 mask) { _mm512_mask_storeu_pd(p, mask, x); }
  static Register broadcast(const double* p) { return _mm512_set1_pd(*p); }
  static Register add(Register x, Register y) { return _mm512_add_pd(x, y); }
  static Register multiply_add(Register x, Register y, Register z) { return _mm512_fmadd_pd(x, y, z); }

  static void transpose_in_groups(Register* x) {
    const Register low = _mm512_unpacklo_pd(x[0], x[1]);
    x[1] = _mm512_unpackhi_pd(x[0], x[1]);
    x[0] = low;
  }

  /// x[0], x[2], x[4], x[6] as a 4 x 4 matrix of 16-byte groups, transposed.
  static void transpose_groups(Register* x) {
    const Register low01 = _mm512_shuffle_f64x2(x[0], x[2], 0x44), high01 = _mm512_shuffle_f64x2(x[0], x[2], 0xEE);
    const Register low23 = _mm512_shuffle_f64x2(x[4], x[6], 0x44), high23 = _mm512_shuffle_f64x2(x[4], x[6], 0xEE);
    x[0] = _mm512_shuffle_f64x2(low01, low23, 0x88);
    x[2] = _mm512_shuffle_f64x2(low01, low23, 0xDD);
    x[4] = _mm512_shuffle_f64x2(high01, high23, 0x88);
    x[6] = _mm512_shuffle_f64x2(high01, high23, 0xDD);
  }
};

}  // namespace

namespace avx512 {
const GemmKernels<float> kGemmF32 = gemm_kernels<VectorF32, 14>();
const GemmKernels<double> kGemmF64 = gemm_kernels<VectorF64, 14>();
}  // namespace avx512
}  // namespace weft::cpu
#endif
