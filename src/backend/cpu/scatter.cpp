// Scatters along an axis: tasks own neighbouring lines, and go through their indices in order.
#include "backend/cpu/scatter.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "backend/axis_lines.hpp"
#include "backend/cpu/addition.hpp"
#include "backend/cpu/run_writer.hpp"
#include "backend/cpu/scratch_block.hpp"
#include "backend/cpu/sum_types.hpp"
#include "base/threads.hpp"
#include "compile/call_attributes.hpp"
#include "graph/scatter.hpp"

namespace weft::cpu {
namespace {

constexpr Extent kColumnsOfTask = 64;     // a few cache lines, so that tasks do not share them
constexpr Extent kWorkOfTask = 1 << 15;   // additions
constexpr Extent kWorkOfLines = 1 << 17;  // of a task with several short lines, if there are enough tasks
constexpr Extent kTasks = 32;

using backend::axis_lines;
using Lines = backend::AxisLines;

/// Places of some neighbouring lines, [extent, width], kept in a thread's cache until they are complete. In the result they may be
/// so far apart that they would push each other out of the cache. They begin as those of `from`, or as zeros.
template <class T>
class KeptPlaces {
 public:
  static constexpr Extent kBytes = 512 << 10;

  KeptPlaces(const T* from, const T* base, T* out, Extent size)
      : from_(from), base_(base), out_(out), streams_(size * static_cast<Extent>(sizeof(T)) > kStreamBytes) {
    thread_local ScratchBlock block;
    kept_ = block.as<T>(kBytes / static_cast<Extent>(sizeof(T)));
  }
  ~KeptPlaces() {
    if (streams_) fence_streams();
  }
  KeptPlaces(const KeptPlaces&) = delete;
  KeptPlaces& operator=(const KeptPlaces&) = delete;

  /// Rows of `width` elements, `row` apart in the result, where they begin at `first`.
  T* begin(Extent first, Extent rows, Extent width, Extent row) {
    first_ = first, rows_ = rows, width_ = width, row_ = row;
    if (width == row) rows_ = 1, width_ *= rows;
    is_kept_ = rows_ * width_ * static_cast<Extent>(sizeof(T)) <= kBytes;
    T* const to = is_kept_ ? kept_ : out_ + first;
    const Extent to_row = is_kept_ ? width_ : row;
    if (from_ != nullptr) {
      copy_rows(from_ + first, row, to, to_row, rows_, width_, false);
    } else {
      for (Extent r = 0; r < rows_; ++r) std::fill_n(to + r * to_row, width_, T{0});
    }
    return to;
  }
  bool is_kept() const { return is_kept_; }
  void end() const {
    if (!is_kept_) return;
    if (base_ != nullptr) add_base();
    copy_rows<T>(kept_, width_, out_ + first_, row_, rows_, width_, streams_);
  }

 private:
  void add_base() const {
    constexpr DType kType = std::is_same_v<T, float>           ? DType::f32
                            : std::is_same_v<T, double>        ? DType::f64
                            : std::is_same_v<T, std::uint64_t> ? DType::u64
                                                               : DType::u32;
    constexpr auto kSize = static_cast<Extent>(sizeof(T));
    TileCall call;
    call.out = kept_;
    call.out_stride = width_ * kSize;
    call.slow = rows_, call.fast = width_;
    call.args[0] = {base_ + first_, row_ * kSize, false};
    call.args[1] = {kept_, width_ * kSize, false};
    tile_table().map[static_cast<std::size_t>(scalar::Op::add)][static_cast<std::size_t>(kType)](call);
  }

  const T *from_, *base_;
  T* out_;
  bool streams_, is_kept_ = false;
  T* kept_ = nullptr;
  Extent first_ = 0, rows_ = 0, width_ = 0, row_ = 0;
};

/// Puts updates to places of a line, which has `extent` of them. Words are read two at a time, because a core reads and writes few
/// words in a cycle, and what is outside is rare, so that a branch costs little.
template <class T, bool kReads, class Put>
struct LinePuts {
  static constexpr Extent kTogether = 16;

  T* to;
  std::uint32_t extent;
  const std::uint32_t* indices;
  const T* updates;
  Put put;

  void one(std::uint32_t place, Extent t, T update) const {
    if (place < extent) put(to[place], t, update);
  }
  void one(Extent t) const { one(indices[t], t, kReads ? updates[t] : T{}); }
  /// kTogether updates, from number t on.
  void some(Extent t) const {
#pragma GCC unroll 8
    for (Extent k = t; k < t + kTogether; k += 2) {
      const std::array<std::uint32_t, 2> places = two(indices + k);
      std::array<T, 2> values{};
      if constexpr (kReads && sizeof(T) == 4) values = two(updates + k);
      if constexpr (kReads && sizeof(T) != 4) values = {updates[k], updates[k + 1]};
      one(places[0], k, values[0]), one(places[1], k + 1, values[1]);
    }
  }
  /// Updates [begin, end).
  void all(Extent begin, Extent end) const {
    for (; begin + kTogether <= end; begin += kTogether) some(begin);
    for (; begin < end; ++begin) one(begin);
  }

 private:
  template <class Word>
  static std::array<Word, 2> two(const Word* from) {
    std::uint64_t words;
    std::memcpy(&words, from, sizeof(words));
    return {std::bit_cast<Word>(static_cast<std::uint32_t>(words)),
            std::bit_cast<Word>(static_cast<std::uint32_t>(words >> 32))};
  }
};

/// Strips of lines across memory, turned so that each line is one piece: its places stay in the L1 cache while its updates go to
/// them. Beside one another, the places of a strip would take all of the L2 cache, and each update would wait for it.
template <class T, bool kReads>
class TurnedStrips {
 public:
  TurnedStrips(const Lines& lines, const std::uint32_t* indices, const T* updates, const T* x, T* out)
      : taken_(lines.taken),
        extent_(lines.extent),
        inner_(lines.inner),
        taken_pitch_(pitch_of(lines.taken)),
        extent_pitch_(pitch_of(lines.extent)),
        streams_(lines.outer * lines.extent * lines.inner * static_cast<Extent>(sizeof(T)) > kStreamBytes),
        indices_(indices),
        updates_(updates),
        x_(x),
        out_(out) {
    constexpr Extent kShort = 256, kLongMax = 16384, kMost = 32, kLeast = 16;  // kLeast: a cache line of memory
    constexpr Extent kBytesMax = 8 << 20;
    if (sizeof(T) != 4 || taken_ < kShort || 4 * taken_ < extent_ || extent_ > kLongMax) return;
    // Strips of two cache lines read memory faster than those of one; those of four would not fit the cache.
    for (Extent n = kMost; n >= kLeast && width_ == 0; n /= 2)
      if (inner_ >= n && 4 * n * words() <= kBytesMax && (n == kLeast || lines.outer * (inner_ / n) >= kTasks))
        width_ = n;
  }

  /// Lines of a strip; 0 if they are not worth being turned.
  Extent width() const { return width_; }

  /// The lines of a strip, whose first update is number `update`, and whose first place is number `place`.
  template <class Put>
  void run(Extent update, Extent place, Put put) const {
    thread_local ScratchBlock block;
    T* const places = block.as<T>(width_ * words());
    T* const values = places + width_ * extent_pitch_;
    auto* const at = reinterpret_cast<std::uint32_t*>(values + width_ * taken_pitch_);
    turn(indices_ + update, inner_, taken_, width_, at, taken_pitch_, false);
    if constexpr (kReads) turn(updates_ + update, inner_, taken_, width_, values, taken_pitch_, false);
    if (x_ != nullptr)
      turn(x_ + place, inner_, extent_, width_, places, extent_pitch_, false);
    else
      std::fill_n(places, width_ * extent_pitch_, T{0});
    for (Extent c = 0; c < width_; ++c) {
      T* const to = places + c * extent_pitch_;
      const T* const own = values + c * taken_pitch_;
      const std::uint32_t* const own_at = at + c * taken_pitch_;
      LinePuts<T, kReads, Put>{to, static_cast<std::uint32_t>(extent_), own_at, own, put}.all(0, taken_);
    }
    turn(places, extent_pitch_, width_, extent_, out_ + place, inner_, true);
  }

 private:
  /// Of a line.
  Extent words() const { return extent_pitch_ + 2 * taken_pitch_; }
  /// Lines a cache line apart from a multiple of a page, so that they fall on different sets of the cache.
  static Extent pitch_of(Extent count) { return (count + 1023) / 1024 * 1024 + 16; }
  /// Strips of 64-bit elements have no width. Memory cannot guess which rows come: they lie far apart.
  template <class W>
  void turn(const W* from, Extent from_row, Extent rows, Extent columns, W* to, Extent to_row, bool is_result) const {
    constexpr Extent kRowsAhead = 32;
    const bool streams = is_result && streams_;
    tile_table().turn32({from, from_row, to, to_row, rows, columns, streams, is_result ? 0 : kRowsAhead});
    if (streams) fence_streams();
  }

  Extent taken_, extent_, inner_, taken_pitch_, extent_pitch_, width_ = 0;
  bool streams_;
  const std::uint32_t* indices_;
  const T *updates_, *x_;
  T* out_;
};

/// Calls put(place, t, update) for the updates of each line in order; `t` counts along the line. Places begin as those of x, or as
/// zeros. kReads: whether put takes elements of `updates`.
template <class T, bool kReads, class Put>
void put_along(const Lines& lines, const std::uint32_t* indices, const T* updates, const T* x, T* out, Put put,
               const T* base = nullptr) {
  const Extent extent = lines.extent, taken = lines.taken, inner = lines.inner;
  if (lines.outer * extent * inner == 0) return;
  using Puts = LinePuts<T, kReads, Put>;
  constexpr Extent kLine = 64 / static_cast<Extent>(sizeof(T));
  const Extent kept = KeptPlaces<T>::kBytes / (extent * static_cast<Extent>(sizeof(T))) / kLine * kLine;
  const TurnedStrips<T, kReads> turned(lines, indices, updates, x, out);
  const Extent width = turned.width() > 0 ? turned.width() : std::min(inner, std::clamp(kept, kLine, kColumnsOfTask));
  const Extent blocks = (inner + width - 1) / width;
  const Extent all = lines.outer * blocks, work = (taken + extent) * width;
  const Extent each = std::max<Extent>({1, kWorkOfTask / work, std::min(kWorkOfLines / work, all / kTasks)});
  parallel_for((all + each - 1) / each, [&](Extent task) {
    KeptPlaces<T> places(x, base, out, lines.outer * extent * inner);
    const Extent end = std::min((task + 1) * each, all);
    for (Extent block = task * each; block < end; ++block) {
      const Extent line = block / blocks, begin = block % blocks * width, count = std::min(width, inner - begin);
      if (count == turned.width()) {
        turned.run(line * taken * inner + begin, line * extent * inner + begin, put);
        continue;
      }
      T* const to = places.begin(line * extent * inner + begin, extent, count, inner);
      const std::uint32_t* const at = indices + line * taken * inner + begin;
      const T* const own = kReads ? updates + (at - indices) : nullptr;
      if (places.is_kept() && count == 1) {
        // The stores keep the processor from running ahead to the next lines of memory, and to the places of the next line.
        if (inner == 1) {
          constexpr Extent kTogether = Puts::kTogether;
          const Puts puts{to, static_cast<std::uint32_t>(extent), at, own, put};
          const auto ask = [](const auto* from, Extent bytes_ahead) {
            for (Extent i = 0; i < kTogether; i += 64 / static_cast<Extent>(sizeof(*from)))
              __builtin_prefetch(reinterpret_cast<const char*>(from + i) + bytes_ahead, 0, 2);
          };
          // The base is read at the end of the line, x at the beginning of the next one.
          const T* const next = base != nullptr                    ? base + line * extent
                                : x == nullptr || block + 1 == end ? nullptr
                                                                   : x + (line + 1) * extent;
          Extent t = 0;
          for (; t + kTogether <= taken; t += kTogether) {
            ask(at + t, kStreamAhead);
            if (kReads) ask(own + t, kStreamAhead);
            if (next != nullptr && t < extent) ask(next + t, 0);
            puts.some(t);
          }
          puts.all(t, taken);
        } else {
          for (Extent t = 0; t < taken; ++t)
            if (at[t * inner] < extent) put(to[at[t * inner]], t, kReads ? own[t * inner] : T{});
        }
      } else {
        const Extent step = places.is_kept() ? count : inner;
        for (Extent t = 0; t < taken; ++t)
          for (Extent c = 0; c < count; ++c) {
            const Extent row = at[t * inner + c];  // a negative index is beyond all places
            if (row < extent) put(to[row * step + c], t, kReads ? own[t * inner + c] : T{});
          }
      }
      places.end();
    }
  });
}

/// One long line, by parts of it at the same time: the largest t wins, whoever comes first.
void last_of_long_line(const Lines& lines, const std::uint32_t* indices, std::int32_t* out) {
  const auto in_parts = [](Extent count, auto work) {
    parallel_for((count + kWorkOfTask - 1) / kWorkOfTask,
                 [&](Extent task) { work(task * kWorkOfTask, std::min((task + 1) * kWorkOfTask, count)); });
  };
  in_parts(lines.extent, [&](Extent begin, Extent end) { std::fill(out + begin, out + end, 0); });
  in_parts(lines.taken, [&](Extent begin, Extent end) {
    constexpr Extent kAhead = 32;
    for (Extent t = begin; t < end; ++t) {
      if (t + kAhead < end && indices[t + kAhead] < lines.extent) __builtin_prefetch(out + indices[t + kAhead], 1);
      if (indices[t] >= lines.extent) continue;
      const std::atomic_ref<std::int32_t> place(out[indices[t]]);
      const auto mine = static_cast<std::int32_t>(t + 1);
      for (std::int32_t now = place.load(std::memory_order_relaxed);
           now < mine && !place.compare_exchange_weak(now, mine, std::memory_order_relaxed);) {
      }
    }
  });
}

Lines lines_of(const kernel::CallKernel& kernel) {
  return axis_lines(kernel.shape(), kernel::attributes_of<graph::ScatterAlongAttributes>(kernel).axis,
                    kernel.shapes[0]);
}

/// The sums of the updates, added to a base if there is one.
void add_along(const kernel::CallKernel& kernel, std::span<char* const> reads, const char* base, char* out) {
  const auto* at = reinterpret_cast<const std::uint32_t*>(reads[0]);
  with_sum_type(kernel.out().type, kernel.name, [&]<class T>(T) {
    put_along<T, true>(
        lines_of(kernel), at, reinterpret_cast<const T*>(reads[1]), nullptr, reinterpret_cast<T*>(out),
        [](T& place, Extent, T update) { place += update; }, reinterpret_cast<const T*>(base));
  });
}

/// A scatter within rows and the addition of its result to others.
class ScatterAndAdd final : public Prepared {
 public:
  ScatterAndAdd(kernel::CallKernel kernel, Addition addition)
      : kernel_(std::move(kernel)), addition_(std::move(addition)) {}
  void bind(const Memory& memory) override {
    reads_ = {memory.at(kernel_.reads[0]), memory.at(kernel_.reads[1])};
    base_ = memory.at(addition_.base), out_ = memory.at(addition_.out);
  }
  void run() override { add_along(kernel_, reads_, base_, out_); }
  void run_kernel(std::size_t index) override {
    if (index == 0) run();
  }
  std::string to_string() const override { return call_text(kernel_) + "  added to others\n"; }

 private:
  kernel::CallKernel kernel_;
  Addition addition_;
  std::array<char*, 2> reads_{};
  const char* base_ = nullptr;
  char* out_ = nullptr;
};

}  // namespace

void run_scatter_along(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs) {
  add_along(kernel, reads, nullptr, outs[0]);
}

void run_put_along(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs) {
  const Extent axis = kernel.attributes[0];
  const Lines lines = axis_lines(kernel.shape(), axis, kernel.shapes[1]);
  const auto* at = reinterpret_cast<const std::uint32_t*>(reads[1]);
  const auto run = [&]<class T>(T) {
    const T* const updates = reinterpret_cast<const T*>(reads[2]);
    put_along<T, true>(lines, at, updates, reinterpret_cast<const T*>(reads[0]), reinterpret_cast<T*>(outs[0]),
                       [](T& place, Extent, T update) { place = update; });
  };
  size_bytes(kernel.out().type) == 4 ? run(std::uint32_t{}) : run(std::uint64_t{});
}

void run_last_along(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs) {
  const auto a = kernel::attributes_of<graph::ScatterAlongAttributes>(kernel);
  const Lines lines = axis_lines(kernel.shape(), a.axis, kernel.shapes[0]);
  const auto* at = reinterpret_cast<const std::uint32_t*>(reads[0]);
  auto* const out = reinterpret_cast<std::int32_t*>(outs[0]);
  if (lines.outer * lines.inner == 1 && lines.taken > 2 * kWorkOfTask) return last_of_long_line(lines, at, out);
  put_along<std::int32_t, false>(lines, at, nullptr, nullptr, out, [](std::int32_t& place, Extent t, std::int32_t) {
    place = static_cast<std::int32_t>(t + 1);
  });
}

std::unique_ptr<Prepared> prepare_scatter_along_and_add(const kernel::Plan& plan, std::size_t first) {
  const auto* scatter = std::get_if<kernel::CallKernel>(&plan.kernels[first]);
  if (scatter == nullptr || scatter->op != &graph::scatter_along_row()) return nullptr;
  const Lines lines = lines_of(*scatter);
  const auto size = static_cast<Extent>(size_bytes(scatter->out().type));
  if (lines.inner != 1 || lines.extent == 0 || lines.extent * size > KeptPlaces<char>::kBytes) return nullptr;
  std::optional<Addition> addition = addition_after(plan, first, scatter->out(), lines.outer * lines.extent);
  if (!addition) return nullptr;
  return std::make_unique<ScatterAndAdd>(*scatter, *std::move(addition));
}

}  // namespace weft::cpu
