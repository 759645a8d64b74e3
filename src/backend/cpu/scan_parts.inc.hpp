// Running sums and products for one instruction set; see ScanParts in tile.hpp.
#pragma once

#include <concepts>
#include <cstdint>

#include "backend/cpu/loop/tile.hpp"
#include "backend/cpu/vector.inc.hpp"

namespace weft::cpu {
namespace {

struct RunningSum {
  template <class X>
  static X combine(X a, X b) {
    return a + b;
  }
  static constexpr int kIdentity = 0;
};
struct RunningProduct {
  template <class X>
  static X combine(X a, X b) {
    return a * b;
  }
  static constexpr int kIdentity = 1;
};

/// Scans of elements In to Out, combined in `Total`: wide enough for floats, unsigned for integers, which wrap.
template <class Op, class In, class Out, class Total>
struct RunningTotal {
  static constexpr int kLanes = kVectorBytes >= 4 * static_cast<int>(sizeof(Total)) ? 4 : 2;
  using X = V<Total, kLanes>;
  using Results = V<Out, kLanes>;
  // A product of many numbers may overflow although their scan does not, because it begins with a zero. Products of four
  // floats fit a double.
  static constexpr bool kOverflows = std::same_as<Op, RunningProduct> && std::floating_point<Total>;
  static constexpr int kVectors = !kOverflows ? 4 : std::same_as<In, float> ? 4 / kLanes : 0;

  template <class Each>
  static V<Each, kLanes> reversed(V<Each, kLanes> x) {
    if constexpr (kLanes == 2)
      return __builtin_shufflevector(x, x, 1, 0);
    else
      return __builtin_shufflevector(x, x, 3, 2, 1, 0);
  }
  /// The last lane of `before`, and all but the last of x.
  static X shifted(X before, X x) {
    if constexpr (kLanes == 2)
      return __builtin_shufflevector(before, x, 1, 2);
    else
      return __builtin_shufflevector(before, x, 3, 4, 5, 6);
  }
  static X last(X x) {
    if constexpr (kLanes == 2)
      return __builtin_shufflevector(x, x, 1, 1);
    else
      return __builtin_shufflevector(x, x, 3, 3, 3, 3);
  }
  static X prefix(X x) {
    const X none = splat<kLanes>(Total{Op::kIdentity});
    x = Op::combine(shifted(none, x), x);
    if constexpr (kLanes == 4) x = Op::combine(__builtin_shufflevector(none, x, 0, 1, 4, 5), x);
    return x;
  }

  template <bool exclusive, bool reverse>
  static void run(const void* from, const void* ahead, void* to, std::int64_t count, void* carry, bool) {
    constexpr int kStep = kVectors * kLanes, kSome = kVectors > 0 ? kVectors : 1;
    constexpr int kLine = 64 / static_cast<int>(sizeof(In));
    const auto *const x = static_cast<const In*>(from), *const next = static_cast<const In*>(ahead);
    auto* const y = static_cast<Out*>(to);
    X before = splat<kLanes>(*static_cast<Total*>(carry));
    std::int64_t i = 0;
    const auto at = [&](int k) { return reverse ? count - i - (k + 1) * kLanes : i + k * kLanes; };
    for (; kVectors > 0 && i + kStep <= count; i += kStep) {
      for (int k = 0; k < kStep; k += kLine) __builtin_prefetch(next + (reverse ? count - i - kStep : i) + k, 0, 2);
      X v[kSome];
#pragma GCC unroll 4
      for (int k = 0; k < kVectors; ++k) {
        V<In, kLanes> in = load<kLanes>(x + at(k));
        if constexpr (reverse) in = reversed<In>(in);
        v[k] = prefix(__builtin_convertvector(in, X));
      }
#pragma GCC unroll 4
      for (int k = 1; k < kVectors; ++k) v[k] = Op::combine(last(v[k - 1]), v[k]);
#pragma GCC unroll 4
      for (int k = 0; k < kVectors; ++k) v[k] = Op::combine(before, v[k]);
#pragma GCC unroll 4
      for (int k = 0; k < kVectors; ++k) {
        X result = v[k];
        if constexpr (exclusive) result = shifted(k == 0 ? before : v[k - 1], v[k]);
        Results out = __builtin_convertvector(result, Results);
        if constexpr (reverse) out = reversed<Out>(out);
        store<kLanes>(y + at(k), out);
      }
      before = last(v[kSome - 1]);
    }
    Total total = before[0];
    for (; i < count; ++i) {
      const std::int64_t place = reverse ? count - 1 - i : i;
      const Total next = Op::combine(total, static_cast<Total>(x[place]));
      y[place] = static_cast<Out>(exclusive ? total : next);
      total = next;
    }
    *static_cast<Total*>(carry) = total;
  }

  static void total(const void* from, std::int64_t count, void* result) {
    constexpr int kBeside = 4, kStep = kBeside * kLanes;
    const auto* const x = static_cast<const In*>(from);
    X totals[kBeside];
    for (X& each : totals) each = splat<kLanes>(Total{Op::kIdentity});
    std::int64_t i = 0;
    for (; i + kStep <= count; i += kStep)
#pragma GCC unroll 4
      for (int k = 0; k < kBeside; ++k)
        totals[k] = Op::combine(totals[k], __builtin_convertvector(load<kLanes>(x + i + k * kLanes), X));
    Total all = Total{Op::kIdentity};
    for (const X& each : totals)
      for (int k = 0; k < kLanes; ++k) all = Op::combine(all, each[k]);
    for (; i < count; ++i) all = Op::combine(all, static_cast<Total>(x[i]));
    *static_cast<Total*>(result) = all;
  }

  template <bool exclusive>
  static void step(const void* from, const void* ahead, void* to, std::int64_t count, void* carries, bool) {
    constexpr std::int64_t kLine = 64 / static_cast<std::int64_t>(sizeof(In));
    const auto* const x = static_cast<const In*>(from);
    auto* const y = static_cast<Out*>(to);
    auto* const totals = static_cast<Total*>(carries);
    const auto some = [&](std::int64_t c) {
      const X before = load<kLanes>(totals + c);
      const X next = Op::combine(before, __builtin_convertvector(load<kLanes>(x + c), X));
      store<kLanes>(totals + c, next);
      store<kLanes>(y + c, __builtin_convertvector(exclusive ? before : next, Results));
    };
    std::int64_t c = 0;
    for (; c + kLine <= count; c += kLine) {
      __builtin_prefetch(static_cast<const In*>(ahead) + c, 0, 2);
#pragma GCC unroll 4
      for (std::int64_t k = c; k < c + kLine; k += kLanes) some(k);
    }
    for (; c < count; ++c) {
      const Total before = totals[c];
      totals[c] = Op::combine(before, static_cast<Total>(x[c]));
      y[c] = static_cast<Out>(exclusive ? before : totals[c]);
    }
  }

  static ScanParts parts() {
    return {{{run<false, false>, run<false, true>}, {run<true, false>, run<true, true>}},
            total,
            {step<false>, step<true>},
            kOverflows,
            false};
  }
};

template <class Op>
void fill_scans(ScanParts (&parts)[kTypeCount]) {
  const auto at = [&](DType type) -> ScanParts& { return parts[static_cast<std::size_t>(type)]; };
  at(DType::f32) = RunningTotal<Op, float, float, double>::parts();
  at(DType::f64) = RunningTotal<Op, double, double, double>::parts();
  at(DType::i32) = at(DType::u32) = RunningTotal<Op, std::uint32_t, std::uint32_t, std::uint32_t>::parts();
  at(DType::i64) = at(DType::u64) = RunningTotal<Op, std::uint64_t, std::uint64_t, std::uint64_t>::parts();
  at(DType::boolean) = RunningTotal<Op, std::uint8_t, std::uint32_t, std::uint32_t>::parts();
}

}  // namespace
}  // namespace weft::cpu
