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

/// sums += the four bytes of each word.
__m512i add_bytes(__m512i sums, __m512i words, bool is_signed) {
  const __m512i ones = _mm512_set1_epi8(1);
  return is_signed ? _mm512_dpbusd_epi32(sums, ones, words) : _mm512_dpbusd_epi32(sums, words, ones);
}

void interleave(const std::uint8_t* const* rows, std::int64_t count, std::uint8_t flip, bool is_signed,
                std::int32_t* to, std::int32_t* sums) {
  constexpr std::int64_t kLanes = 32;
  const __m256i flips = _mm256_set1_epi8(static_cast<char>(flip));
  for (std::int64_t i = 0; i < count; i += kLanes) {
    const std::int64_t left = count - i;
    const __mmask32 mask = left >= kLanes ? ~__mmask32{0} : (__mmask32{1} << left) - 1;
    __m256i row[4];
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) row[r] = _mm256_xor_si256(_mm256_maskz_loadu_epi8(mask, rows[r] + i), flips);
    // Bytes of two rows, then of four: each half of a register has its own eight lanes of the words.
    const __m256i low0 = _mm256_unpacklo_epi8(row[0], row[1]), low1 = _mm256_unpacklo_epi8(row[2], row[3]);
    const __m256i high0 = _mm256_unpackhi_epi8(row[0], row[1]), high1 = _mm256_unpackhi_epi8(row[2], row[3]);
    const __m256i words[4] = {_mm256_unpacklo_epi16(low0, low1), _mm256_unpackhi_epi16(low0, low1),
                              _mm256_unpacklo_epi16(high0, high1), _mm256_unpackhi_epi16(high0, high1)};
    const auto half = [&](int which) {
      const auto part = [&](int w) {
        return which == 0 ? _mm256_castsi256_si128(words[w]) : _mm256_extracti128_si256(words[w], 1);
      };
      const __m256i first = _mm256_inserti128_si256(_mm256_castsi128_si256(part(0)), part(1), 1);
      const __m256i second = _mm256_inserti128_si256(_mm256_castsi128_si256(part(2)), part(3), 1);
      return _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
    };
    const auto put = [&](std::int64_t at, __mmask16 exists, __m512i both) {
      _mm512_mask_storeu_epi32(to + at, exists, both);
      _mm512_mask_storeu_epi32(sums + at, exists,
                               add_bytes(_mm512_maskz_loadu_epi32(exists, sums + at), both, is_signed));
    };
    put(i, static_cast<__mmask16>(mask), half(0));
    if (left > kLanes / 2) put(i + kLanes / 2, static_cast<__mmask16>(mask >> (kLanes / 2)), half(1));
  }
}

std::int32_t copy(const std::uint8_t* from, std::int64_t count, std::uint8_t flip, bool is_signed, std::uint8_t* to,
                  std::int64_t step) {
  const __m512i flips = _mm512_set1_epi8(static_cast<char>(flip));
  __m512i sums = _mm512_setzero_si512();
  for (std::int64_t begin = 0; begin < count; begin += kIntegerPiece, to += step) {
    const std::int64_t left = count - begin;
    const __mmask64 mask = left >= kIntegerPiece ? ~__mmask64{0} : (__mmask64{1} << left) - 1;
    const __m512i bytes =
        _mm512_maskz_mov_epi8(mask, _mm512_xor_si512(_mm512_maskz_loadu_epi8(mask, from + begin), flips));
    _mm512_storeu_si512(to, bytes);
    sums = add_bytes(sums, bytes, is_signed);
  }
  return _mm512_reduce_add_epi32(sums);
}

}  // namespace

namespace avx512 {
const IntegerBytes kIntegerBytes = {interleave, copy};
const IntegerKernels kIntegers = integer_kernels<VectorBytes, 14, 4>(&kIntegerBytes);
}  // namespace avx512
}  // namespace weft::cpu
#endif
