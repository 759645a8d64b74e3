// Products of eight-bit integers for AVX-512 VNNI, whose instruction adds four products of an unsigned and a signed byte to a
// sum of 32 bits and does not saturate.
#if defined(__AVX512VNNI__)
#include <immintrin.h>

#include "backend/cpu/integer_tile.inc.hpp"

namespace weft::cpu {
namespace {

struct VectorBytes {
  using Element = std::int32_t;
  using Register = __m512i;
  static constexpr int kLanes = 16;
  static constexpr bool kMasksAreFree = true;
  static Register zero() { return _mm512_setzero_si512(); }
  static __mmask16 mask(int count) { return static_cast<__mmask16>((1u << count) - 1); }
  static Register load(const std::int32_t* p) { return _mm512_loadu_si512(p); }
  static Register load_first(const std::int32_t* p, __mmask16 mask) { return _mm512_maskz_loadu_epi32(mask, p); }
  static void store(std::int32_t* p, Register x) { _mm512_storeu_si512(p, x); }
  static void store_first(std::int32_t* p, Register x, __mmask16 mask) { _mm512_mask_storeu_epi32(p, mask, x); }
  static Register broadcast(const std::int32_t* p) { return _mm512_set1_epi32(*p); }
  static Register add(Register x, Register y) { return _mm512_add_epi32(x, y); }
  static Register multiply_add(Register x, Register y, Register z) {
    // With the intrinsic, GCC 12 copies each sum and keeps it in memory, which takes three times as long.
    asm("vpdpbusd %2, %1, %0" : "+v"(z) : "v"(x), "v"(y));
    return z;
  }
};

}  // namespace

namespace avx512 {
const IntegerKernels kIntegers = integer_kernels<VectorBytes, 14, 4>();
}  // namespace avx512
}  // namespace weft::cpu
#endif
