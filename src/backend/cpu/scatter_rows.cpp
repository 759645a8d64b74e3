// Long rows are added up one after another, by lists of their updates. Single numbers go to buckets by their place first, so that
// a task has its updates together. Otherwise tasks own ranges of columns, or of rows where there are few columns, and go through
// all indices in order.
#include "backend/cpu/scatter_rows.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "backend/cpu/addition.hpp"
#include "backend/cpu/row_lists.hpp"
#include "backend/cpu/run_writer.hpp"
#include "backend/cpu/scratch_block.hpp"
#include "backend/cpu/sum_types.hpp"
#include "backend/cpu/vector.inc.hpp"
#include "base/threads.hpp"

namespace weft::cpu {
namespace {

constexpr Extent kColumnsOfTask = 64;    // a few cache lines, so that tasks do not share them
constexpr Extent kWorkOfTask = 1 << 15;  // additions
constexpr Extent kListedColumns = 16;    // shorter rows are not worth a list of their updates
constexpr Extent kListTasks = 64;
constexpr Extent kBuckets = 256;      // of places at most: the ends of so many streams stay in the L1 cache and its TLB
constexpr int kBucketShift = 6;       // a bucket has 64 places at least
constexpr Extent kChunks = 64;        // of updates
constexpr Extent kBytesAhead = 8192;  // of updates, whose lines are prefetched while earlier ones are added

/// to += from.
template <class T>
void add(const T* from, T* to, Extent count) {
  constexpr int N = kVectorBytes / static_cast<int>(sizeof(T));
  Extent i = 0;
  for (; i + N <= count; i += N) store<N>(to + i, load<N>(to + i) + load<N>(from + i));
  for (; i < count; ++i) to[i] += from[i];
}

template <class T>
class RowSums {
 public:
  /// The sums go to `out`; with `base`, which may be the same memory, they are added to it.
  RowSums(const kernel::ScatterAddKernel& kernel, const std::uint32_t* indices, const T* updates, const T* base, T* out)
      : count_(kernel.count),
        rows_(kernel.rows),
        columns_(kernel.columns),
        indices_(indices),
        updates_(updates),
        base_(base),
        out_(out) {}

  /// Each row is written once. False if rows are short, or one has so many updates that a task would have most of the work.
  bool run_by_lists(RowLists& lists) const {
    if (columns_ < kListedColumns || is_small()) return false;
    lists.fill(indices_, count_, rows_);
    if (lists.longest > (count_ + rows_) / 16) return false;
    parallel_for(kListTasks,
                 [&](Extent task) { sum_listed(lists, rows_ * task / kListTasks, rows_ * (task + 1) / kListTasks); });
    return true;
  }

  /// Without a base. A place's updates stay in order. False unless rows are single numbers, and many.
  bool run_by_buckets(ScratchBlock& scratch) const {
    if (columns_ != 1 || is_small()) return false;
    struct Update {
      std::uint32_t row;
      T value;
    };
    int shift = kBucketShift;
    while (rows_ >> shift >= kBuckets) ++shift;
    const Extent height = Extent{1} << shift, buckets = (rows_ + height - 1) / height;
    Update* const updates = scratch.as<Update>(count_);
    // By chunk and bucket: the number of updates, then the place of the next one.
    std::vector<Extent> at(static_cast<std::size_t>(kChunks * buckets));
    const auto each_of_chunk = [&](Extent chunk, auto use) {
      Extent* const own = at.data() + chunk * buckets;
      for (Extent i = count_ * chunk / kChunks; i < count_ * (chunk + 1) / kChunks; ++i)
        if (const Extent row = indices_[i]; row < rows_)
          use(own[row >> shift], i);  // a negative index is beyond all rows
    };
    parallel_for(kChunks, [&](Extent chunk) { each_of_chunk(chunk, [](Extent& n, Extent) { ++n; }); });
    std::vector<Extent> ends(static_cast<std::size_t>(buckets));
    Extent total = 0;
    for (Extent b = 0; b < buckets; ++b) {
      for (Extent chunk = 0; chunk < kChunks; ++chunk)
        total += std::exchange(at[static_cast<std::size_t>(chunk * buckets + b)], total);
      ends[static_cast<std::size_t>(b)] = total;
    }
    parallel_for(kChunks, [&](Extent chunk) {
      each_of_chunk(chunk, [&](Extent& next, Extent i) { updates[next++] = {indices_[i], updates_[i]}; });
    });
    parallel_for(buckets, [&](Extent b) {
      std::fill(out_ + b * height, out_ + std::min(rows_, (b + 1) * height), T{0});
      const Extent begin = b == 0 ? 0 : ends[static_cast<std::size_t>(b - 1)];
      for (Extent i = begin; i < ends[static_cast<std::size_t>(b)]; ++i) out_[updates[i].row] += updates[i].value;
    });
    return true;
  }

  /// Without a base.
  void run_in_ranges() const {
    if (is_small()) {
      range(0, rows_, 0, columns_);
    } else if (columns_ >= 2 * kColumnsOfTask) {
      const Extent width = std::max(kColumnsOfTask, (columns_ + 31) / 32);
      parallel_for((columns_ + width - 1) / width,
                   [&](Extent t) { range(0, rows_, t * width, std::min((t + 1) * width, columns_)); });
    } else {
      const Extent height = std::max<Extent>(1, (rows_ + 7) / 8);
      parallel_for((rows_ + height - 1) / height,
                   [&](Extent t) { range(t * height, std::min((t + 1) * height, rows_), 0, columns_); });
    }
  }

 private:
  static constexpr Extent kRun = RunWriter<T>::kRun, kLine = 64 / static_cast<Extent>(sizeof(T));

  bool is_small() const { return (count_ + rows_) * columns_ < 2 * kWorkOfTask; }

  void sum_listed(const RowLists& lists, Extent begin, Extent end) const {
    constexpr auto kType = static_cast<std::size_t>(std::is_same_v<T, float>           ? DType::f32
                                                    : std::is_same_v<T, double>        ? DType::f64
                                                    : std::is_same_v<T, std::uint32_t> ? DType::u32
                                                                                       : DType::u64);
    const auto sum = tile_table().sum_rows[kType];
    const auto ahead =
        static_cast<std::uint32_t>(std::clamp<Extent>(kBytesAhead / (columns_ * Extent{sizeof(T)}), 1, 32));
    const auto all = static_cast<std::uint32_t>(lists.order.size());
    RunWriter<T> writer(out_, rows_ * columns_);
    // Rows of whole cache lines need no buffer on their way past the caches.
    const bool is_direct =
        !writer.streams() || (columns_ % kLine == 0 && reinterpret_cast<std::uintptr_t>(out_) % 64 == 0);
    std::uint32_t asked = lists.starts[static_cast<std::size_t>(begin)];
    for (Extent r = begin; r < end; ++r) {
      const std::uint32_t first = lists.starts[static_cast<std::size_t>(r)],
                          last = lists.starts[static_cast<std::size_t>(r) + 1];
      const std::uint32_t later = std::max(asked, last), ask = std::min(all, last + ahead);
      const Extent width = is_direct ? columns_ : kRun;
      for (Extent c = 0; c < columns_; c += width) {
        const Extent at = r * columns_ + c, count = std::min(width, columns_ - c);
        T* const to = is_direct ? out_ + at : writer.place(at);
        sum({updates_ + c, columns_, lists.order.data() + first, last - first, base_ != nullptr ? base_ + at : nullptr,
             to, count, is_direct && writer.streams(), lists.order.data() + later, std::max(later, ask) - later});
        if (!is_direct) writer.finish(at, count);
      }
      asked = std::max(later, ask);
    }
  }

  void range(Extent row_begin, Extent row_end, Extent column_begin, Extent column_end) const {
    for (Extent r = row_begin; r < row_end; ++r)
      std::fill(out_ + r * columns_ + column_begin, out_ + r * columns_ + column_end, T{0});
    for (Extent i = 0; i < count_; ++i) {
      const Extent row = indices_[i];  // a negative index is beyond all rows
      if (row < row_begin || row >= row_end) continue;
      add(updates_ + i * columns_ + column_begin, out_ + row * columns_ + column_begin, column_end - column_begin);
    }
  }

  Extent count_, rows_, columns_;
  const std::uint32_t* indices_;
  const T *updates_, *base_;
  T* out_;
};

class ScatterRows final : public Prepared {
 public:
  ScatterRows(kernel::ScatterAddKernel kernel, std::optional<Addition> addition)
      : kernel_(std::move(kernel)), addition_(std::move(addition)) {
    if (!addition_) return;
    operands_.emplace(addition_->kernel);
    alone_.emplace(addition_->kernel);
  }
  void bind(const Memory& memory) override {
    indices_ = reinterpret_cast<const std::uint32_t*>(memory.at(kernel_.indices));
    updates_ = memory.at(kernel_.updates), out_ = memory.at(kernel_.out);
    if (!addition_) return;
    operands_->bind(memory);
    base_ = memory.at(addition_->base), sum_ = memory.at(addition_->out);
  }
  void run() override {
    with_sum_type(kernel_.out.type, kernel_.name, [&]<class T>(T) {
      const auto* const updates = reinterpret_cast<const T*>(updates_);
      const RowSums<T> sums(kernel_, indices_, updates, nullptr, reinterpret_cast<T*>(out_));
      if (!addition_) {
        if (!sums.run_by_lists(lists_)) run_without_base(sums);
        return;
      }
      const auto* const base = reinterpret_cast<const T*>(base_);
      if (RowSums<T>(kernel_, indices_, updates, base, reinterpret_cast<T*>(sum_)).run_by_lists(lists_)) return;
      run_without_base(sums);
      alone_->run(operands_->binding());
    });
  }
  void run_kernel(std::size_t index) override {
    if (index == 0) run();
  }
  std::string to_string() const override {
    return fmt::format("scatter-add {}: {} rows of {} into {}{}\n", kernel_.name, kernel_.count, kernel_.columns,
                       kernel_.rows, addition_ ? ", added to others" : "");
  }

 private:
  template <class T>
  static void run_without_base(const RowSums<T>& sums) {
    thread_local ScratchBlock scratch;
    if (!sums.run_by_buckets(scratch)) sums.run_in_ranges();
  }

  kernel::ScatterAddKernel kernel_;
  std::optional<Addition> addition_;
  std::optional<LoopOperands> operands_;
  std::optional<LoopProgram> alone_;
  RowLists lists_;
  const std::uint32_t* indices_ = nullptr;
  const char *updates_ = nullptr, *base_ = nullptr;
  char *out_ = nullptr, *sum_ = nullptr;
};

}  // namespace

std::unique_ptr<Prepared> prepare_scatter_rows(const kernel::ScatterAddKernel& kernel) {
  return std::make_unique<ScatterRows>(kernel, std::nullopt);
}

std::unique_ptr<Prepared> prepare_scatter_and_add(const kernel::Plan& plan, std::size_t first) {
  const auto* scatter = std::get_if<kernel::ScatterAddKernel>(&plan.kernels[first]);
  if (scatter == nullptr || scatter->count == 0) return nullptr;
  std::optional<Addition> addition = addition_after(plan, first, scatter->out, scatter->rows * scatter->columns);
  if (!addition) return nullptr;
  return std::make_unique<ScatterRows>(*scatter, std::move(addition));
}

}  // namespace weft::cpu
