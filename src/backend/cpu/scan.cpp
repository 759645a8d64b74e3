#include "backend/cpu/scan.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <concepts>
#include <limits>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "backend/cpu/run_writer.hpp"
#include "base/spin.hpp"
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
constexpr Extent kLongLinesMax = 16;  // whose chunks are shared: more lines keep all threads busy as they are
constexpr Extent kChunk = 1 << 15;    // elements of a long line that a task adds up, and then scans from its cache
constexpr std::chrono::microseconds kSpin{50};  // for the chunk before, until another program may run
constexpr Extent kNeighboursMax = 512;          // neighbouring lines of a task: they share cache lines
constexpr Extent kNeighbours = 64;              // at least
constexpr Extent kTasksOfThread = 4;            // few, since long pieces of rows are read faster
constexpr Extent kTogether = 32;                // elements of a line that are compared with its extreme at once

/// Calls work(outer, first, count) for neighbouring lines [first, first + count) of each outer index, on all threads.
template <class Work>
void for_neighbours(const ScanSpace& space, Work work) {
  const Extent tasks = kTasksOfThread * static_cast<Extent>(thread_count());
  const Extent each = (space.outer * space.inner / tasks + kNeighbours - 1) / kNeighbours * kNeighbours;
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

// ---- Sums and products ----------------------------------------------------------------------------------------------------

/// Scans of elements In to Out with totals of type `Total`, by the functions of the instruction set.
template <class In, class Out, class Total>
class RunningScan {
 public:
  RunningScan(const ScanSpace& space, const ScanParts& parts, Total identity, const char* x, char* y)
      : space_(space),
        parts_(parts),
        identity_(identity),
        x_(reinterpret_cast<const In*>(x)),
        y_(reinterpret_cast<Out*>(y)),
        size_(space.outer * space.n * space.inner) {}

  void run() const {
    if (space_.inner > 1) return neighbours();
    if (!parts_.overflows && space_.outer < kLongLinesMax && space_.n >= 2 * kChunk) {
      for (Extent outer = 0; outer < space_.outer; ++outer) long_line(outer * space_.n);
      return;
    }
    for_lines(space_, [&](Extent outer) {
      RunWriter<Out> writer(y_, size_);
      Total carry = identity_;
      const Extent first = outer * space_.n, ahead = kStreamAhead / static_cast<Extent>(sizeof(In));
      line(writer, first, space_.n, x_ + first + (space_.reverse ? -ahead : ahead), &carry);
    });
  }

 private:
  /// Prefetches from `ahead` on meanwhile.
  void line(RunWriter<Out>& writer, Extent first, Extent n, const In* ahead, Total* carry) const {
    const auto scan = parts_.run[space_.exclusive][space_.reverse];
    if (parts_.streams) return scan(x_ + first, ahead, y_ + first, n, carry, writer.streams());
    for_runs(space_, n, [&](Extent begin, Extent count) {
      scan(x_ + first + begin, ahead + begin, writer.place(first + begin), count, carry, false);
      writer.finish(first + begin, count);
    });
  }

  /// A long line on all threads, which take its chunks in order. A thread adds up its chunk, passes the total so far on, and scans
  /// the chunk from its cache, while the chunk that it takes next is on its way there.
  void long_line(Extent first) const {
    const auto combined = [&](Total a, Total b) { return identity_ == Total{0} ? a + b : a * b; };
    const Extent chunks = (space_.n + kChunk - 1) / kChunk;
    std::vector<Total> before(static_cast<std::size_t>(chunks), identity_);
    std::atomic<Extent> taken = 0, ready = 1;  // chunks; those whose `before` is known
    const auto count_of = [&](Extent chunk) { return std::min(kChunk, space_.n - chunk * kChunk); };
    const auto start_of = [&](Extent chunk) {
      return first + (space_.reverse ? space_.n - chunk * kChunk - count_of(chunk) : chunk * kChunk);
    };
    parallel_for(std::min<Extent>(chunks, thread_count()), [&](Extent) {
      RunWriter<Out> writer(y_, size_);
      for (Extent chunk = taken.fetch_add(1, std::memory_order_relaxed), next = 0; chunk < chunks; chunk = next) {
        const Extent from = start_of(chunk), count = count_of(chunk);
        Total total;
        parts_.total(x_ + from, count, &total);
        // The chunk before this one was taken by a thread that does not wait for this one.
        const auto is_ready = [&] { return ready.load(std::memory_order_acquire) > chunk; };
        while (!spin_until(kSpin, is_ready)) std::this_thread::yield();
        Total carry = before[static_cast<std::size_t>(chunk)];
        if (chunk + 1 < chunks) {
          before[static_cast<std::size_t>(chunk) + 1] = combined(total, carry);
          ready.store(chunk + 2, std::memory_order_release);
        }
        next = taken.fetch_add(1, std::memory_order_relaxed);
        // Both chunks are scanned from the same end; what is already in the cache is asked for after the last one.
        Extent ahead = from;
        if (next < chunks) ahead = start_of(next) + (space_.reverse ? count_of(next) - count : 0);
        line(writer, from, count, x_ + ahead, &carry);
      }
    });
  }

  void neighbours() const {
    constexpr Extent kRowsAhead = 4;  // rows that are far apart are not guessed by the hardware
    const auto step = parts_.step[space_.exclusive];
    for_neighbours(space_, [&](Extent outer, Extent first, Extent count) {
      RunWriter<Out> writer(y_, size_);
      Total totals[kNeighboursMax];
      std::fill_n(totals, count, identity_);
      for (Extent i = 0; i < space_.n; ++i) {
        const Extent place = space_.reverse ? space_.n - 1 - i : i;
        const Extent row = (outer * space_.n + place) * space_.inner + first;
        const Extent ahead = i + kRowsAhead < space_.n ? (space_.reverse ? -kRowsAhead : kRowsAhead) : 0;
        const In* const next = x_ + row + ahead * space_.inner;
        if (parts_.streams) {
          step(x_ + row, next, y_ + row, count, totals, writer.streams());
          continue;
        }
        step(x_ + row, next, writer.place(row), count, totals, false);
        writer.finish(row, count);
      }
    });
  }

  const ScanSpace& space_;
  const ScanParts& parts_;
  Total identity_;
  const In* x_;
  Out* y_;
  Extent size_;
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
        const auto take = [&](Extent i) {
          const auto element = Line::load(reads, first + i);
          if (space.exclusive) line.give(results, i);
          line.take(element, begin + i);
          if (!space.exclusive) line.give(results, i);
        };
        for (Extent done = 0; done < count;) {
          const Extent some = std::min(kTogether, count - done), at = space.reverse ? count - done - some : done;
          done += some;
          if constexpr (requires { line.keeps(reads, at); }) {
            if (some == kTogether && line.keeps(reads, first + at)) {
              line.give_some(results, at);
              continue;
            }
          }
          for (Extent k = 0; k < some; ++k) take(space.reverse ? at + some - 1 - k : at + k);
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
  /// Whether it takes none of the next elements, as it is with most of a long line.
  bool keeps(std::span<char* const> reads, Extent at) const {
    const T* const x = reinterpret_cast<const T*>(reads[0]) + at;
    const T held = value;
    int taken = 0;  // counted, because a loop without an exit becomes vectors
    for (Extent i = 0; i < kTogether; ++i) taken += is_largest ? !(x[i] < held) : !(x[i] > held);
    return position >= 0 && taken == 0;
  }
  void give_some(const Results& to, Extent at) const {
    std::fill_n(to.y + at, kTogether, value);
    std::fill_n(to.positions + at, kTogether, position);
  }
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

bool scan_numbers(DType type, bool multiplies, const ScanSpace& space, const char* from, char* to) {
  const TileTable& table = tile_table();
  const ScanParts& parts = (multiplies ? table.running_product : table.running_sum)[static_cast<std::size_t>(type)];
  const auto run = [&]<class In, class Out, class Total>(In, Out, Total) {
    RunningScan<In, Out, Total>(space, parts, static_cast<Total>(multiplies ? 1 : 0), from, to).run();
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

/// Lines of floats, if the instruction set has a function for them.
bool extremes_of_lines(bool is_largest, const ScanSpace& space, std::span<char* const> reads,
                       std::span<char* const> outs) {
  const ExtremeFunction run = is_largest ? tile_table().running_max : tile_table().running_min;
  if (run == nullptr || space.inner != 1 || space.exclusive || space.reverse) return false;
  const Extent size = space.outer * space.n;
  for_lines(space, [&](Extent line) {
    const RunWriter<float> writer(reinterpret_cast<float*>(outs[0]), size);
    const Extent first = line * space.n;
    ExtremeRun one{reinterpret_cast<const float*>(reads[0]) + first, reinterpret_cast<float*>(outs[0]) + first,
                   reinterpret_cast<std::int32_t*>(outs[1]) + first, space.n, writer.streams()};
    run(one);
  });
  return true;
}

template <bool is_largest>
bool scan_extremes(DType type, const ScanSpace& space, std::span<char* const> reads, std::span<char* const> outs) {
  if (type == DType::f32 && extremes_of_lines(is_largest, space, reads, outs)) return true;
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
  if (&op == &graph::cumsum_row()) return scan_numbers(type, false, space, reads[0], outs[0]);
  if (&op == &graph::cumprod_row()) return scan_numbers(type, true, space, reads[0], outs[0]);
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
