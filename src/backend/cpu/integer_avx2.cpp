// Products of eight-bit integers for AVX2. One instruction multiplies pairs of 16 bits and adds both products, exactly: the one
// for bytes saturates such a sum at 16 bits.
#if defined(__AVX2__)
#include <immintrin.h>

#include "backend/cpu/integer_tile.inc.hpp"

namespace weft::cpu {
namespace {

struct VectorPairs {
  using Element = std::int32_t;
  using Register = __m256i;
  static constexpr int kLanes = 8;
  static constexpr bool kMasksAreFree = false;
  static Register zero() { return _mm256_setzero_si256(); }
  static __m256i mask(int count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static Register load(const std::int32_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
  static Register load_first(const std::int32_t* p, __m256i mask) { return _mm256_maskload_epi32(p, mask); }
  static void store(std::int32_t* p, Register x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x); }
  static void store_first(std::int32_t* p, Register x, __m256i mask) { _mm256_maskstore_epi32(p, mask, x); }
  static Register broadcast(const std::int32_t* p) { return _mm256_set1_epi32(*p); }
  static Register add(Register x, Register y) { return _mm256_add_epi32(x, y); }
  static Register multiply_add(Register x, Register y, Register z) {
    return _mm256_add_epi32(z, _mm256_madd_epi16(x, y));
  }
};

}  // namespace

namespace avx2 {
const IntegerKernels kIntegers = integer_kernels<VectorPairs, 6, 2>(nullptr);
}  // namespace avx2
}  // namespace weft::cpu
#endif
