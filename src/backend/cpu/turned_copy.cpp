// A task takes some neighbouring rows of the source and reads them from end to end, because memory is fastest in long runs. It
// transposes them in registers and writes whole cache lines, which may lie far apart.
#include "backend/cpu/turned_copy.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "backend/cpu/common_extents.hpp"
#include "backend/cpu/run_writer.hpp"
#include "base/threads.hpp"

namespace weft::cpu {
namespace {

constexpr Extent kElementsMin = 1 << 14;  // less is in the nearest cache
constexpr Extent kSideMin = 16;           // of the transposed matrices
constexpr Extent kTogether = 2048;        // elements of a row, before the next rows
constexpr Extent kTaskElements = 1 << 16;
constexpr Extent kTasksMin = 16;

struct Axis {
  Extent extent, from, to;  // strides
};

struct Turn {
  std::vector<Axis> outer, inner;  // axes around the rows, and within them; outermost first
  Axis across, along;              // contiguous in the result, and in the source
  Extent from_offset, to_offset;
};

std::optional<Turn> turn_of(const kernel::LoopKernel& kernel) {
  if (kernel.steps.size() != 1 || kernel.stores.size() != 1 || kernel.outer < kElementsMin) return std::nullopt;
  const kernel::Step& step = kernel.steps[0];
  if (step.kind != kernel::StepKind::load || step.level != kernel::Level::outer) return std::nullopt;
  const kernel::View &from = step.view, &to = kernel.stores[0].view;
  const auto bytes = size_bytes(step.type);
  if ((bytes != 4 && bytes != 8) || !from.bounds.empty() || !to.bounds.empty() ||
      kernel.inputs[static_cast<std::size_t>(step.operand)].type != step.type || kernel.outputs[0].type != step.type)
    return std::nullopt;
  std::vector<Axis> axes;
  Extent period = kernel.outer;
  for (const Extent extent : common_extents({&from, &to}, kernel.outer)) {
    period /= extent;
    const Axis axis{extent, stride_at(from, period), stride_at(to, period)};
    if (!axes.empty() && axes.back().from == axis.from * extent && axes.back().to == axis.to * extent)
      axes.back() = {axes.back().extent * extent, axis.from, axis.to};
    else
      axes.push_back(axis);
  }
  const auto contiguous = [&](Extent Axis::*stride) {
    return std::find_if(axes.begin(), axes.end(), [&](const Axis& a) { return a.*stride == 1 && a.extent > 1; });
  };
  const auto across = contiguous(&Axis::to), along = contiguous(&Axis::from);
  if (across == axes.end() || along == axes.end() || across == along || across->extent < kSideMin ||
      along->extent < kSideMin)
    return std::nullopt;
  if (std::any_of(axes.begin(), axes.end(), [](const Axis& a) { return a.from < 1 || a.to < 1; })) return std::nullopt;
  Turn turn{{}, {}, *across, *along, from.offset, to.offset};
  for (auto axis = axes.begin(); axis != axes.end(); ++axis)
    if (axis != across && axis != along) (axis->from < across->from ? turn.inner : turn.outer).push_back(*axis);
  // Rows are read from their beginning to their end.
  std::sort(turn.inner.begin(), turn.inner.end(), [](const Axis& a, const Axis& b) { return a.from > b.from; });
  return turn;
}

Extent count_of(const std::vector<Axis>& axes) {
  Extent count = 1;
  for (const Axis& axis : axes) count *= axis.extent;
  return count;
}

/// Where point `index` of these axes lies: from the first element of the source, and of the result.
std::pair<Extent, Extent> place_of(const std::vector<Axis>& axes, Extent index) {
  Extent from = 0, to = 0;
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    from += index % axis->extent * axis->from;
    to += index % axis->extent * axis->to;
    index /= axis->extent;
  }
  return {from, to};
}

class TurnedCopy final : public Prepared {
 public:
  TurnedCopy(const kernel::LoopKernel& kernel, Turn turn)
      : name_(kernel.name),
        from_(kernel.inputs[static_cast<std::size_t>(kernel.steps[0].operand)]),
        to_(kernel.outputs[0]),
        turn_(std::move(turn)),
        size_(static_cast<Extent>(size_bytes(from_.type))),
        streams_(kernel.outer * size_ > kStreamBytes) {
    // Two cache lines of each row of the result, if there is work for all threads then.
    const Extent line = 64 / size_, all = turn_.across.extent;
    rows_ = count_of(turn_.outer) * (all / (2 * line)) >= kTasksMin ? 2 * line : line;
    groups_ = (all + rows_ - 1) / rows_;
    within_ = count_of(turn_.inner);
    const Extent of_rows = rows_ * within_ * turn_.along.extent;
    parts_ = 1;
    if (count_of(turn_.outer) * groups_ < kTasksMin)
      parts_ = std::clamp<Extent>(turn_.along.extent / (4 * line), 1, std::max<Extent>(1, of_rows / kTaskElements));
    units_ = count_of(turn_.outer) * groups_ * parts_;
    each_ = std::max<Extent>(1, kTaskElements * parts_ / of_rows);
  }

  void bind(const Memory& memory) override {
    source_ = memory.at(from_) + turn_.from_offset * size_;
    result_ = memory.at(to_) + turn_.to_offset * size_;
  }
  void run() override {
    parallel_for(tasks(0), [&](Extent task) { run_task(0, task); });
  }
  int stages() const override { return 1; }
  Extent tasks(int) const override { return (units_ + each_ - 1) / each_; }
  void run_task(int, Extent task) override {
    // Each call is made when it is known what the next one reads.
    const auto turn = size_ == 4 ? tile_table().turn32 : tile_table().turn64;
    std::optional<TurnCall> before;
    const auto add = [&](const TurnCall& call) {
      if (before) {
        if (before->rows <= call.rows) before->next = call.from;
        turn(*before);
      }
      before = call;
    };
    for (Extent unit = task * each_; unit < std::min((task + 1) * each_, units_); ++unit) add_unit(unit, add);
    if (before) turn(*before);
    if (streams_) fence_streams();
  }
  std::string to_string() const override {
    return fmt::format("transposed copy {}: {} x {} of {} rows, {} at a time{}\n", name_, turn_.along.extent, within_,
                       turn_.across.extent * count_of(turn_.outer), rows_, streams_ ? ", past the caches" : "");
  }

 private:
  /// Calls add(call) for the transpositions of a unit.
  template <class Add>
  void add_unit(Extent unit, Add add) const {
    const Extent part = unit % parts_, group = unit / parts_ % groups_, line = 64 / size_;
    const auto [from, to] = place_of(turn_.outer, unit / parts_ / groups_);
    const auto edge = [&](Extent p) {
      return p == parts_ ? turn_.along.extent : turn_.along.extent * p / parts_ / line * line;
    };
    const Extent row = group * rows_, rows = std::min(rows_, turn_.across.extent - row), end = edge(part + 1);
    for (Extent i = 0; i < within_; ++i) {
      const auto [from_inner, to_inner] = place_of(turn_.inner, i);
      for (Extent column = edge(part); column < end; column += kTogether)
        add({source_ + (from + from_inner + row * turn_.across.from + column) * size_, turn_.across.from,
             result_ + (to + to_inner + row + column * turn_.along.to) * size_, turn_.along.to, rows,
             std::min(kTogether, end - column), streams_});
    }
  }

  std::string name_;
  kernel::Operand from_, to_;
  Turn turn_;
  Extent size_;  // of an element, in bytes
  bool streams_;
  Extent rows_ = 1, groups_ = 1;  // rows of a unit of work, and units along their axis
  Extent within_ = 1, parts_ = 1;
  Extent units_ = 1, each_ = 1;  // units, and those of a task
  const char* source_ = nullptr;
  char* result_ = nullptr;
};

}  // namespace

std::unique_ptr<Prepared> prepare_turned_copy(const kernel::LoopKernel& kernel) {
  std::optional<Turn> turn = turn_of(kernel);
  if (!turn) return nullptr;
  return std::make_unique<TurnedCopy>(kernel, *std::move(turn));
}

}  // namespace weft::cpu
