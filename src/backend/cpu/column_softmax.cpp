// A task has some strips of neighbouring columns. It reads a strip and keeps its terms in the second cache, while it writes the
// results of the strip before: reads, exponentials and writes overlap.
#include "backend/cpu/column_softmax.hpp"

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

using kernel::Level;
using kernel::Step;
using kernel::StepKind;
using scalar::Op;

constexpr Extent kElementsMin = 1 << 16;   // fewer are in a near cache
constexpr Extent kKeptBytes = 640 << 10;   // of a strip, in the second cache
constexpr Extent kKeptBytesMax = 2 << 20;  // of the narrowest one
constexpr Extent kLine = 16;               // floats
constexpr Extent kColumnsMin = 2 * kLine;  // memory is slow in shorter pieces
constexpr Extent kColumnsMax = 16 * kLine;
constexpr Extent kTasks = 16;

struct Axis {
  Extent extent, from, to;  // strides
};

/// Softmax along `rows` of [outer, rows, columns].
struct Softmax {
  std::vector<Axis> outer;  // outermost first
  Axis rows;
  Extent columns;
  Extent from_offset, to_offset;
  bool is_log;
};

/// Reads exp(x - max(x)) / sum(exp(x - max(x))) or x - max(x) - log(sum(exp(x - max(x)))), as graph/ops/ writes them, backwards.
class Reader {
 public:
  explicit Reader(const kernel::LoopKernel& kernel) : kernel_(kernel) {}

  /// The index of the load, and whether it is the logarithm.
  std::optional<std::pair<int, bool>> read(int value) const {
    const Step& last = step(value);
    if (last.kind != StepKind::map) return std::nullopt;
    const bool is_log = last.op == Op::sub;
    int term = -1;  // exp(x - max)
    if (is_log) {
      const int logarithm = operand(last.b, Op::log);
      term = logarithm < 0 ? -1 : sum_of(step(logarithm).a);
      if (term < 0 || step(term).a != last.a) return std::nullopt;
    } else {
      if (last.op != Op::mul) return std::nullopt;
      const int inverse = operand(last.b, Op::div);
      if (inverse < 0 || step(step(inverse).a).kind != StepKind::constant || step(step(inverse).a).value != 1)
        return std::nullopt;
      term = sum_of(step(inverse).b);
      if (term < 0 || term != last.a) return std::nullopt;
    }
    const int difference = operand(step(term).a, Op::sub);
    if (difference < 0) return std::nullopt;
    const int x = step(difference).a;
    const Step& most = step(step(difference).b);
    if (most.kind != StepKind::reduce || most.reduction != scalar::Reduction::max || most.a != x ||
        step(x).kind != StepKind::load || step(x).level != Level::inner)
      return std::nullopt;
    return std::pair{x, is_log};
  }

 private:
  const Step& step(int index) const { return kernel_.steps[static_cast<std::size_t>(index)]; }
  int operand(int index, Op op) const { return step(index).kind == StepKind::map && step(index).op == op ? index : -1; }
  /// The exponential that step `index` is the sum of.
  int sum_of(int index) const {
    const Step& sum = step(index);
    if (sum.kind != StepKind::reduce || sum.reduction != scalar::Reduction::sum) return -1;
    return operand(sum.a, Op::exp);
  }

  const kernel::LoopKernel& kernel_;
};

std::optional<Softmax> softmax_of(const kernel::LoopKernel& kernel) {
  if (kernel.stores.size() != 1 || kernel.inputs.size() != 1 || kernel.outer * kernel.inner < kElementsMin)
    return std::nullopt;
  const auto is_f32 = [](const auto& typed) { return typed.type == DType::f32; };
  if (!is_f32(kernel.inputs[0]) || !is_f32(kernel.outputs[0]) || !std::ranges::all_of(kernel.steps, is_f32))
    return std::nullopt;
  const auto found = Reader(kernel).read(kernel.stores[0].value);
  if (!found) return std::nullopt;
  const kernel::View &from = kernel.steps[static_cast<std::size_t>(found->first)].view, &to = kernel.stores[0].view;
  if (!from.bounds.empty() || !to.bounds.empty()) return std::nullopt;
  std::vector<Axis> axes;
  Extent period = kernel.outer * kernel.inner;
  for (const Extent extent : common_extents({&from, &to}, period)) {
    period /= extent;
    const Axis axis{extent, stride_at(from, period), stride_at(to, period)};
    Axis* const last = axes.empty() || period * extent == kernel.inner ? nullptr : &axes.back();
    if (last != nullptr && last->from == axis.from * extent && last->to == axis.to * extent)
      *last = {last->extent * extent, axis.from, axis.to};
    else
      axes.push_back(axis);
  }
  if (axes.size() < 2 || axes.back().extent != kernel.inner) return std::nullopt;
  const Axis rows = axes.back(), columns = axes[axes.size() - 2];
  axes.resize(axes.size() - 2);
  // Where rows end within cache lines, results of this size would be read before they are written.
  const bool streams = kernel.outer * kernel.inner * 4 > kStreamBytes;
  if (streams && (rows.to % kLine != 0 || columns.extent % kLine != 0)) return std::nullopt;
  if (columns.from != 1 || columns.to != 1 || columns.extent < kColumnsMin ||
      column_softmax_bytes(rows.extent, kColumnsMin) > kKeptBytesMax)
    return std::nullopt;
  return Softmax{std::move(axes), rows, columns.extent, from.offset, to.offset, found->second};
}

class ColumnSoftmax final : public Prepared {
 public:
  ColumnSoftmax(const kernel::LoopKernel& kernel, Softmax softmax)
      : name_(kernel.name), from_(kernel.inputs[0]), to_(kernel.outputs[0]), softmax_(std::move(softmax)) {
    const Extent rows = softmax_.rows.extent, columns = softmax_.columns, size = kernel.outer * rows;
    width_ = std::clamp(kKeptBytes / (column_softmax_bytes(rows, kLine)) * kLine, kColumnsMin, kColumnsMax);
    width_ = std::min(width_, std::max(kernel.outer / kTasks / kLine * kLine, kColumnsMin));
    // The last strip takes what is left, if that is narrower than a vector.
    along_ = (columns + width_ - 1) / width_;
    if (along_ > 1 && columns - (along_ - 1) * width_ < kLine) --along_;
    strips_ = kernel.outer / columns * along_;
    tasks_ = std::min(strips_, kTasks);
    streams_ = size * 4 > kStreamBytes;
  }

  void bind(const Memory& memory) override {
    source_ = reinterpret_cast<const float*>(memory.at(from_)) + softmax_.from_offset;
    result_ = reinterpret_cast<float*>(memory.at(to_)) + softmax_.to_offset;
    lines_whole_ = reinterpret_cast<std::uintptr_t>(result_) % 64 == 0 && softmax_.rows.to % kLine == 0 &&
                   softmax_.columns % kLine == 0 &&
                   std::ranges::all_of(softmax_.outer, [](const Axis& axis) { return axis.to % kLine == 0; });
  }
  void run() override {
    parallel_for(tasks(0), [&](Extent task) { run_task(0, task); });
  }
  int stages() const override { return 1; }
  Extent tasks(int) const override { return tasks_; }
  void run_task(int, Extent task) override {
    std::vector<SoftmaxStrip> strips;
    Extent widest = 0;
    for (Extent strip = strips_ * task / tasks_; strip < strips_ * (task + 1) / tasks_; ++strip) {
      const Extent column = strip % along_ * width_;
      const Extent width = strip % along_ == along_ - 1 ? softmax_.columns - column : width_;
      Extent from = column, to = column, index = strip / along_;
      for (auto axis = softmax_.outer.rbegin(); axis != softmax_.outer.rend(); ++axis) {
        from += index % axis->extent * axis->from, to += index % axis->extent * axis->to;
        index /= axis->extent;
      }
      strips.push_back({source_ + from, result_ + to, width});
      widest = std::max(widest, width);
    }
    thread_local ScratchBlock block;
    const Extent rows = softmax_.rows.extent;
    block.grow(std::max<Extent>(column_softmax_bytes(rows, widest), 2 << 20));  // a huge page
    const bool streams = streams_ && lines_whole_;
    tile_table().column_softmax({strips.data(), static_cast<Extent>(strips.size()), rows, softmax_.rows.from,
                                 softmax_.rows.to, widest, block.data(), softmax_.is_log, streams});
    if (streams) fence_streams();
  }
  std::string to_string() const override {
    return fmt::format("softmax down columns {}{}: {} rows of {} columns, {} columns at a time{}\n", name_,
                       softmax_.is_log ? ", logarithm" : "", softmax_.rows.extent, softmax_.columns, width_,
                       streams_ ? ", past the caches" : "");
  }

 private:
  std::string name_;
  kernel::Operand from_, to_;
  Softmax softmax_;
  Extent width_ = 1, along_ = 1;  // columns of a strip but for the last, and strips along a row
  Extent strips_ = 1, tasks_ = 1;
  bool streams_ = false, lines_whole_ = false;
  const float* source_ = nullptr;
  float* result_ = nullptr;
};

}  // namespace

std::unique_ptr<Prepared> prepare_column_softmax(const kernel::LoopKernel& kernel) {
  std::optional<Softmax> softmax = softmax_of(kernel);
  if (!softmax) return nullptr;
  return std::make_unique<ColumnSoftmax>(kernel, *std::move(softmax));
}

}  // namespace weft::cpu
