// Products of eight-bit integers in the compiler's portable vectors of 16 bytes.
#include "backend/cpu/integer_tile.inc.hpp"

namespace weft::cpu {
namespace {

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
  static Register low(Register x) { return reinterpret_cast<Register>(reinterpret_cast<Signed>(x << 16) >> 16); }
  static Register high(Register x) { return reinterpret_cast<Register>(reinterpret_cast<Signed>(x) >> 16); }
  static Register multiply_add(Register x, Register y, Register z) { return z + low(x) * low(y) + high(x) * high(y); }
};

}  // namespace

namespace baseline {
const IntegerKernels kIntegers = integer_kernels<VectorPairs, 4, 2>();
}  // namespace baseline
}  // namespace weft::cpu
