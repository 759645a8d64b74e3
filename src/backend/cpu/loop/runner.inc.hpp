// Blocks, chunks and phases of a loop program, and the instructions that compute. Included by run.cpp alone.
#pragma once

#include "backend/cpu/loop/runner.hpp"

#include <algorithm>
#include <cstring>

#include "backend/cpu/loop/accumulators.hpp"
#include "backend/cpu/scratch_block.hpp"
#include "tensor/element.hpp"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace weft::cpu {

inline LoopRunner::LoopRunner(const Code& code, const LoopBinding& binding) : code_(code), binding_(binding) {
  thread_local ScratchBlock frame;  // the registers of the loop that this thread runs
  const auto slots = static_cast<Extent>(code.values.size() * sizeof(Slot));
  frame_ = frame.as<char>(code.frame_bytes + slots + 64);
  slots_ = reinterpret_cast<Slot*>(frame_ + code.frame_bytes);
  for (std::size_t v = 0; v < code.values.size(); ++v)
    if (code.values[v].place == Place::constant)
      slots_[v] = {const_cast<char*>(code.constants.data()) + code.values[v].offset, 0};
}

inline void LoopRunner::set_block(Extent begin, Extent end) {
  outer_begin_ = begin;
  outer_end_ = end;
  (code_.columns ? f0_ : s0_) = begin;
  (code_.columns ? fast_ : slow_) = end - begin;
  (code_.columns ? s0_ : f0_) = 0;
  (code_.columns ? slow_ : fast_) = 1;
  for (const int v : code_.outer_registers) place_register(v);
}

inline void LoopRunner::set_chunk(Extent begin, Extent end) {
  (code_.columns ? s0_ : f0_) = begin;
  (code_.columns ? slow_ : fast_) = end - begin;
}

inline void LoopRunner::outer_code(const Phase& phase) {
  for (const int v : phase.outer_memory) place_memory(v);
  for (const LoopInstruction& in : phase.outer) execute(in);
}

inline void LoopRunner::inner_code(const Phase& phase) {
  for (const int v : phase.inner_registers) place_register(v);
  for (const int v : phase.inner_memory) place_memory(v);
  for (const LoopInstruction& in : phase.inner) execute(in);
}

inline void LoopRunner::chunks(const Phase& phase, Extent begin, Extent end) {
  if (phase.inner.empty()) return;
  first_ = begin;
  for (Extent at = begin; at < end;) {
    const Extent run_end = (at / code_.fast_run + 1) * code_.fast_run,
                 next = std::min({at + code_.chunk, run_end, end});
    set_chunk(at, next);
    inner_code(phase);
    at = next;
  }
}

inline void LoopRunner::start_reductions(const Phase& phase) {
  for (const int r : phase.reductions) {
    const ReductionInfo& info = code_.reductions[static_cast<std::size_t>(r)];
    std::fill_n(accumulators(info), outer_end_ - outer_begin_, empty_value(info.reduction, info.from));
    if (info.is_squares) std::fill_n(means(info), outer_end_ - outer_begin_, 0.0);
    if (info.gives_position()) std::fill_n(positions(info), outer_end_ - outer_begin_, std::int64_t{-1});
  }
}

inline void LoopRunner::finish_reductions(const Phase& phase) {
  for (const int r : phase.reductions) {
    const ReductionInfo& info = code_.reductions[static_cast<std::size_t>(r)];
    const Value& value = code_.values[static_cast<std::size_t>(info.value)];
    const Extent count = outer_end_ - outer_begin_;
    if (value.type == DType::f32) {
      auto* out = reinterpret_cast<float*>(frame_ + value.offset);
      const double* from = accumulators(info);
      for (Extent i = 0; i < count; ++i) out[i] = static_cast<float>(from[i]);
      continue;
    }
    char* to = frame_ + value.offset;
    const std::size_t size = size_bytes(value.type);
    for (Extent i = 0; i < count; ++i, to += size) {
      if (info.gives_position())
        write_element(value.type, static_cast<double>(std::max<std::int64_t>(positions(info)[i], 0)), to);
      else if (carries_bits(value.type))
        std::memcpy(to, accumulators(info) + i, size);
      else
        write_element(value.type, accumulators(info)[i], to);
    }
  }
}

inline void LoopRunner::last_code() {
  if (code_.last.inner.empty()) return;
  (code_.columns ? s0_ : f0_) = 0;
  (code_.columns ? slow_ : fast_) = 1;
  for (const LoopInstruction& in : code_.last.inner) execute(in);
}

inline void LoopRunner::whole_block(Extent begin, Extent end) {
  set_block(begin, end);
  for (const Phase& phase : code_.phases) {
    outer_code(phase);
    start_reductions(phase);
    chunks(phase, 0, code_.inner);
    finish_reductions(phase);
  }
  last_code();
}

inline void LoopRunner::fence() const {
#if defined(__SSE2__)
  if (code_.streams) _mm_sfence();
#endif
}

// ---- Where values are ---------------------------------------------------------------------------------------------------

inline void LoopRunner::place_register(int v) const {
  const Value& value = code_.values[static_cast<std::size_t>(v)];
  Slot* slot = &slots_[v];
  const auto size = static_cast<Extent>(size_bytes(value.type));
  const bool kept = value.place == Place::kept && !value.outer;
  if (!value.fast) {
    *slot = {frame_ + value.offset + (kept ? s0_ * size : 0), size};
  } else if (code_.columns) {
    *slot = {frame_ + value.offset + (kept ? (value.slow ? s0_ * fast_ : 0) * size : 0), fast_ * size};
  } else {
    *slot = {frame_ + value.offset + (kept ? f0_ * size : 0), (kept ? code_.inner : fast_) * size};
  }
}

inline void LoopRunner::place_memory(int v) const {
  const Value& value = code_.values[static_cast<std::size_t>(v)];
  const auto size = static_cast<Extent>(size_bytes(value.type));
  const bool is_product = value.place == Place::memory && value.operand < 0;
  const Extent slow_stride = is_product && binding_.product_row > 0 ? binding_.product_row : value.access.slow_stride();
  const Extent row = is_product ? value.access.offset + s0_ * slow_stride : value.access.row_offset(s0_);
  const char* base = value.place == Place::output ? binding_.outputs[static_cast<std::size_t>(value.operand)]
                     : value.operand < 0          ? binding_.product
                                                  : binding_.inputs[static_cast<std::size_t>(value.operand)];
  slots_[v] = {const_cast<char*>(base) + (row + value.access.fast_offset(f0_)) * size, slow_stride * size};
}

inline TileArg LoopRunner::source(const Source& from, bool column) const {
  const Slot& slot = slots_[from.value];
  if (column) return {slot.data, 0, !from.slow};
  return {slot.data, from.slow ? slot.stride : 0, !from.fast};
}

inline bool LoopRunner::is_turned(const LoopInstruction& in) const {
  const Access& access = access_of(in);
  return in.slow && in.fast && access.plain_slow() && access.plain_fast() && access.slow_stride() == 1;
}

// ---- Instructions -------------------------------------------------------------------------------------------------------

inline void LoopRunner::execute(const LoopInstruction& in) {
  switch (in.action) {
    case Action::map: return map(in);
    case Action::reduce: return reduce(in);
    case Action::store: return store(in);
    case Action::chain: return chain(in);
    case Action::fetch:
    case Action::gather:
    case Action::index: break;
  }
  if (in.packed_bits != 0) return in.action == Action::gather ? gather_packed(in) : fetch_packed(in);
  switch (in.out_bytes) {
    case 8: return in.action == Action::gather ? gather<double>(in) : fetch<double>(in);
    case 4:
      if (in.action == Action::index) return index(in);
      return in.action == Action::gather ? gather<std::uint32_t>(in) : fetch<std::uint32_t>(in);
    case 2: return in.action == Action::gather ? gather<std::uint16_t>(in) : fetch<std::uint16_t>(in);
    default: return in.action == Action::gather ? gather<std::uint8_t>(in) : fetch<std::uint8_t>(in);
  }
}

inline void LoopRunner::call(const LoopInstruction& in, TileCall& call) const {
  if (call.slow > 1 && call.out_stride == call.fast * in.out_bytes) {
    bool dense = true;
    for (int i = 0; i < in.arg_count; ++i) {
      const TileArg& arg = call.args[i];
      dense = dense && arg.slow_stride == (arg.broadcast ? 0 : call.fast * in.args[i].bytes);
    }
    if (dense) call.fast *= call.slow, call.slow = 1;
  }
  in.map(call);
}

inline void LoopRunner::map(const LoopInstruction& in) {
  const Slot& out = slots_[in.out];
  TileCall tile;
  tile.out = out.data;
  const bool column = in.slow && !in.fast;
  tile.slow = in.slow && in.fast ? slow_ : 1;
  tile.fast = column ? slow_ : in.fast ? fast_ : 1;
  tile.out_stride = out.stride;
  for (int i = 0; i < in.arg_count; ++i) tile.args[i] = source(in.args[i], column);
  call(in, tile);
}

inline void LoopRunner::moments(const LoopInstruction& in, const ReductionInfo& info) const {
  TileMoments tile;
  tile.arg = source(in.args[0], false);
  tile.slow = slow_;
  tile.fast = fast_;
  tile.sums = accumulators(code_.reductions[static_cast<std::size_t>(in.sum)]);
  tile.means = means(info);
  tile.squares = accumulators(info);
  tile.before = (code_.columns ? s0_ : f0_) - first_;
  in.moments(tile);
}

inline void LoopRunner::reduce(const LoopInstruction& in) {
  const ReductionInfo& info = code_.reductions[static_cast<std::size_t>(in.out)];
  if (info.is_squares) return moments(in, info);
  TileReduction tile;
  tile.arg = source(in.args[0], false);
  tile.slow = slow_;
  tile.fast = fast_;
  tile.accumulators = accumulators(info);
  tile.positions = positions(info);
  tile.base = code_.columns ? s0_ : f0_;
  in.reduce(tile);
}

}  // namespace weft::cpu
