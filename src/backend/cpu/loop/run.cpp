// Loop programs as tasks: blocks, or parts of the inner axis whose accumulators are joined.
#include <algorithm>
#include <atomic>

#include "backend/cpu/loop/accumulators.hpp"
#include "backend/cpu/loop/chain_calls.inc.hpp"
#include "backend/cpu/loop/gathers.inc.hpp"
#include "backend/cpu/loop/loads.inc.hpp"
#include "backend/cpu/loop/runner.inc.hpp"
#include "backend/cpu/loop/stores.inc.hpp"
#include "base/threads.hpp"

namespace weft::cpu {

int LoopProgram::stages() const { return totals_ ? static_cast<int>(totals_->phases.size()) : 1; }

Extent LoopProgram::tasks(int) const {
  const Code& code = *code_;
  const Extent blocks = code.blocks();
  return totals_ ? blocks * totals_->parts : (blocks + code.blocks_per_task - 1) / code.blocks_per_task;
}

void LoopProgram::start() const {
  if (totals_) totals_->ended.store(0, std::memory_order_relaxed);
}

void LoopProgram::run_task(const LoopBinding& binding, int stage, Extent task) const {
  if (totals_) return run_part(binding, stage, task);
  const Code& code = *code_;
  LoopRunner runner(code, binding);
  const Extent end = std::min((task + 1) * code.blocks_per_task, code.blocks());
  for (Extent b = task * code.blocks_per_task; b < end; ++b) {
    const Code::Range rows = code.block_range(b);
    runner.whole_block(rows.begin, rows.end);
  }
  runner.fence();
}

/// One phase of one block over a part of the inner axis. The last task of a phase joins the accumulators of all parts, in
/// their order.
void LoopProgram::run_part(const LoopBinding& binding, int stage, Extent task) const {
  const Code& code = *code_;
  Totals& t = *totals_;
  const auto p = static_cast<std::size_t>(t.phases[static_cast<std::size_t>(stage)]);
  const Phase& phase = code.phases[p];
  const Extent blocks = code.blocks(), b = task % blocks, k = task / blocks;
  const auto count = static_cast<std::size_t>(code.outer);
  LoopRunner runner(code, binding);
  // Outer-level code up to a phase, from the totals of those before it.
  const auto begin_block = [&](Extent block, std::size_t last) {
    const auto [begin, end] = code.block_range(block);
    runner.set_block(begin, end);
    for (std::size_t q = 0; q <= last; ++q) {
      runner.outer_code(code.phases[q]);
      if (q == last) break;
      for (const int r : code.phases[q].reductions) {
        const ReductionInfo& info = code.reductions[static_cast<std::size_t>(r)];
        const std::size_t at = static_cast<std::size_t>(r) * count + static_cast<std::size_t>(begin);
        std::copy_n(t.totals.begin() + static_cast<Extent>(at), end - begin, runner.accumulators(info));
        if (info.has_positions())
          std::copy_n(t.total_positions.begin() + static_cast<Extent>(at), end - begin, runner.positions(info));
      }
      runner.finish_reductions(code.phases[q]);
    }
  };
  begin_block(b, p);
  runner.start_reductions(phase);
  runner.chunks(phase, k * t.part, std::min((k + 1) * t.part, code.inner));
  const std::size_t here = phase.reductions.size();
  const Code::Range rows = code.block_range(b);
  const Extent begin = rows.begin, n = rows.end - rows.begin;
  for (std::size_t r = 0; r < here; ++r) {
    const ReductionInfo& info = code.reductions[static_cast<std::size_t>(phase.reductions[r])];
    const Extent at = (k * static_cast<Extent>(here) + static_cast<Extent>(r)) * code.outer + begin;
    std::copy_n(runner.accumulators(info), n, t.partial.begin() + at);
    if (info.has_positions()) std::copy_n(runner.positions(info), n, t.partial_positions.begin() + at);
  }
  runner.fence();

  if (t.ended.fetch_add(1, std::memory_order_acq_rel) + 1 < blocks * t.parts) return;
  t.ended.store(0, std::memory_order_relaxed);
  for (std::size_t r = 0; r < here; ++r) {
    const ReductionInfo& info = code.reductions[static_cast<std::size_t>(phase.reductions[r])];
    const auto index = static_cast<std::size_t>(phase.reductions[r]) * count;
    double* totals = t.totals.data() + index;
    std::int64_t* positions = t.total_positions.data() + index;
    for (std::size_t part = 0; part < static_cast<std::size_t>(t.parts); ++part) {
      const std::size_t at = (part * here + r) * count;
      if (part == 0) {
        std::copy_n(t.partial.data() + at, count, totals);
        if (info.has_positions()) std::copy_n(t.partial_positions.data() + at, count, positions);
      } else {
        const Extent before = static_cast<Extent>(part) * t.part;
        join_accumulators(info, count, totals, positions, t.partial.data() + at, t.partial_positions.data() + at,
                          before, std::min(t.part, code.inner - before));
      }
    }
  }
  if (stage + 1 < stages() || code.last.inner.empty()) return;
  for (Extent block = 0; block < blocks; ++block) {
    begin_block(block, code.phases.size() - 1);
    runner.last_code();
  }
}

void LoopProgram::run(const LoopBinding& binding) const {
  start();
  for (int stage = 0; stage < stages(); ++stage) {
    const Extent count = tasks(stage);
    const auto task = [&](Extent i) { run_task(binding, stage, i); };
    if (count == 1)
      task(0);
    else
      parallel_for(count, task);
  }
}

bool LoopProgram::takes_product_rows(Extent columns) const {
  const Code& code = *code_;
  for (const Value& value : code.values)
    if (value.place == Place::memory && value.operand < 0 &&
        (code.columns || value.access.offset != 0 || Access::stride(value.access.fast) != 1 ||
         Access::stride(value.access.slow) != columns))
      return false;
  const auto none_copied = [](const std::vector<LoopInstruction>& list) {
    return std::none_of(list.begin(), list.end(), [](const LoopInstruction& in) {
      return (in.action == Action::fetch || in.action == Action::gather) && in.operand < 0;
    });
  };
  return none_copied(code.last.inner) && std::all_of(code.phases.begin(), code.phases.end(), [&](const Phase& phase) {
           return none_copied(phase.outer) && none_copied(phase.inner);
         });
}

void LoopProgram::run_rectangle(const LoopBinding& binding, Extent row_begin, Extent row_end, Extent column_begin,
                                Extent column_end) const {
  const Code& code = *code_;
  LoopRunner runner(code, binding);
  const Extent width = std::clamp<Extent>(column_end - column_begin, 1, code.chunk);
  const Extent rows = std::clamp<Extent>(code.tile / width, 1, code.block);
  for (Extent begin = row_begin; begin < row_end; begin += rows) {
    runner.set_block(begin, std::min(begin + rows, row_end));
    runner.outer_code(code.phases[0]);
    runner.chunks(code.phases[0], column_begin, column_end);
  }
  runner.fence();
}

}  // namespace weft::cpu
