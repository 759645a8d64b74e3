// Chooses a layout: the direction of memory, lanes of a row, values that stay in registers, chunks of long rows.
#include "backend/webgpu/wgsl/reduction/writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace weft::webgpu {
using kernel::Level;
using kernel::LoopKernel;
using kernel::Step;
using kernel::StepKind;
using scalar::Reduction;

namespace {

constexpr int kLongRowThreads = 1024;  // of a workgroup with a long row, if the device allows this many
constexpr Extent kLongRow = 16;        // items of a row for each of those threads
constexpr Extent kSlotsMax = 8;        // parts of a row in the registers of one thread
constexpr Extent kSlotsMaxRolled = 2;  // the same for short text
constexpr Extent kRegistersMax = 96;   // values kept across passes by one thread
constexpr Extent kRegistersFew = 32;   // the same where a workgroup has more than 512 threads
constexpr Extent kSectorColumns = 16;  // neighbouring columns that memory reads together
constexpr Extent kSlotsSplit = 64;     // parts of a row per thread: fewer cost less than a second dispatch
constexpr Extent kSlotsChunk = 4;      // minimum for each thread in a chunk
constexpr Extent kStripRows = 32;      // neighbouring threads of a workgroup on columns that are split over workgroups
constexpr Extent kStripsLeast = 3;     // fewer would need very many chunks
}  // namespace

int ReductionWriter::vector_accesses(const ReductionLayout& layout) const {
  Bindings bindings(target_, kernel_.name);
  Helpers helpers;
  return StepWriter(kernel_, bindings, helpers, outer_space(layout), inner_space(layout)).vector_accesses();
}

bool ReductionWriter::memory_runs_along_outer() const {
  // The larger operands decide the direction.
  Extent along_inner = 0, along_outer = 0;
  const auto count = [&](const kernel::View& view, const kernel::Operand& operand) {
    const Space inner{{{"r", kernel_.outer}, {"j", kernel_.inner}}, 1},
        outer{{{"r", kernel_.outer}, {"j", kernel_.inner}}, 0};
    if (Index(view, inner).lane_stride() == 1) along_inner += operand.count;
    if (kernel_.outer > 1 && Index(view, outer).lane_stride() == 1) along_outer += operand.count;
  };
  for (std::size_t s = 0; s < kernel_.steps.size(); ++s) {
    const Step& step = kernel_.steps[s];
    if (needed_[s] && step.level == Level::inner && (step.kind == StepKind::load || step.kind == StepKind::gather))
      count(step.view, kernel_.inputs[static_cast<std::size_t>(step.operand)]);
  }
  for (const kernel::Store& store : kernel_.stores)
    if (kernel_.steps[static_cast<std::size_t>(store.value)].level == Level::inner)
      count(store.view, kernel_.outputs[static_cast<std::size_t>(store.output)]);
  return along_outer > along_inner;
}

int ReductionWriter::kept_values() const {
  int kept = 0;
  for (int pass = 0; pass + 1 < passes_.count; ++pass) {
    int now = 0;
    for (std::size_t s = 0; s < kernel_.steps.size(); ++s)
      if (passes_.first[s] >= 0 && passes_.first[s] <= pass && passes_.last[s] > pass &&
          kernel_.steps[s].kind != StepKind::constant)
        ++now;
    kept = std::max(kept, now);
  }
  return kept;
}

bool ReductionWriter::can_split() const {
  return shares_ || std::none_of(kernel_.stores.begin(), kernel_.stores.end(),
                                 [&](const kernel::Store& store) { return is_later(store.value); });
}

// More threads for a row, so that they can keep it: then it is read once, and not in every pass.
void ReductionWriter::keep_columns() {
  const Extent kept = static_cast<Extent>(kept_values()) * layout_.width * kSlotsMax;
  const auto lanes =
      static_cast<Extent>(std::bit_ceil(static_cast<std::uint64_t>(divide_up(layout_.items, kSlotsMax))));
  const Extent threads = std::max<Extent>(lanes * (kSectorColumns / layout_.width), kReductionThreads);
  const Extent words = threads * layout_.width * 2;  // to join two numbers of each thread through workgroup memory
  const bool reads_again = std::any_of(passes_.store.begin(), passes_.store.end(), [](int pass) { return pass > 0; });
  if (!reads_again || lanes <= layout_.lanes || kept > (threads > 512 ? kRegistersFew : kRegistersMax) ||
      threads > std::min<Extent>(kLongRowThreads, target_.limits.workgroup_invocations) ||
      words * 4 > Extent{target_.limits.workgroup_bytes})
    return;
  layout_.lanes = static_cast<int>(lanes);
  layout_.threads = static_cast<int>(threads);
}

bool ReductionWriter::fills_units() const {
  constexpr double kLeast = 0.8;
  const Extent groups = divide_up(layout_.rows, layout_.rows_per_group()), units = target_.profile.compute_units;
  return !layout_.columns && stores_later_values() &&
         static_cast<double>(groups) >= kLeast * static_cast<double>(divide_up(groups, units) * units);
}

void ReductionWriter::choose_layout() {
  ReductionLayout& layout = layout_;
  layout.items = layout.columns ? kernel_.inner : kernel_.inner / layout.width;
  layout.rows = layout.columns ? kernel_.outer / layout.width : kernel_.outer;
  const Extent busy_threads = Extent{target_.profile.compute_units} * 1024;
  const auto lanes_for = [](Extent wanted, int most) {
    return static_cast<int>(std::bit_ceil(static_cast<std::uint64_t>(std::clamp<Extent>(wanted, 1, most))));
  };
  if (layout.columns) {
    // At least 64 bytes of neighbours, or all of them, so that memory is read in whole sectors. Memory is faster where there are
    // more neighbours, if chunks can make up for the fewer workgroups.
    const bool strips = target_.unroll && can_split() && layout.rows >= kStripRows * kStripsLeast;
    const Extent wanted = std::min(divide_up(busy_threads, layout.rows), divide_up(layout.items, 4));
    const int most = static_cast<int>(kReductionThreads /
                                      std::bit_ceil(static_cast<std::uint64_t>(
                                          strips ? kStripRows : std::min<Extent>(layout.rows, 16 / layout.width))));
    layout.lanes = lanes_for(wanted, target_.unroll ? most : std::min(most, kSerialPartsMax));
    if (target_.unroll && !can_split()) keep_columns();
  } else {
    // A subgroup for each row if four items per thread suffice; many short rows take fewer lanes each.
    const Extent subgroup = target_.subgroup_size ? target_.subgroup_size : 32;
    if (layout.items <= 4 * subgroup) {
      layout.lanes = lanes_for(layout.rows >= busy_threads ? divide_up(layout.items, 4) : layout.items,
                               static_cast<int>(subgroup));
    } else {
      layout.lanes = lanes_for(divide_up(layout.items, 4), kReductionThreads);
      // Few long rows: only more threads per row keep a compute unit busy.
      if (target_.unroll && !can_split() && layout.rows <= 2 * Extent{target_.profile.compute_units} &&
          layout.items >= kLongRow * kLongRowThreads && target_.limits.workgroup_invocations >= kLongRowThreads)
        layout.lanes = layout.threads = kLongRowThreads;
    }
  }
  const Extent kept = static_cast<Extent>(kept_values()) * layout.width * layout.slots();
  layout.registers =
      kinds_.empty() && layout.slots() <= (target_.unroll ? kSlotsMax : kSlotsMaxRolled) && kept <= kRegistersMax;

  const Extent groups = divide_up(layout.rows, layout.rows_per_group());
  const Extent enough = 2 * Extent{target_.profile.compute_units};
  const bool few = groups < enough && layout.slots() >= kSlotsSplit;
  if (can_split() && (few || (shares_ && layout.columns))) {
    const Extent chunks = std::min(std::max<Extent>(divide_up(2 * enough, groups), 2), layout.slots() / kSlotsChunk);
    if (chunks > 1) {
      // The last chunk must not be empty.
      layout.chunks = divide_up(layout.items, divide_up(layout.items, chunks));
      layout.registers = false;
    }
  }
}

}  // namespace weft::webgpu
