// One thread's run through the blocks of a loop program: where its values are, and its instructions.
//
// The members are defined `inline` in the .inc.hpp files, which run.cpp includes. Position-independent code calls other members
// through a table, even within a file, and does not inline them; a tile of a sum is too short for that.
#pragma once

#include <cstdint>

#include "backend/cpu/loop/code.hpp"

namespace weft::cpu {

/// The caller sets a block, and then calls what a phase does with it. One thread uses the object at a time.
class LoopRunner {
 public:
  using Code = LoopProgram::Code;
  LoopRunner(const Code& code, const LoopBinding& binding);

  void set_block(Extent begin, Extent end);
  void outer_code(const Phase& phase);
  /// The inner-level code of a phase, for this part of the inner axis.
  void chunks(const Phase& phase, Extent begin, Extent end);
  /// The stores of outer-level values.
  void last_code();
  /// All of this for each phase.
  void whole_block(Extent begin, Extent end);
  /// Stores past the caches become visible to other threads.
  void fence() const;

  void start_reductions(const Phase& phase);
  double* accumulators(const ReductionInfo& info) const {
    return reinterpret_cast<double*>(frame_ + info.accumulators);
  }
  double* means(const ReductionInfo& info) const { return reinterpret_cast<double*>(frame_ + info.positions); }
  std::int64_t* positions(const ReductionInfo& info) const {
    return reinterpret_cast<std::int64_t*>(frame_ + info.positions);
  }
  /// Converts accumulators to outer-level values.
  void finish_reductions(const Phase& phase);

 private:
  struct Slot {
    char* data;
    Extent stride;  // bytes, along slow
  };

  void set_chunk(Extent begin, Extent end);
  void inner_code(const Phase& phase);
  void place_register(int v) const;
  void place_memory(int v) const;
  const Access& access_of(const LoopInstruction& in) const {
    return code_.accesses[static_cast<std::size_t>(in.access)];
  }
  /// Whether memory runs along the slow axis: then the walk follows that axis, a cache line at a time.
  bool is_turned(const LoopInstruction& in) const;
  /// An operand for an instruction that runs over both axes, or over a row made of the slow one.
  TileArg source(const Source& from, bool column) const;

  void execute(const LoopInstruction& in);
  /// Calls the instruction; a whole tile without gaps is one long row.
  void call(const LoopInstruction& in, TileCall& call) const;
  void map(const LoopInstruction& in);
  void moments(const LoopInstruction& in, const ReductionInfo& info) const;
  void reduce(const LoopInstruction& in);

  // loads.inc.hpp
  /// The rows of an instruction that writes a register: calls row(s, fast index, count, destination).
  template <class Word, class Row>
  void each_row(const LoopInstruction& in, Row row) const;
  template <class Word>
  void fetch(const LoopInstruction& in) const;
  /// Some neighbouring columns, whose rows lie apart: memory cannot guess which line follows. `to_row` is in bytes.
  template <class Word>
  void copy_columns(const Access& access, const Word* from, Word* to, Extent to_row) const;
  /// Like `fetch`, for a packed type: codes, a byte each.
  void fetch_packed(const LoopInstruction& in) const;
  void index(const LoopInstruction& in) const;

  // gathers.inc.hpp
  template <class Word>
  void gather(const LoopInstruction& in) const;
  void gather_packed(const LoopInstruction& in) const;
  /// Words of one row, by index; asks for as large a share of the next row.
  void take_from_row(const LoopInstruction& in, const std::uint32_t* row, Extent s, Extent f,
                     const std::int32_t* indices, std::uint32_t* to, Extent count) const;
  /// The row that a gather of whole rows reads some rows after row `s`, or null: memory cannot guess where it is.
  template <class Word>
  const char* row_ahead(const LoopInstruction& in, Extent s, Extent f, Extent count) const;

  // stores.inc.hpp
  void store(const LoopInstruction& in);

  // chain_calls.inc.hpp
  void chain(const LoopInstruction& in) const;
  /// Some rows of the tile.
  void chain_rows(const LoopInstruction& in, const LoopChain& chain, Extent first, Extent rows) const;
  /// This tile's place in the next block; in the last block, this tile, which is in the cache.
  ChainCall::Place next_block_of(const Value& value) const;
  float* partials(const ReductionInfo& info) const { return reinterpret_cast<float*>(frame_ + info.partials); }

  const Code& code_;
  const LoopBinding& binding_;
  char* frame_ = nullptr;
  Slot* slots_ = nullptr;
  Extent outer_begin_ = 0, outer_end_ = 0;
  Extent s0_ = 0, slow_ = 1, f0_ = 0, fast_ = 1;
  Extent first_ = 0;  // of the inner axis, in this run through a phase
};

template <class Word, class Row>
inline void LoopRunner::each_row(const LoopInstruction& in, Row row) const {
  const Slot& out = slots_[in.out];
  const Extent rows = in.slow ? slow_ : 1, count = in.fast ? fast_ : 1;
  for (Extent s = 0; s < rows; ++s)
    row(s0_ + s, in.fast ? f0_ : 0, count, reinterpret_cast<Word*>(out.data + (in.slow ? s * out.stride : 0)));
}

}  // namespace weft::cpu
