// Matrix-product kernels for AVX2 with FMA: tiles of 6 rows by two vectors, 12 of the 16 registers for sums.
#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>

#include "backend/cpu/gemm_tile.inc.hpp"

namespace weft::cpu {
namespace {

struct VectorF32 {
  using Element = float;
  using Register = __m256;
  static constexpr int kLanes = 8;
  static constexpr bool kMasksAreFree = false;
  static Register zero() { return _mm256_setzero_ps(); }
  struct Mask {
    __m256i lanes;
    int count;
  };
  static Mask mask(int count) {
    return {_mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)), count};
  }
  static Register load(const float* p) { return _mm256_loadu_ps(p); }
  static Register load_first(const float* p, Mask mask) { return _mm256_maskload_ps(p, mask.lanes); }
  static void store(float* p, Register x) { _mm256_storeu_ps(p, x); }
  // Some processors take a dozen cycles for a masked store.
  static void store_first(float* p, Register x, Mask mask) {
    if (mask.count >= kLanes) return store(p, x);
    __m128 rest = _mm256_castps256_ps128(x);
    if ((mask.count & 4) != 0) {
      _mm_storeu_ps(p, rest);
      rest = _mm256_extractf128_ps(x, 1);
      p += 4;
    }
    if ((mask.count & 2) != 0) {
      _mm_storel_pi(reinterpret_cast<__m64*>(p), rest);
      rest = _mm_movehl_ps(rest, rest);
      p += 2;
    }
    if ((mask.count & 1) != 0) _mm_store_ss(p, rest);
  }
  static Register broadcast(const float* p) { return _mm256_broadcast_ss(p); }
  static Register add(Register x, Register y) { return _mm256_add_ps(x, y); }
  static Register subtract(Register x, Register y) { return _mm256_sub_ps(x, y); }
  static Register multiply_add(Register x, Register y, Register z) { return _mm256_fmadd_ps(x, y, z); }

  static void transpose_in_groups(Register* x) {
    const __m256d low01 = _mm256_castps_pd(_mm256_unpacklo_ps(x[0], x[1]));
    const __m256d high01 = _mm256_castps_pd(_mm256_unpackhi_ps(x[0], x[1]));
    const __m256d low23 = _mm256_castps_pd(_mm256_unpacklo_ps(x[2], x[3]));
    const __m256d high23 = _mm256_castps_pd(_mm256_unpackhi_ps(x[2], x[3]));
    x[0] = _mm256_castpd_ps(_mm256_unpacklo_pd(low01, low23));
    x[1] = _mm256_castpd_ps(_mm256_unpackhi_pd(low01, low23));
    x[2] = _mm256_castpd_ps(_mm256_unpacklo_pd(high01, high23));
    x[3] = _mm256_castpd_ps(_mm256_unpackhi_pd(high01, high23));
  }

  /// x[0], x[4] as a 2 x 2 matrix of 16-byte groups, transposed.
  static void transpose_groups(Register* x) {
    const Register low = _mm256_permute2f128_ps(x[0], x[4], 0x20);
    x[4] = _mm256_permute2f128_ps(x[0], x[4], 0x31);
    x[0] = low;
  }
};

struct VectorF64 {
  using Element = double;
  using Register = __m256d;
  static constexpr int kLanes = 4;
  static constexpr bool kMasksAreFree = false;
  static Register zero() { return _mm256_setzero_pd(); }
  static __m256i mask(int count) {
    return _mm256_cmpgt_epi64(_mm256_set1_epi64x(count), _mm256_setr_epi64x(0, 1, 2, 3));
  }
  static Register load(const double* p) { return _mm256_loadu_pd(p); }
  static Register load_first(const double* p, __m256i mask) { return _mm256_maskload_pd(p, mask); }
  static void store(double* p, Register x) { _mm256_storeu_pd(p, x); }
  static void store_first(double* p, Register x, __m256i mask) { _mm256_maskstore_pd(p, mask, x); }
  static Register broadcast(const double* p) { return _mm256_broadcast_sd(p); }
  static Register add(Register x, Register y) { return _mm256_add_pd(x, y); }
  static Register multiply_add(Register x, Register y, Register z) { return _mm256_fmadd_pd(x, y, z); }

  static void transpose_in_groups(Register* x) {
    const Register low = _mm256_unpacklo_pd(x[0], x[1]);
    x[1] = _mm256_unpackhi_pd(x[0], x[1]);
    x[0] = low;
  }

  /// x[0], x[2] as a 2 x 2 matrix of 16-byte groups, transposed.
  static void transpose_groups(Register* x) {
    const Register low = _mm256_permute2f128_pd(x[0], x[2], 0x20);
    x[2] = _mm256_permute2f128_pd(x[0], x[2], 0x31);
    x[0] = low;
  }
};

}  // namespace

namespace avx2 {
const GemmKernels<float> kGemmF32 = gemm_kernels<VectorF32, 6>();
const GemmKernels<double> kGemmF64 = gemm_kernels<VectorF64, 6>();
}  // namespace avx2
}  // namespace weft::cpu
#endif
