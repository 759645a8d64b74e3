// Vectors of 16 floats, for the matrix-product kernels of AVX-512.
#pragma once

#include <immintrin.h>

#include "backend/cpu/gemm_tile.inc.hpp"

namespace weft::cpu {
namespace {

struct VectorF32 {
  using Element = float;
  using Register = __m512;
  static constexpr int kLanes = 16;
  static constexpr bool kMasksAreFree = true;
  static Register zero() { return _mm512_setzero_ps(); }
  static __mmask16 mask(int count) { return static_cast<__mmask16>((1u << count) - 1); }
  static Register load(const float* p) { return _mm512_loadu_ps(p); }
  static Register load_first(const float* p, __mmask16 mask) { return _mm512_maskz_loadu_ps(mask, p); }
  static void store(float* p, Register x) { _mm512_storeu_ps(p, x); }
  static void store_first(float* p, Register x, __mmask16 mask) { _mm512_mask_storeu_ps(p, mask, x); }
  static Register broadcast(const float* p) { return _mm512_set1_ps(*p); }
  static Register add(Register x, Register y) { return _mm512_add_ps(x, y); }
  static Register subtract(Register x, Register y) { return _mm512_sub_ps(x, y); }
  static Register multiply_add(Register x, Register y, Register z) { return _mm512_fmadd_ps(x, y, z); }

  static void transpose_in_groups(Register* x) {
    const __m512d low01 = _mm512_castps_pd(_mm512_unpacklo_ps(x[0], x[1]));
    const __m512d high01 = _mm512_castps_pd(_mm512_unpackhi_ps(x[0], x[1]));
    const __m512d low23 = _mm512_castps_pd(_mm512_unpacklo_ps(x[2], x[3]));
    const __m512d high23 = _mm512_castps_pd(_mm512_unpackhi_ps(x[2], x[3]));
    x[0] = _mm512_castpd_ps(_mm512_unpacklo_pd(low01, low23));
    x[1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low01, low23));
    x[2] = _mm512_castpd_ps(_mm512_unpacklo_pd(high01, high23));
    x[3] = _mm512_castpd_ps(_mm512_unpackhi_pd(high01, high23));
  }

  /// x[0], x[4], x[8], x[12] as a 4 x 4 matrix of 16-byte groups, transposed.
  static void transpose_groups(Register* x) {
    const Register low01 = _mm512_shuffle_f32x4(x[0], x[4], 0x44), high01 = _mm512_shuffle_f32x4(x[0], x[4], 0xEE);
    const Register low23 = _mm512_shuffle_f32x4(x[8], x[12], 0x44), high23 = _mm512_shuffle_f32x4(x[8], x[12], 0xEE);
    x[0] = _mm512_shuffle_f32x4(low01, low23, 0x88);
    x[4] = _mm512_shuffle_f32x4(low01, low23, 0xDD);
    x[8] = _mm512_shuffle_f32x4(high01, high23, 0x88);
    x[12] = _mm512_shuffle_f32x4(high01, high23, 0xDD);
  }
};

}  // namespace
}  // namespace weft::cpu
