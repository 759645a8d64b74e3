// Scatter-add. Long rows are added up one after another, by lists of their updates. Otherwise tasks own ranges of columns, or of
// rows where there are few columns, and go through all indices in order.
#include "backend/cpu/scatter.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "backend/cpu/run_writer.hpp"
#include "base/threads.hpp"
#include "compile/call_attributes.hpp"
#include "graph/scatter.hpp"
#include "weft/error.hpp"

namespace weft::cpu {
namespace {

constexpr Extent kColumnsOfTask = 64;    // a few cache lines, so that tasks do not share them
constexpr Extent kWorkOfTask = 1 << 15;  // additions

constexpr Extent kListedColumns = 16;  // shorter rows are not worth a list of their updates
constexpr Extent kListTasks = 64;
constexpr Extent kBytesAhead = 4096;  // of updates, whose lines are prefetched while earlier ones are added

/// The updates of each row: those at places [starts[r], starts[r + 1]) of `order` belong to row r, in order.
struct RowLists {
  std::vector<std::uint32_t> starts, order;
  std::uint32_t longest = 0;

  RowLists(const std::uint32_t* indices, Extent count, Extent rows) : starts(static_cast<std::size_t>(rows) + 1) {
    for (Extent i = 0; i < count; ++i)
      if (indices[i] < rows) ++starts[indices[i]];  // a negative index is beyond all rows
    std::uint32_t total = 0;
    for (std::uint32_t& start : starts) {
      longest = std::max(longest, start);
      total += std::exchange(start, total);
    }
    order.resize(total);
    for (Extent i = 0; i < count; ++i)
      if (indices[i] < rows) order[starts[indices[i]]++] = static_cast<std::uint32_t>(i);
    for (std::size_t r = starts.size(); r-- > 1;) starts[r] = starts[r - 1];
    starts[0] = 0;
  }
};

/// Each row is written once. False if one row has so many updates that a task would have most of the work.
template <class T>
bool scatter_by_lists(const kernel::ScatterAddKernel& kernel, const std::uint32_t* indices, const T* updates, T* out) {
  const Extent columns = kernel.columns, rows = kernel.rows;
  const RowLists lists(indices, kernel.count, rows);
  if (lists.longest > (kernel.count + rows) / 16) return false;
  constexpr Extent kLine = 64 / static_cast<Extent>(sizeof(T));
  const auto row_bytes = columns * static_cast<Extent>(sizeof(T));
  const auto ahead = static_cast<std::uint32_t>(std::clamp<Extent>(kBytesAhead / row_bytes, 1, 32));
  // Requests that go out between the additions do not wait for each other.
  const auto add = [&](std::uint32_t at, Extent column, T* to, Extent count) {
    const T* const from = updates + lists.order[at] * columns + column;
    const std::uint32_t later = at + ahead < lists.order.size() ? at + ahead : at;
    const T* const next = updates + lists.order[later] * columns + column;
    Extent i = 0;
    for (; i + kLine <= count; i += kLine) {
      __builtin_prefetch(next + i, 0, 2);
      for (Extent k = i; k < i + kLine; ++k) to[k] += from[k];
    }
    for (; i < count; ++i) to[i] += from[i];
  };
  parallel_for(kListTasks, [&](Extent task) {
    RunWriter<T> writer(out, rows * columns);
    for (Extent r = rows * task / kListTasks; r < rows * (task + 1) / kListTasks; ++r) {
      const std::uint32_t begin = lists.starts[static_cast<std::size_t>(r)],
                          end = lists.starts[static_cast<std::size_t>(r) + 1];
      for (Extent c = 0; c < columns; c += RunWriter<T>::kRun) {
        const Extent count = std::min(RunWriter<T>::kRun, columns - c);
        T* const to = writer.place(r * columns + c);
        std::fill_n(to, count, T{0});
        for (std::uint32_t at = begin; at < end; ++at) add(at, c, to, count);
        writer.finish(r * columns + c, count);
      }
    }
  });
  return true;
}

template <class T>
void scatter(const kernel::ScatterAddKernel& kernel, const std::uint32_t* indices, const T* updates, T* out) {
  const Extent columns = kernel.columns, rows = kernel.rows;
  const auto range = [&](Extent row_begin, Extent row_end, Extent column_begin, Extent column_end) {
    for (Extent r = row_begin; r < row_end; ++r)
      std::fill(out + r * columns + column_begin, out + r * columns + column_end, T{0});
    for (Extent i = 0; i < kernel.count; ++i) {
      const Extent row = indices[i];  // a negative index is beyond all rows
      if (row < row_begin || row >= row_end) continue;
      T* to = out + row * columns;
      const T* from = updates + i * columns;
      for (Extent c = column_begin; c < column_end; ++c) to[c] += from[c];
    }
  };
  const Extent work = (kernel.count + rows) * columns;
  if (work < 2 * kWorkOfTask) {
    range(0, rows, 0, columns);
  } else if (columns >= kListedColumns && scatter_by_lists(kernel, indices, updates, out)) {
    return;
  } else if (columns >= 2 * kColumnsOfTask) {
    const Extent width = std::max(kColumnsOfTask, (columns + 31) / 32);
    parallel_for((columns + width - 1) / width,
                 [&](Extent t) { range(0, rows, t * width, std::min((t + 1) * width, columns)); });
  } else {
    const Extent height = std::max<Extent>(1, (rows + 7) / 8);
    parallel_for((rows + height - 1) / height,
                 [&](Extent t) { range(t * height, std::min((t + 1) * height, rows), 0, columns); });
  }
}

template <class T>
void scatter_along(const Shape& shape, int axis, Extent taken, const std::uint32_t* indices, const T* updates, T* out) {
  Extent outer = 1, inner = 1;
  for (int d = 0; d < shape.rank(); ++d)
    if (d != axis) (d < axis ? outer : inner) *= shape[d];
  const Extent extent = shape[axis], blocks = (inner + kColumnsOfTask - 1) / kColumnsOfTask;
  const auto run = [&](Extent task) {
    const Extent line = task / blocks, begin = task % blocks * kColumnsOfTask;
    const Extent count = std::min(kColumnsOfTask, inner - begin);
    T* const to = out + line * extent * inner + begin;
    for (Extent r = 0; r < extent; ++r) std::fill_n(to + r * inner, count, T{0});
    for (Extent t = 0; t < taken; ++t) {
      const Extent from = (line * taken + t) * inner + begin;
      for (Extent c = 0; c < count; ++c) {
        const Extent row = indices[from + c];  // a negative index is beyond all places
        if (row < extent) to[row * inner + c] += updates[from + c];
      }
    }
  };
  parallel_for(outer * blocks, run);
}

// Calls run with a zero of the C++ type in which values of this type are added up.
template <class Run>
void with_sum_type(DType type, std::string_view name, Run run) {
  switch (type) {
    case DType::f32: return run(float{});
    case DType::f64: return run(double{});
    case DType::i32:  // wraps as u32 does
    case DType::u32: return run(std::uint32_t{});
    case DType::i64:
    case DType::u64: return run(std::uint64_t{});
    default: throw DTypeError(fmt::format("{}: scatter-add has no sums of {}; cast first", name, name_of(type)));
  }
}

}  // namespace

void run_scatter_along(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs) {
  const auto a = kernel::attributes_of<graph::ScatterAlongAttributes>(kernel);
  const Shape& shape = kernel.shape();
  const int axis = static_cast<int>(a.axis < 0 ? a.axis + shape.rank() : a.axis);
  const auto* at = reinterpret_cast<const std::uint32_t*>(reads[0]);
  const auto run = [&]<class T>(T) {
    scatter_along(shape, axis, kernel.shapes[0][axis], at, reinterpret_cast<const T*>(reads[1]),
                  reinterpret_cast<T*>(outs[0]));
  };
  with_sum_type(kernel.out().type, kernel.name, run);
}

void run_scatter_add(const kernel::ScatterAddKernel& kernel, const void* indices, const void* updates, void* out) {
  const auto* at = static_cast<const std::uint32_t*>(indices);
  const auto run = [&]<class T>(T) { scatter(kernel, at, static_cast<const T*>(updates), static_cast<T*>(out)); };
  with_sum_type(kernel.out.type, kernel.name, run);
}

}  // namespace weft::cpu
