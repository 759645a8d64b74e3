// Calls of chains: where the rows of a tile are for their machine code. Included by run.cpp alone.
#pragma once

#include <algorithm>

#include "backend/cpu/loop/accumulators.hpp"
#include "backend/cpu/loop/runner.hpp"

namespace weft::cpu {

inline void LoopRunner::chain(const LoopInstruction& in) const {
  const LoopChain& chain = code_.chains[static_cast<std::size_t>(in.chain)];
  if (!chain.reduces_columns) return chain_rows(in, chain, 0, slow_);
  // f32 sums stay short before they widen, as in `reduce_slow`.
  constexpr Extent kGroup = 32;
  const auto each_reduction = [&](auto visit) {
    for (const LoopChain::Place& place : chain.places)
      if (place.reduction >= 0) visit(code_.reductions[static_cast<std::size_t>(place.reduction)]);
  };
  for (Extent first = 0; first < slow_; first += kGroup) {
    each_reduction([&](const ReductionInfo& info) {
      std::fill_n(partials(info), fast_, static_cast<float>(empty_value(info.reduction, DType::f32)));
    });
    chain_rows(in, chain, first, std::min(kGroup, slow_ - first));
    each_reduction([&](const ReductionInfo& info) {
      TileReduction one;
      one.arg.data = partials(info);
      one.fast = fast_;
      one.accumulators = accumulators(info);
      tile_table().reduce_slow[static_cast<std::size_t>(info.reduction)][static_cast<std::size_t>(DType::f32)](one);
    });
  }
}

inline void LoopRunner::chain_rows(const LoopInstruction& in, const LoopChain& chain, Extent first, Extent rows) const {
  const bool column = in.slow && !in.fast;
  const Extent lanes = column ? slow_ : in.fast ? fast_ : 1;
  ChainCall call;
  call.rows = in.slow && in.fast ? rows : 1;
  bool dense = call.rows > 1 && chain.folds.empty() && !chain.reduces_columns, aligned = true;
  std::size_t i = 0;
  for (const LoopChain::Place& place : chain.places) {
    ChainCall::Place& to = call.places[i++];
    bool varies = true;
    if (place.is_next) {
      to = next_block_of(code_.values[static_cast<std::size_t>(place.value.value)]);
    } else if (place.reduction >= 0) {
      to = {reinterpret_cast<char*>(partials(code_.reductions[static_cast<std::size_t>(place.reduction)])), 0};
    } else if (place.access >= 0) {
      const Access& access = code_.accesses[static_cast<std::size_t>(place.access)];
      to.data = binding_.outputs[static_cast<std::size_t>(place.output)] +
                (access.row_offset(s0_) + access.fast_offset(f0_)) * place.value.bytes;
      to.row = access.slow_stride() * place.value.bytes;
      if (place.streams)
        aligned =
            aligned && (reinterpret_cast<std::uintptr_t>(to.data) | static_cast<std::uintptr_t>(to.row)) % 64 == 0;
    } else {
      const Slot& slot = slots_[place.value.value];
      to.data = slot.data;
      to.row = place.value.slow ? slot.stride : 0;
      varies = column ? place.value.slow : place.value.fast;
    }
    to.data += first * to.row;
    dense = dense && to.row == (varies ? lanes * place.value.bytes : 0);
  }
  const Extent count = dense ? lanes * call.rows : lanes;
  if (dense) call.rows = 1;
  call.whole = count / kChainLanes * kChainVectorBytes;
  call.fours = count / (4 * kChainLanes) * 4 * kChainVectorBytes;
  call.rest = (1 << count % kChainLanes) - 1;
  for (std::size_t f = 0; f < chain.folds.size(); ++f)
    call.folds[f] = accumulators(code_.reductions[static_cast<std::size_t>(chain.folds[f])]);
  (aligned || !chain.unaligned ? chain.code : *chain.unaligned).run(call);
}

inline ChainCall::Place LoopRunner::next_block_of(const Value& value) const {
  const Extent row = outer_end_ < code_.outer ? outer_end_ + s0_ - outer_begin_ : s0_;
  const char* base = binding_.inputs[static_cast<std::size_t>(value.operand)];
  return {const_cast<char*>(base) +
              (value.access.row_offset(row) + value.access.fast_offset(f0_)) * static_cast<Extent>(sizeof(float)),
          value.access.slow_stride() * static_cast<Extent>(sizeof(float))};
}

}  // namespace weft::cpu
