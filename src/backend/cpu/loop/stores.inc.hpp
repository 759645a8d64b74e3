// Instructions of loop programs that write values to outputs. Included by run.cpp alone.
#pragma once

#include "backend/cpu/loop/runner.hpp"
#include "backend/cpu/transpose.hpp"
#include "tensor/element.hpp"

namespace weft::cpu {

inline void LoopRunner::store(const LoopInstruction& in) {
  const Access& access = access_of(in);
  const Source& value = in.args[0];
  char* base = binding_.outputs[static_cast<std::size_t>(in.operand)];
  const Extent size = value.bytes;
  const Extent rows = in.slow ? slow_ : 1, count = in.fast ? fast_ : 1;
  if (in.map != nullptr) {
    TileCall tile;
    const Extent slow_stride = access.slow_stride();
    tile.out = base + (access.row_offset(s0_) + access.fast_offset(f0_)) * size;
    tile.out_stride = slow_stride * size;
    const bool column = in.slow && !in.fast;
    tile.slow = column ? 1 : rows;
    tile.fast = column ? rows : count;
    tile.args[0] = source(in.args[0], column);
    call(in, tile);
    return;
  }
  const Slot& slot = slots_[value.value];
  if (in.packed_bits != 0) {
    for (Extent s = 0; s < rows; ++s) {
      const auto* from = reinterpret_cast<const std::uint8_t*>(slot.data + (value.slow ? s * slot.stride : 0));
      walk_row(
          access, s0_ + s, f0_, count,
          [&](Extent i, Extent at, Extent stride, Extent n) {
            pack_codes(in.packed_bits, from + (value.fast ? i : 0), value.fast ? 1 : 0, base, at, stride, n);
          },
          [](Extent, Extent) {});
    }
    return;
  }
  const auto scatter = [&]<class Word>(Word) {
    if (is_turned(in)) {
      const Extent stride = Access::stride(access.fast), row = value.slow ? slot.stride / size : 0;
      Word* const to = reinterpret_cast<Word*>(base) + access.row_offset(s0_) + access.fast_offset(f0_);
      const Word* const source = reinterpret_cast<const Word*>(slot.data);
      if (value.slow && value.fast) return transpose(source, row, to, stride, count, rows);
      for (Extent f = 0; f < count; ++f) copy_strided(source + (value.fast ? f : 0), row, to + f * stride, 1, rows);
      return;
    }
    for (Extent s = 0; s < rows; ++s) {
      const Word* from = reinterpret_cast<const Word*>(slot.data + (value.slow ? s * slot.stride : 0));
      Word* to = reinterpret_cast<Word*>(base);
      walk_row(
          access, s0_ + s, f0_, count,
          [&](Extent i, Extent at, Extent stride, Extent n) {
            copy_strided(from + (value.fast ? i : 0), value.fast ? 1 : 0, to + at, stride, n);
          },
          [](Extent, Extent) {});
    }
  };
  if (size == 8)
    scatter(double{});
  else if (size == 4)
    scatter(std::uint32_t{});
  else if (size == 2)
    scatter(std::uint16_t{});
  else
    scatter(std::uint8_t{});
}

}  // namespace weft::cpu
