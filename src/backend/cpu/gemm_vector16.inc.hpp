// The compiler's portable vectors of 16 bytes, SSE2 or NEON, for gemm_tile.inc.hpp.
#pragma once

#if defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "backend/cpu/gemm_tile.inc.hpp"

namespace weft::cpu {
namespace {

template <class T>
struct Vector {
  using Element = T;
  typedef T Register __attribute__((vector_size(16)));
  typedef T Unaligned __attribute__((vector_size(16), aligned(alignof(T)), may_alias));
  static constexpr int kLanes = 16 / sizeof(T);
  static constexpr bool kMasksAreFree = false;
  static Register zero() { return Register{}; }
  static int mask(int count) { return count; }
  static Register load(const T* p) { return *reinterpret_cast<const Unaligned*>(p); }
  static Register load_first(const T* p, int count) {
    Register x{};
    for (int i = 0; i < count; ++i) x[i] = p[i];
    return x;
  }
  static void store(T* p, Register x) { *reinterpret_cast<Unaligned*>(p) = x; }
  static void store_first(T* p, Register x, int count) {
    for (int i = 0; i < count; ++i) p[i] = x[i];
  }
  static Register broadcast(const T* p) { return *p - Register{}; }
  static Register add(Register x, Register y) { return x + y; }
  static Register subtract(Register x, Register y) { return x - y; }
#if defined(__aarch64__)
  static Register multiply_add(Register x, Register y, Register z) {
    if constexpr (sizeof(T) == 4)
      return vfmaq_f32(z, x, y);
    else
      return vfmaq_f64(z, x, y);
  }
  static Register multiply_add_lane(Register x, int lane, Register y, Register z) {
    if constexpr (sizeof(T) == 4)
      return vfmaq_n_f32(z, y, x[lane]);
    else
      return vfmaq_n_f64(z, y, x[lane]);
  }
#else
  static Register multiply_add(Register x, Register y, Register z) { return x * y + z; }
#endif
  static void transpose_groups(Register*) {}  // one group is the whole vector
};

struct VectorF32 : Vector<float> {
  static void transpose_in_groups(Register* x) {
    const Register low02 = __builtin_shufflevector(x[0], x[2], 0, 4, 1, 5);
    const Register high02 = __builtin_shufflevector(x[0], x[2], 2, 6, 3, 7);
    const Register low13 = __builtin_shufflevector(x[1], x[3], 0, 4, 1, 5);
    const Register high13 = __builtin_shufflevector(x[1], x[3], 2, 6, 3, 7);
    x[0] = __builtin_shufflevector(low02, low13, 0, 4, 1, 5);
    x[1] = __builtin_shufflevector(low02, low13, 2, 6, 3, 7);
    x[2] = __builtin_shufflevector(high02, high13, 0, 4, 1, 5);
    x[3] = __builtin_shufflevector(high02, high13, 2, 6, 3, 7);
  }
};

struct VectorF64 : Vector<double> {
  static void transpose_in_groups(Register* x) {
    const Register low = __builtin_shufflevector(x[0], x[1], 0, 2);
    x[1] = __builtin_shufflevector(x[0], x[1], 1, 3);
    x[0] = low;
  }
};

}  // namespace
}  // namespace weft::cpu
