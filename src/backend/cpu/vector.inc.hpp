// Vectors of one instruction set, as GCC vector types with the few operations that the language lacks. Included by files
// that are compiled for one instruction set each; everything has internal linkage so that no two of them mix.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace weft::cpu {
namespace {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

template <class T, int N>
struct VectorOf {
  typedef T Type __attribute__((vector_size(sizeof(T) * N)));
};
template <class T, int N>
using V = typename VectorOf<T, N>::Type;

constexpr int kFloats = kVectorBytes / 4, kDoubles = kVectorBytes / 8;
using F = V<float, kFloats>;
using I = V<std::int32_t, kFloats>;
using U = V<std::uint32_t, kFloats>;
using D = V<double, kDoubles>;
using L = V<std::int64_t, kDoubles>;
using HalfF = V<float, kDoubles>;  // the floats that fill a vector of doubles

template <int N, class T>
inline V<T, N> splat(T x) {
  return x - V<T, N>{};  // broadcasts the scalar to all lanes; x - 0 is x, also for -0
}
inline F splat(float x) { return splat<kFloats>(x); }
inline D splat(double x) { return splat<kDoubles>(x); }

template <int N, class T>
inline V<T, N> load(const T* p) {
  V<T, N> v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
template <int N, class T>
inline void store(T* p, V<T, N> v) {
  __builtin_memcpy(p, &v, sizeof v);
}

/// The first `count` < N lanes; the others are 0. Touches no memory beyond them.
template <int N, class T>
inline V<T, N> load_first(const T* p, std::int64_t count) {
#if defined(__AVX512F__)
  const auto mask = (1ull << count) - 1;
  if constexpr (sizeof(T) == 4 && N == 16) return (V<T, N>)_mm512_maskz_loadu_epi32(static_cast<__mmask16>(mask), p);
  if constexpr (sizeof(T) == 8 && N == 8) return (V<T, N>)_mm512_maskz_loadu_epi64(static_cast<__mmask8>(mask), p);
  if constexpr (sizeof(T) == 4 && N == 8) return (V<T, N>)_mm256_maskz_loadu_epi32(static_cast<__mmask8>(mask), p);
  if constexpr (sizeof(T) == 1 && N == 64) return (V<T, N>)_mm512_maskz_loadu_epi8(mask, p);
  if constexpr (sizeof(T) == 1 && N == 16) return (V<T, N>)_mm_maskz_loadu_epi8(static_cast<__mmask16>(mask), p);
  if constexpr (sizeof(T) == 2 && N == 32) return (V<T, N>)_mm512_maskz_loadu_epi16(static_cast<__mmask32>(mask), p);
  if constexpr (sizeof(T) == 2 && N == 16) return (V<T, N>)_mm256_maskz_loadu_epi16(static_cast<__mmask16>(mask), p);
#endif
  V<T, N> v = {};
  for (std::int64_t i = 0; i < count; ++i) v[i] = p[i];
  return v;
}
template <int N, class T>
inline void store_first(T* p, V<T, N> v, std::int64_t count) {
#if defined(__AVX512F__)
  const auto mask = (1ull << count) - 1;
  if constexpr (sizeof(T) == 4 && N == 16) return _mm512_mask_storeu_epi32(p, static_cast<__mmask16>(mask), (__m512i)v);
  if constexpr (sizeof(T) == 8 && N == 8) return _mm512_mask_storeu_epi64(p, static_cast<__mmask8>(mask), (__m512i)v);
  if constexpr (sizeof(T) == 4 && N == 8) return _mm256_mask_storeu_epi32(p, static_cast<__mmask8>(mask), (__m256i)v);
  if constexpr (sizeof(T) == 1 && N == 64) return _mm512_mask_storeu_epi8(p, mask, (__m512i)v);
  if constexpr (sizeof(T) == 1 && N == 16) return _mm_mask_storeu_epi8(p, static_cast<__mmask16>(mask), (__m128i)v);
  if constexpr (sizeof(T) == 2 && N == 32) return _mm512_mask_storeu_epi16(p, static_cast<__mmask32>(mask), (__m512i)v);
  if constexpr (sizeof(T) == 2 && N == 16) return _mm256_mask_storeu_epi16(p, static_cast<__mmask16>(mask), (__m256i)v);
#endif
  for (std::int64_t i = 0; i < count; ++i) p[i] = v[i];
}

/// a * b + c, with one rounding where the hardware has it.
inline F fma(F a, F b, F c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__FMA__)
  return _mm256_fmadd_ps(a, b, c);
#elif defined(__aarch64__)
  return vfmaq_f32(c, a, b);
#else
  return a * b + c;
#endif
}
inline D fma(D a, D b, D c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_pd(a, b, c);
#elif defined(__FMA__)
  return _mm256_fmadd_pd(a, b, c);
#elif defined(__aarch64__)
  return vfmaq_f64(c, a, b);
#else
  return a * b + c;
#endif
}
inline F fma(F a, F b, float c) { return fma(a, b, splat(c)); }
inline D fma(D a, D b, double c) { return fma(a, b, splat(c)); }

/// Horner's rule, highest power first.
template <class X, class First, class... Rest>
inline X polynomial(X x, First first, Rest... rest) {
  X sum = splat(first);
  ((sum = fma(sum, x, rest)), ...);
  return sum;
}

inline F sqrt(F x) {
#if defined(__AVX512F__)
  return _mm512_sqrt_ps(x);
#elif defined(__AVX2__)
  return _mm256_sqrt_ps(x);
#elif defined(__SSE2__)
  return _mm_sqrt_ps(x);
#elif defined(__aarch64__)
  return vsqrtq_f32(x);
#else
  for (int i = 0; i < kFloats; ++i) x[i] = __builtin_sqrtf(x[i]);
  return x;
#endif
}
inline D sqrt(D x) {
#if defined(__AVX512F__)
  return _mm512_sqrt_pd(x);
#elif defined(__AVX2__)
  return _mm256_sqrt_pd(x);
#elif defined(__SSE2__)
  return _mm_sqrt_pd(x);
#elif defined(__aarch64__)
  return vsqrtq_f64(x);
#else
  for (int i = 0; i < kDoubles; ++i) x[i] = __builtin_sqrt(x[i]);
  return x;
#endif
}

constexpr std::int32_t kSign32 = INT32_MIN;
constexpr std::int64_t kSign64 = INT64_MIN;
inline F abs(F x) { return (F)((I)x & ~kSign32); }
inline D abs(D x) { return (D)((L)x & ~kSign64); }
inline F copysign(F x, F sign) { return (F)(((I)x & ~kSign32) | ((I)sign & kSign32)); }
inline D copysign(D x, D sign) { return (D)(((L)x & ~kSign64) | ((L)sign & kSign64)); }

/// a > b ? a : b, and a < b ? a : b: the second where either is NaN.
template <class X>
inline X greater(X a, X b) {
#if defined(__AVX512F__)
  if constexpr (sizeof(a[0]) == 4)
    return _mm512_max_ps(a, b);
  else
    return _mm512_max_pd(a, b);
#elif defined(__AVX2__)
  if constexpr (sizeof(a[0]) == 4)
    return _mm256_max_ps(a, b);
  else
    return _mm256_max_pd(a, b);
#else
  return a > b ? a : b;
#endif
}
template <class X>
inline X lesser(X a, X b) {
#if defined(__AVX512F__)
  if constexpr (sizeof(a[0]) == 4)
    return _mm512_min_ps(a, b);
  else
    return _mm512_min_pd(a, b);
#elif defined(__AVX2__)
  if constexpr (sizeof(a[0]) == 4)
    return _mm256_min_ps(a, b);
  else
    return _mm256_min_pd(a, b);
#else
  return a < b ? a : b;
#endif
}

template <class T, int N, int begin, int... i>
inline V<T, N / 2> part_of(V<T, N> x, std::integer_sequence<int, i...>) {
  return __builtin_shufflevector(x, x, (begin + i)...);
}
/// The lanes of a vector folded in halves by `combine`.
template <class T, int N, class Combine>
inline T fold(V<T, N> x, Combine combine) {
  if constexpr (N == 2) {
    return combine(V<T, 2>{x[0], x[0]}, V<T, 2>{x[1], x[1]})[0];
  } else {
    using Half = std::make_integer_sequence<int, N / 2>;
    return fold<T, N / 2>(combine(part_of<T, N, 0>(x, Half()), part_of<T, N, N / 2>(x, Half())), combine);
  }
}

/// To the nearest integer, ties to even; keeps the sign of zero. Without rounding instructions: adding and taking away
/// 2^23 (2^52) leaves no fraction, and larger numbers have none.
inline F round_even(F x) {
#if defined(__AVX512F__)
  return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif defined(__AVX2__)
  return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif defined(__aarch64__)
  return vrndnq_f32(x);
#else
  const F a = abs(x);
  return copysign(a < 0x1p23f ? (a + 0x1p23f) - 0x1p23f : a, x);
#endif
}
inline D round_even(D x) {
#if defined(__AVX512F__)
  return _mm512_roundscale_pd(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif defined(__AVX2__)
  return _mm256_round_pd(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif defined(__aarch64__)
  return vrndnq_f64(x);
#else
  const D a = abs(x);
  return copysign(a < 0x1p52 ? (a + 0x1p52) - 0x1p52 : a, x);
#endif
}
template <class X>
inline X floor(X x) {
  const X r = round_even(x);
  return copysign(r > x ? r - 1 : r, x);
}
template <class X>
inline X ceil(X x) {
  const X r = round_even(x);
  return copysign(r < x ? r + 1 : r, x);
}
template <class X>
inline X trunc(X x) {
  return copysign(floor(abs(x)), x);
}

/// The halves of a vector of floats as doubles, and back.
inline D lower(F x) {
#if defined(__AVX512F__)
  return _mm512_cvtps_pd(_mm512_castps512_ps256(x));
#elif defined(__AVX2__)
  return _mm256_cvtps_pd(_mm256_castps256_ps128(x));
#elif defined(__aarch64__)
  return vcvt_f64_f32(vget_low_f32(x));
#else
  D d;
  for (int i = 0; i < kDoubles; ++i) d[i] = x[i];
  return d;
#endif
}
inline D upper(F x) {
#if defined(__AVX512F__)
  return _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));
#elif defined(__AVX2__)
  return _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
#elif defined(__aarch64__)
  return vcvt_high_f64_f32(x);
#else
  D d;
  for (int i = 0; i < kDoubles; ++i) d[i] = x[kDoubles + i];
  return d;
#endif
}
inline F narrow(D low, D high) {
#if defined(__AVX512F__)
  return _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(low)), _mm512_cvtpd_ps(high), 1);
#elif defined(__AVX2__)
  return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm256_cvtpd_ps(low)), _mm256_cvtpd_ps(high), 1);
#elif defined(__aarch64__)
  return vcvt_high_f32_f64(vcvt_f32_f64(low), high);
#else
  F f;
  for (int i = 0; i < kDoubles; ++i) f[i] = static_cast<float>(low[i]), f[kDoubles + i] = static_cast<float>(high[i]);
  return f;
#endif
}

/// Whether any lane of a comparison's result is set.
template <class M>
inline bool any(M mask) {
#if defined(__AVX512F__)
  return _mm512_test_epi32_mask((__m512i)mask, (__m512i)mask) != 0;
#elif defined(__AVX2__)
  return _mm256_movemask_epi8((__m256i)mask) != 0;
#elif defined(__SSE2__)
  return _mm_movemask_epi8((__m128i)mask) != 0;
#elif defined(__aarch64__)
  return vmaxvq_u32((uint32x4_t)mask) != 0;
#else
  for (unsigned i = 0; i < sizeof(M) / sizeof(mask[0]); ++i)
    if (mask[i]) return true;
  return false;
#endif
}

}  // namespace
}  // namespace weft::cpu
