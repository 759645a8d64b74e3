// A task has some strips of neighbouring columns, a few cache lines wide. It copies those of the source, and picks from the copy
// while it copies the next strip. In memory the rows of these columns lie far apart, often at a power of two, and would push each
// other out of the cache.
#include "backend/cpu/column_gather.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "backend/cpu/common_extents.hpp"
#include "backend/cpu/run_writer.hpp"
#include "backend/cpu/scratch_block.hpp"
#include "base/threads.hpp"

namespace weft::cpu {
namespace {

constexpr Extent kSourceBytesMin = 512 << 10;  // smaller sources are in a near cache
constexpr Extent kCopiedBytes = 512 << 10;     // of some columns, in the second cache
constexpr Extent kCopiedBytesMax = 1 << 20;    // of the columns of one cache line
constexpr Extent kColumnsMax = 256;            // of a strip
constexpr Extent kTasks = 16;

struct Axis {
  Extent extent, index, from, to;  // strides
};

/// Element (outer, row, column) of the result takes the source's element (outer, index[outer, row, column], column).
struct Gather {
  std::vector<Axis> outer;  // outermost first
  Axis rows;
  Extent columns;
  Extent index_offset, from_offset, to_offset;
};

std::optional<Gather> gather_of(const kernel::LoopKernel& kernel) {
  if (kernel.steps.size() != 2 || kernel.stores.size() != 1 || kernel.stores[0].value != 1) return std::nullopt;
  const kernel::Step &load = kernel.steps[0], &step = kernel.steps[1];
  if (load.kind != kernel::StepKind::load || step.kind != kernel::StepKind::gather || step.a != 0 ||
      load.level != kernel::Level::outer || step.level != kernel::Level::outer)
    return std::nullopt;
  const DType type = kernel.outputs[0].type, index = kernel.inputs[static_cast<std::size_t>(load.operand)].type;
  const auto bytes = static_cast<Extent>(size_bytes(type));
  if ((bytes != 4 && bytes != 8) || kernel.inputs[static_cast<std::size_t>(step.operand)].type != type ||
      step.type != type || (index != DType::i32 && index != DType::u32) || load.type != index)
    return std::nullopt;
  const kernel::View &at = load.view, &from = step.view, &to = kernel.stores[0].view;
  if (!at.bounds.empty() || !from.bounds.empty() || !to.bounds.empty()) return std::nullopt;
  const Extent line = 64 / bytes;
  if (step.axis_extent * step.axis_stride * bytes <= kSourceBytesMin ||
      step.axis_extent * line * bytes > kCopiedBytesMax)
    return std::nullopt;
  std::vector<Axis> axes;
  Extent period = kernel.outer;
  for (const Extent extent : common_extents({&at, &from, &to}, kernel.outer)) {
    period /= extent;
    const Axis axis{extent, stride_at(at, period), stride_at(from, period), stride_at(to, period)};
    Axis* const last = axes.empty() ? nullptr : &axes.back();
    if (last != nullptr && last->index == axis.index * extent && last->from == axis.from * extent &&
        last->to == axis.to * extent)
      *last = {last->extent * extent, axis.index, axis.from, axis.to};
    else
      axes.push_back(axis);
  }
  if (axes.empty()) return std::nullopt;
  const Axis columns = axes.back();
  if (columns.index != 1 || columns.from != 1 || columns.to != 1 || columns.extent < line ||
      step.axis_stride < columns.extent)
    return std::nullopt;
  axes.pop_back();
  const auto rows = std::find_if(axes.rbegin(), axes.rend(), [](const Axis& axis) { return axis.from == 0; });
  if (rows == axes.rend() || rows->extent * 4 < step.axis_extent)
    return std::nullopt;  // most of a copy would not be read
  const Axis of_rows = *rows;
  axes.erase(std::next(rows).base());
  return Gather{std::move(axes), of_rows, columns.extent, at.offset, from.offset, to.offset};
}

struct Place {
  Extent index = 0, from = 0, to = 0;
};
/// Where point `index` of these axes lies, relative to the first one.
Place place_of(const std::vector<Axis>& axes, Extent index) {
  Place place;
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    const Extent at = index % axis->extent;
    place.index += at * axis->index, place.from += at * axis->from, place.to += at * axis->to;
    index /= axis->extent;
  }
  return place;
}

template <class Word>
class ColumnGather final : public Prepared {
 public:
  ColumnGather(const kernel::LoopKernel& kernel, Gather gather)
      : name_(kernel.name),
        index_(kernel.inputs[static_cast<std::size_t>(kernel.steps[0].operand)]),
        from_(kernel.inputs[static_cast<std::size_t>(kernel.steps[1].operand)]),
        to_(kernel.outputs[0]),
        gather_(std::move(gather)),
        extent_(kernel.steps[1].axis_extent),
        stride_(kernel.steps[1].axis_stride),
        rows_(gather_.rows.extent),
        outer_(kernel.outer / (rows_ * gather_.columns)),
        streams_(kernel.outer * kSize > kStreamBytes) {
    width_ = std::clamp(kCopiedBytes / (extent_ * kSize) / kLine * kLine, kLine, kColumnsMax);
    const Extent narrow = gather_.columns * outer_ / kTasks / kLine * kLine;
    width_ = std::min(width_, std::max(narrow, kLine));
    blocks_ = (gather_.columns + width_ - 1) / width_;
    tasks_ = std::min(outer_ * blocks_, kTasks);
  }

  void bind(const Memory& memory) override {
    indices_ = reinterpret_cast<const std::uint32_t*>(memory.at(index_)) + gather_.index_offset;
    source_ = reinterpret_cast<const Word*>(memory.at(from_)) + gather_.from_offset;
    result_ = reinterpret_cast<Word*>(memory.at(to_)) + gather_.to_offset;
  }
  void run() override {
    parallel_for(tasks(0), [&](Extent task) { run_task(0, task); });
  }
  int stages() const override { return 1; }
  Extent tasks(int) const override { return tasks_; }
  void run_task(int, Extent task) override {
    thread_local ScratchBlock block;
    // At least a huge page, because the picks fall anywhere.
    const Extent copy = extent_ * width_;
    Word* near = block.as<Word>(std::max(2 * copy, (Extent{2} << 20) / kSize));
    Word* other = near + copy;
    const bool overlaps = copy * kSize <= kCopiedBytes;  // larger copies would push each other out of the second cache
    const Extent first = outer_ * blocks_ * task / tasks_, end = outer_ * blocks_ * (task + 1) / tasks_;
    for (Extent strip = first; strip < end; ++strip) {
      if (strip == first || !overlaps) run(-1, strip, nullptr, near);
      run(strip, overlaps && strip + 1 < end ? strip + 1 : -1, near, other);
      if (overlaps) std::swap(near, other);
    }
    if (streams_) fence_streams();
  }
  std::string to_string() const override {
    return fmt::format("gather down columns {}: {} rows of {} columns from {}, {} columns at a time{}\n", name_,
                       outer_ * rows_, gather_.columns, extent_, width_, streams_ ? ", past the caches" : "");
  }

 private:
  static constexpr Extent kSize = sizeof(Word), kLine = 64 / kSize;

  /// Picks a strip from `near`, and copies one to `copy`; -1: none.
  void run(Extent picked, Extent copied, const Word* near, Word* copy) const {
    ColumnGatherCall call{};
    call.extent = extent_;
    if (copied >= 0) {
      const Extent begin = copied % blocks_ * width_;
      call.from = source_ + place_of(gather_.outer, copied / blocks_).from + begin;
      call.from_row = stride_, call.copied = std::min(width_, gather_.columns - begin), call.copy = copy;
    }
    if (picked >= 0) {
      const Extent begin = picked % blocks_ * width_;
      const Place place = place_of(gather_.outer, picked / blocks_);
      call.near = near, call.indices = indices_ + place.index + begin, call.index_row = gather_.rows.index;
      call.rows = rows_, call.width = std::min(width_, gather_.columns - begin);
      call.to = result_ + place.to + begin, call.to_row = gather_.rows.to, call.streams = streams_;
    }
    (kSize == 4 ? tile_table().column_gather32 : tile_table().column_gather64)(call);
  }

  std::string name_;
  kernel::Operand index_, from_, to_;
  Gather gather_;
  Extent extent_, stride_;  // of the source's axis
  Extent rows_, outer_;
  bool streams_;
  Extent width_ = 1, blocks_ = 1;  // columns of a strip, and strips along a row
  Extent tasks_ = 1;
  const std::uint32_t* indices_ = nullptr;
  const Word* source_ = nullptr;
  Word* result_ = nullptr;
};

}  // namespace

std::unique_ptr<Prepared> prepare_column_gather(const kernel::LoopKernel& kernel) {
  std::optional<Gather> gather = gather_of(kernel);
  if (!gather) return nullptr;
  if (size_bytes(kernel.outputs[0].type) == 4)
    return std::make_unique<ColumnGather<std::uint32_t>>(kernel, *std::move(gather));
  return std::make_unique<ColumnGather<std::uint64_t>>(kernel, *std::move(gather));
}

}  // namespace weft::cpu
