// Products of eight-bit integers in the compiler's portable vectors of 16 bytes.
#if defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "backend/cpu/integer_tile.inc.hpp"

namespace weft::cpu {
namespace {

#if defined(__aarch64__)
constexpr int kRows = 8;
#else
constexpr int kRows = 4;
#endif

struct VectorPairs {
  using Element = std::int32_t;
  typedef std::uint32_t Register __attribute__((vector_size(16)));
  typedef std::int32_t Signed __attribute__((vector_size(16)));
  typedef std::uint32_t Unaligned __attribute__((vector_size(16), aligned(4), may_alias));
  static constexpr int kLanes = 4;
  static constexpr bool kMasksAreFree = false;
  static Register zero() { return Register{}; }
  static int mask(int count) { return count; }
  static Register load(const std::int32_t* p) { return *reinterpret_cast<const Unaligned*>(p); }
  static Register load_first(const std::int32_t* p, int count) {
    Register x{};
    for (int i = 0; i < count; ++i) x[i] = static_cast<std::uint32_t>(p[i]);
    return x;
  }
  static void store(std::int32_t* p, Register x) { *reinterpret_cast<Unaligned*>(p) = x; }
  static void store_first(std::int32_t* p, Register x, int count) {
    for (int i = 0; i < count; ++i) p[i] = static_cast<std::int32_t>(x[i]);
  }
  static Register broadcast(const std::int32_t* p) { return static_cast<std::uint32_t>(*p) - Register{}; }
  static Register add(Register x, Register y) { return x + y; }
#if defined(__aarch64__)
  static Register multiply_add(Register x, Register y, Register z) {
    const int16x8_t a = (int16x8_t)x, b = (int16x8_t)y;
    const int32x4_t low = vmull_s16(vget_low_s16(a), vget_low_s16(b)), high = vmull_high_s16(a, b);
    return z + (Register)vpaddq_s32(low, high);
  }
#else
  static Register low(Register x) { return reinterpret_cast<Register>(reinterpret_cast<Signed>(x << 16) >> 16); }
  static Register high(Register x) { return reinterpret_cast<Register>(reinterpret_cast<Signed>(x) >> 16); }
  static Register multiply_add(Register x, Register y, Register z) { return z + low(x) * low(y) + high(x) * high(y); }
#endif
};

void interleave(const std::uint8_t* const* rows, std::int64_t count, std::uint8_t flip, bool is_signed,
                std::int32_t* to, std::int32_t* sums) {
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint32_t word = 0;
    for (int r = 0; r < 4; ++r) {
      const auto x = static_cast<std::uint8_t>(rows[r][i] ^ flip);
      word |= std::uint32_t{x} << (8 * r);
      sums[i] += is_signed ? static_cast<std::int8_t>(x) : static_cast<std::int32_t>(x);
    }
    to[i] = static_cast<std::int32_t>(word);
  }
}

std::int32_t copy(const std::uint8_t* from, std::int64_t count, std::uint8_t flip, bool is_signed, std::uint8_t* to,
                  std::int64_t step) {
  std::int32_t sum = 0;
  for (std::int64_t begin = 0; begin < count; begin += kIntegerPiece, to += step)
    for (std::int64_t i = 0; i < kIntegerPiece; ++i) {
      to[i] = begin + i < count ? static_cast<std::uint8_t>(from[begin + i] ^ flip) : 0;
      sum += is_signed ? static_cast<std::int8_t>(to[i]) : static_cast<std::int32_t>(to[i]);
    }
  return sum;
}

}  // namespace

namespace baseline {
const IntegerKernels kIntegers = integer_kernels<VectorPairs, kRows, 2>(nullptr);
const IntegerBytes kIntegerBytes = {interleave, copy};
}  // namespace baseline
}  // namespace weft::cpu
