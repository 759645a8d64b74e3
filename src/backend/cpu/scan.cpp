#include "backend/cpu/scan.hpp"

#include <cmath>
#include <concepts>
#include <limits>
#include <type_traits>

#include <fmt/format.h>

#include "base/threads.hpp"
#include "compile/call_attributes.hpp"
#include "graph/scan.hpp"
#include "weft/error.hpp"

namespace weft::cpu {
namespace {

// [outer, n, inner]: scans of n elements that are `inner` apart.
struct ScanSpace {
  Extent outer = 1, n = 1, inner = 1;
  bool exclusive = false, reverse = false;
};

ScanSpace scan_space(const Shape& shape, const graph::ScanAttributes& a) {
  ScanSpace space{.exclusive = a.exclusive, .reverse = a.reverse};
  const int axis = static_cast<int>(a.axis < 0 ? a.axis + shape.rank() : a.axis);
  for (int d = 0; d < shape.rank(); ++d) (d < axis ? space.outer : d == axis ? space.n : space.inner) *= shape[d];
  return space;
}

/// Scans of `Line`, which has what one line has gathered so far: take(operands, element, place along the axis) adds an
/// element, and give(operands, element) writes the result there.
template <class Line, class Operands>
void scan(const ScanSpace& space, const Operands& operands) {
  constexpr Extent kBlock = 64;  // neighbouring lines of a task: they share cache lines
  const Extent blocks = (space.inner + kBlock - 1) / kBlock;
  parallel_for(space.outer * blocks, [&](Extent task) {
    const Extent first = task % blocks * kBlock, count = std::min(kBlock, space.inner - first);
    const Extent base = task / blocks * space.n * space.inner + first;
    Line lines[kBlock];
    for (Extent i = 0; i < space.n; ++i) {
      const Extent place = space.reverse ? space.n - 1 - i : i, row = base + place * space.inner;
      for (Extent c = 0; c < count; ++c) {
        if (space.exclusive) lines[c].give(operands, row + c);
        lines[c].take(operands, row + c, place);
        if (!space.exclusive) lines[c].give(operands, row + c);
      }
    }
  });
}

template <class In, class Out>
struct OneInput {
  const In* x;
  Out* y;
};

// `Sum` is what the elements are combined in: wide enough for floats, unsigned for integers, which wrap.
template <class In, class Out, class Sum>
struct SumLine {
  Sum sum = 0;
  void take(const OneInput<In, Out>& of, Extent at, Extent) { sum += static_cast<Sum>(of.x[at]); }
  void give(const OneInput<In, Out>& of, Extent at) const { of.y[at] = static_cast<Out>(sum); }
};
template <class In, class Out, class Sum>
struct ProductLine {
  Sum product = 1;
  void take(const OneInput<In, Out>& of, Extent at, Extent) { product *= static_cast<Sum>(of.x[at]); }
  void give(const OneInput<In, Out>& of, Extent at) const { of.y[at] = static_cast<Out>(product); }
};

// ln of a sum whose terms are relative to the largest.
template <class T>
struct LogSumLine {
  double largest = -std::numeric_limits<double>::infinity(), sum = 0;
  void take(const OneInput<T, T>& of, Extent at, Extent) {
    const double x = of.x[at];
    if (x == -std::numeric_limits<double>::infinity()) return;  // adds nothing
    if (x <= largest) {
      sum += x == largest ? 1 : std::exp(x - largest);
    } else {
      sum = std::isnan(x) ? x : (sum > 0 ? sum * std::exp(largest - x) : sum) + 1;
      largest = x;
    }
  }
  void give(const OneInput<T, T>& of, Extent at) const { of.y[at] = static_cast<T>(largest + std::log(sum)); }
};

template <class T>
struct ExtremeOperands {
  const T* x;
  T* y;
  std::int32_t* positions;
};
template <class T, bool is_largest>
struct ExtremeLine {
  T value = {};
  std::int32_t position = -1;
  void take(const ExtremeOperands<T>& of, Extent at, Extent place) {
    const T x = of.x[at];
    bool takes = position < 0 || (is_largest ? x >= value : x <= value);
    if constexpr (std::floating_point<T>) takes = takes || x != x;  // but no number is beyond a NaN
    if (!takes) return;
    value = x;
    position = static_cast<std::int32_t>(place);
  }
  void give(const ExtremeOperands<T>& of, Extent at) const {
    of.y[at] = value;
    of.positions[at] = position;
  }
};

template <class T>
struct RecurrenceOperands {
  const T *a, *b;
  T* y;
};
template <class T>
struct RecurrenceLine {
  double value = 0;
  void take(const RecurrenceOperands<T>& of, Extent at, Extent) { value = of.a[at] * value + of.b[at]; }
  void give(const RecurrenceOperands<T>& of, Extent at) const { of.y[at] = static_cast<T>(value); }
};

template <template <class, class, class> class Line>
bool scan_numbers(DType type, const ScanSpace& space, char* from, char* to) {
  const auto run = [&]<class In, class Out, class Sum>(In, Out, Sum) {
    scan<Line<In, Out, Sum>>(space, OneInput<In, Out>{reinterpret_cast<const In*>(from), reinterpret_cast<Out*>(to)});
    return true;
  };
  switch (type) {
    case DType::f32: return run(float{}, float{}, double{});
    case DType::f64: return run(double{}, double{}, double{});
    case DType::i32:
    case DType::u32: return run(std::uint32_t{}, std::uint32_t{}, std::uint32_t{});
    case DType::i64:
    case DType::u64: return run(std::uint64_t{}, std::uint64_t{}, std::uint64_t{});
    case DType::boolean: return run(std::uint8_t{}, std::int32_t{}, std::int32_t{});
    default: return false;
  }
}

template <bool is_largest>
bool scan_extremes(DType type, const ScanSpace& space, char* from, char* to, char* positions) {
  const auto run = [&]<class T>(T) {
    scan<ExtremeLine<T, is_largest>>(space,
                                     ExtremeOperands<T>{reinterpret_cast<const T*>(from), reinterpret_cast<T*>(to),
                                                        reinterpret_cast<std::int32_t*>(positions)});
    return true;
  };
  switch (type) {
    case DType::f32: return run(float{});
    case DType::f64: return run(double{});
    case DType::i32: return run(std::int32_t{});
    case DType::u32: return run(std::uint32_t{});
    case DType::i64: return run(std::int64_t{});
    case DType::u64: return run(std::uint64_t{});
    default: return false;
  }
}

template <class T>
bool scan_floats(const graph::OpRow& op, const ScanSpace& space, std::span<char* const> reads, char* to) {
  const auto* x = reinterpret_cast<const T*>(reads[0]);
  auto* y = reinterpret_cast<T*>(to);
  if (&op == &graph::logcumsumexp_row())
    scan<LogSumLine<T>>(space, OneInput<T, T>{x, y});
  else
    scan<RecurrenceLine<T>>(space, RecurrenceOperands<T>{x, reinterpret_cast<const T*>(reads[1]), y});
  return true;
}

bool scan_by_row(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs) {
  const ScanSpace space = scan_space(kernel.shape(), kernel::attributes_of<graph::ScanAttributes>(kernel));
  const DType type = kernel.types[0];
  const graph::OpRow& op = *kernel.op;
  if (&op == &graph::cumsum_row()) return scan_numbers<SumLine>(type, space, reads[0], outs[0]);
  if (&op == &graph::cumprod_row()) return scan_numbers<ProductLine>(type, space, reads[0], outs[0]);
  if (&op == &graph::cummax_row()) return scan_extremes<true>(type, space, reads[0], outs[0], outs[1]);
  if (&op == &graph::cummin_row()) return scan_extremes<false>(type, space, reads[0], outs[0], outs[1]);
  return type == DType::f32   ? scan_floats<float>(op, space, reads, outs[0])
         : type == DType::f64 ? scan_floats<double>(op, space, reads, outs[0])
                              : false;
}

}  // namespace

void run_scan(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs) {
  if (!scan_by_row(kernel, reads, outs))
    throw DTypeError(fmt::format("{}: there is no kernel for {}; cast to f32", kernel.name, name_of(kernel.types[0])));
}

}  // namespace weft::cpu
