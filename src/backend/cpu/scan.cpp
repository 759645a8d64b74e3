#include "backend/cpu/scan.hpp"

#include <algorithm>
#include <cmath>
#include <concepts>
#include <limits>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "backend/cpu/run_writer.hpp"
#include "backend/cpu/vector.inc.hpp"
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

constexpr Extent kRun = RunWriter<float>::kRun;
constexpr Extent kTaskElements = 1 << 15;
constexpr Extent kChunk = 1 << 15;      // elements of a long line that a task adds up, and then scans from its cache
constexpr Extent kChunksTogether = 32;  // they fit the last cache
constexpr Extent kNeighboursMax = 512;  // neighbouring lines of a task: they share cache lines
constexpr Extent kNeighbours = 64;      // at least
constexpr Extent kNeighbourTasks = 16;

/// Calls work(outer, first, count) for neighbouring lines [first, first + count) of each outer index, on all threads.
template <class Work>
void for_neighbours(const ScanSpace& space, Work work) {
  const Extent each = (space.outer * space.inner / kNeighbourTasks + kNeighbours - 1) / kNeighbours * kNeighbours;
  const Extent width = std::clamp(each, kNeighbours, kNeighboursMax);
  const Extent blocks = (space.inner + width - 1) / width;
  parallel_for(space.outer * blocks, [&](Extent task) {
    const Extent first = task % blocks * width;
    work(task / blocks, first, std::min(width, space.inner - first));
  });
}

/// Calls work(begin, count) for the runs of a line of n elements, in the order of the scan.
template <class Work>
void for_runs(const ScanSpace& space, Extent n, Work work) {
  for (Extent done = 0; done < n; done += kRun) {
    const Extent count = std::min(kRun, n - done);
    work(space.reverse ? n - done - count : done, count);
  }
}

/// Calls work(line) for the lines of a space with inner == 1, on all threads.
template <class Work>
void for_lines(const ScanSpace& space, Work work) {
  const Extent each = std::max<Extent>(1, kTaskElements / std::max<Extent>(space.n, 1));
  parallel_for((space.outer + each - 1) / each, [&](Extent task) {
    const Extent end = std::min(space.outer, (task + 1) * each);
    for (Extent line = task * each; line < end; ++line) work(line);
  });
}

// ---- Vector types in which sums and products are computed --------------------------------------------------------------

struct Sum {
  template <class X>
  static X combine(X a, X b) {
    return a + b;
  }
  static constexpr int kIdentity = 0;
};
struct Product {
  template <class X>
  static X combine(X a, X b) {
    return a * b;
  }
  static constexpr int kIdentity = 1;
};

/// Scans of elements In to Out, combined in `Total`: wide enough for floats, unsigned for integers, which wrap.
template <class Op, class In, class Out, class Total>
struct Scan {
  static constexpr int kLanes = 16 / static_cast<int>(sizeof(Total));
  using X = V<Total, kLanes>;
  using Results = V<Out, kLanes>;
  // A product of many numbers may overflow although their scan does not, because it begins with a zero. Products of four
  // floats fit a double.
  static constexpr bool kOverflows = std::same_as<Op, Product> && std::floating_point<Total>;
  static constexpr int kVectors = !kOverflows ? 4 : std::same_as<In, float> ? 2 : 0;

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

  /// The scan of a run that follows `carry`, which becomes the total so far. x and y may be the same.
  template <bool exclusive, bool reverse>
  static void run(const In* x, Out* y, Extent count, Total* carry) {
    constexpr int kStep = kVectors * kLanes;
    X before = splat<kLanes>(*carry);
    Extent i = 0;
    const auto at = [&](int k) { return reverse ? count - i - (k + 1) * kLanes : i + k * kLanes; };
    for (; kVectors > 0 && i + kStep <= count; i += kStep) {
      X v[std::max(kVectors, 1)];
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
      before = last(v[std::max(kVectors, 1) - 1]);
    }
    Total total = before[0];
    for (; i < count; ++i) {
      const Extent place = reverse ? count - 1 - i : i;
      const Total next = Op::combine(total, static_cast<Total>(x[place]));
      y[place] = static_cast<Out>(exclusive ? total : next);
      total = next;
    }
    *carry = total;
  }
  static void run(const ScanSpace& space, const In* x, Out* y, Extent count, Total* carry) {
    if (space.exclusive)
      space.reverse ? run<true, true>(x, y, count, carry) : run<true, false>(x, y, count, carry);
    else
      space.reverse ? run<false, true>(x, y, count, carry) : run<false, false>(x, y, count, carry);
  }
  static void line(const ScanSpace& space, const In* x, RunWriter<Out>& writer, Extent first, Extent n, Total carry) {
    for_runs(space, n, [&](Extent begin, Extent count) {
      run(space, x + first + begin, writer.place(first + begin), count, &carry);
      writer.finish(first + begin, count);
    });
  }

  static Total total(const In* x, Extent count) {
    constexpr int kBeside = 4, kStep = kBeside * kLanes;
    X totals[kBeside];
    for (X& each : totals) each = splat<kLanes>(Total{Op::kIdentity});
    Extent i = 0;
    for (; i + kStep <= count; i += kStep)
#pragma GCC unroll 4
      for (int k = 0; k < kBeside; ++k)
        totals[k] = Op::combine(totals[k], __builtin_convertvector(load<kLanes>(x + i + k * kLanes), X));
    Total all = Total{Op::kIdentity};
    for (const X& each : totals)
      for (int k = 0; k < kLanes; ++k) all = Op::combine(all, each[k]);
    for (; i < count; ++i) all = Op::combine(all, static_cast<Total>(x[i]));
    return all;
  }

  /// A long line on all threads: the chunks that fit the last cache are added up, and then scanned.
  static void long_line(const ScanSpace& space, const In* x, Out* y, Extent first) {
    Total before = Total{Op::kIdentity};
    for (Extent done = 0; done < space.n; done += kChunk * kChunksTogether) {
      const Extent size = std::min(kChunk * kChunksTogether, space.n - done), chunks = (size + kChunk - 1) / kChunk;
      Total totals[kChunksTogether];
      const auto for_chunks = [&](auto work) {
        parallel_for(chunks, [&](Extent chunk) {
          const Extent begin = done + chunk * kChunk, count = std::min(kChunk, done + size - begin);
          work(chunk, first + (space.reverse ? space.n - begin - count : begin), count);
        });
      };
      for_chunks([&](Extent chunk, Extent begin, Extent count) { totals[chunk] = total(x + begin, count); });
      for (Extent chunk = 0; chunk < chunks; ++chunk)
        before = Op::combine(std::exchange(totals[chunk], before), before);
      for_chunks([&](Extent chunk, Extent begin, Extent count) {
        RunWriter<Out> writer(y, space.outer * space.n);
        line(space, x, writer, begin, count, totals[chunk]);
      });
    }
  }

  static void neighbours(const ScanSpace& space, const In* x, Out* y) {
    constexpr Extent kRowsAhead = 4, kLine = 64 / static_cast<Extent>(sizeof(In));
    for_neighbours(space, [&](Extent outer, Extent first, Extent count) {
      RunWriter<Out> writer(y, space.outer * space.n * space.inner);
      Total totals[kNeighboursMax];
      std::fill_n(totals, count, Total{Op::kIdentity});
      for (Extent i = 0; i < space.n; ++i) {
        const Extent place = space.reverse ? space.n - 1 - i : i;
        const Extent row = (outer * space.n + place) * space.inner + first;
        const In* const from = x + row;
        // Rows that are far apart are not guessed by the hardware; requests between the sums do not wait for each other.
        const In* const ahead =
            from + (i + kRowsAhead < space.n ? kRowsAhead : 0) * (space.reverse ? -1 : 1) * space.inner;
        Out* const to = writer.place(row);
        for (Extent begin = 0; begin < count; begin += kLine) {
          __builtin_prefetch(ahead + begin, 0, 2);
          const Extent end = std::min(begin + kLine, count);
          if (space.exclusive) {
            for (Extent c = begin; c < end; ++c) {
              const Total before = totals[c];
              totals[c] = Op::combine(before, static_cast<Total>(from[c]));
              to[c] = static_cast<Out>(before);
            }
          } else {
            for (Extent c = begin; c < end; ++c)
              to[c] = static_cast<Out>(totals[c] = Op::combine(totals[c], static_cast<Total>(from[c])));
          }
        }
        writer.finish(row, count);
      }
    });
  }

  static void all(const ScanSpace& space, const In* x, Out* y) {
    if (space.inner > 1) return neighbours(space, x, y);
    if (!kOverflows && space.outer < kNeighbourTasks && space.n >= 2 * kChunk) {
      for (Extent outer = 0; outer < space.outer; ++outer) long_line(space, x, y, outer * space.n);
      return;
    }
    for_lines(space, [&](Extent outer) {
      RunWriter<Out> writer(y, space.outer * space.n);
      line(space, x, writer, outer * space.n, space.n, Total{Op::kIdentity});
    });
  }
};

// ---- Other scans: one line after another ------------------------------------------------------------------------------

template <class T>
struct OneResult {
  RunWriter<T> writer;
  T* y = nullptr;
  OneResult(std::span<char* const> outs, Extent size) : writer(reinterpret_cast<T*>(outs[0]), size) {}
  void place(Extent at) { y = writer.place(at); }
  void finish(Extent at, Extent count) { writer.finish(at, count); }
};
template <class T>
struct ExtremeResults {
  RunWriter<T> values;
  RunWriter<std::int32_t> places;
  T* y = nullptr;
  std::int32_t* positions = nullptr;
  ExtremeResults(std::span<char* const> outs, Extent size)
      : values(reinterpret_cast<T*>(outs[0]), size), places(reinterpret_cast<std::int32_t*>(outs[1]), size) {}
  void place(Extent at) { y = values.place(at), positions = places.place(at); }
  void finish(Extent at, Extent count) { values.finish(at, count), places.finish(at, count); }
};

/// Scans of `Line`, which has what one line has gathered so far: take(element, place along the axis) adds an element, which
/// load(reads, at) reads, and give(results, i) writes the result of element i of a run.
template <class Line>
void scan_lines(const ScanSpace& space, std::span<char* const> reads, std::span<char* const> outs) {
  using Results = typename Line::Results;
  const Extent size = space.outer * space.n * space.inner;
  if (space.inner == 1)
    return for_lines(space, [&](Extent outer) {
      Results results(outs, size);
      Line line;
      for_runs(space, space.n, [&](Extent begin, Extent count) {
        const Extent first = outer * space.n + begin;
        results.place(first);
        for (Extent done = 0; done < count; ++done) {
          const Extent i = space.reverse ? count - 1 - done : done;
          const auto element = Line::load(reads, first + i);
          if (space.exclusive) line.give(results, i);
          line.take(element, begin + i);
          if (!space.exclusive) line.give(results, i);
        }
        results.finish(first, count);
      });
    });
  for_neighbours(space, [&](Extent outer, Extent first, Extent count) {
    Results results(outs, size);
    std::vector<Line> lines(static_cast<std::size_t>(count));
    for (Extent done = 0; done < space.n; ++done) {
      const Extent place = space.reverse ? space.n - 1 - done : done;
      const Extent row = (outer * space.n + place) * space.inner + first;
      results.place(row);
      for (Extent c = 0; c < count; ++c) {
        Line& line = lines[static_cast<std::size_t>(c)];
        const auto element = Line::load(reads, row + c);
        if (space.exclusive) line.give(results, c);
        line.take(element, place);
        if (!space.exclusive) line.give(results, c);
      }
      results.finish(row, count);
    }
  });
}

template <class T>
T load_one(std::span<char* const> reads, Extent at) {
  return reinterpret_cast<const T*>(reads[0])[at];
}

// ln of a sum whose terms are relative to the largest.
template <class T>
struct LogSumLine {
  using Results = OneResult<T>;
  double largest = -std::numeric_limits<double>::infinity(), sum = 0;
  static double load(std::span<char* const> reads, Extent at) { return load_one<T>(reads, at); }
  void take(double x, Extent) {
    if (x == -std::numeric_limits<double>::infinity()) return;  // adds nothing
    if (x <= largest) {
      sum += x == largest ? 1 : std::exp(x - largest);
    } else {
      sum = std::isnan(x) ? x : (sum > 0 ? sum * std::exp(largest - x) : sum) + 1;
      largest = x;
    }
  }
  void give(const Results& to, Extent i) const { to.y[i] = static_cast<T>(largest + std::log(sum)); }
};

template <class T, bool is_largest>
struct ExtremeLine {
  using Results = ExtremeResults<T>;
  T value = {};
  std::int32_t position = -1;
  static T load(std::span<char* const> reads, Extent at) { return load_one<T>(reads, at); }
  void take(T x, Extent place) {
    bool takes = position < 0 || (is_largest ? x >= value : x <= value);
    if constexpr (std::floating_point<T>) takes = takes || x != x;  // but no number is beyond a NaN
    if (!takes) return;
    value = x;
    position = static_cast<std::int32_t>(place);
  }
  void give(const Results& to, Extent i) const {
    to.y[i] = value;
    to.positions[i] = position;
  }
};

template <class T>
struct RecurrenceLine {
  using Results = OneResult<T>;
  double value = 0;
  static std::pair<T, T> load(std::span<char* const> reads, Extent at) {
    return {load_one<T>(reads, at), load_one<T>(reads.subspan(1), at)};
  }
  void take(std::pair<T, T> x, Extent) { value = x.first * value + x.second; }
  void give(const Results& to, Extent i) const { to.y[i] = static_cast<T>(value); }
};

template <class Op>
bool scan_numbers(DType type, const ScanSpace& space, char* from, char* to) {
  const auto run = [&]<class In, class Out, class Total>(In, Out, Total) {
    Scan<Op, In, Out, Total>::all(space, reinterpret_cast<const In*>(from), reinterpret_cast<Out*>(to));
    return true;
  };
  switch (type) {
    case DType::f32: return run(float{}, float{}, double{});
    case DType::f64: return run(double{}, double{}, double{});
    case DType::i32:
    case DType::u32: return run(std::uint32_t{}, std::uint32_t{}, std::uint32_t{});
    case DType::i64:
    case DType::u64: return run(std::uint64_t{}, std::uint64_t{}, std::uint64_t{});
    case DType::boolean: return run(std::uint8_t{}, std::uint32_t{}, std::uint32_t{});
    default: return false;
  }
}

template <bool is_largest>
bool scan_extremes(DType type, const ScanSpace& space, std::span<char* const> reads, std::span<char* const> outs) {
  const auto run = [&]<class T>(T) {
    scan_lines<ExtremeLine<T, is_largest>>(space, reads, outs);
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
bool scan_floats(const graph::OpRow& op, const ScanSpace& space, std::span<char* const> reads,
                 std::span<char* const> outs) {
  if (&op == &graph::logcumsumexp_row())
    scan_lines<LogSumLine<T>>(space, reads, outs);
  else
    scan_lines<RecurrenceLine<T>>(space, reads, outs);
  return true;
}

bool scan_by_row(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs) {
  const ScanSpace space = scan_space(kernel.shape(), kernel::attributes_of<graph::ScanAttributes>(kernel));
  const DType type = kernel.types[0];
  const graph::OpRow& op = *kernel.op;
  if (&op == &graph::cumsum_row()) return scan_numbers<Sum>(type, space, reads[0], outs[0]);
  if (&op == &graph::cumprod_row()) return scan_numbers<Product>(type, space, reads[0], outs[0]);
  if (&op == &graph::cummax_row()) return scan_extremes<true>(type, space, reads, outs);
  if (&op == &graph::cummin_row()) return scan_extremes<false>(type, space, reads, outs);
  return type == DType::f32   ? scan_floats<float>(op, space, reads, outs)
         : type == DType::f64 ? scan_floats<double>(op, space, reads, outs)
                              : false;
}

}  // namespace

void run_scan(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs) {
  if (!scan_by_row(kernel, reads, outs))
    throw DTypeError(fmt::format("{}: there is no kernel for {}; cast to f32", kernel.name, name_of(kernel.types[0])));
}

}  // namespace weft::cpu
