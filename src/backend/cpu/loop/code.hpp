// The compiled form of a loop kernel, shared by its compiler (loop.cpp, schedule.cpp) and its interpreter (run.cpp, runner.hpp).
#pragma once

#include <algorithm>
#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "backend/cpu/loop/chain.hpp"
#include "backend/cpu/loop/loop.hpp"

namespace weft::cpu {

/// The place of a value.
enum class Place : std::uint8_t {
  constant,  // in `constants`
  memory,    // read in place from an input, or from the product
  tile,      // a register of one tile, reused
  kept,      // a register that lasts for the block: outer-level values, and values that later phases read again
  output,    // written in place to an output
};

struct Value {
  DType type = DType::f32;
  bool slow = false, fast = false;  // along which axes it varies
  bool outer = true;                // outer level: does not vary along the chunk axis
  Place place = Place::tile;
  Extent offset = 0;  // bytes in the frame (tile, kept) or in the constants
  int operand = -1;   // memory: input, or -1 for the product; output: output
  Access access;      // memory and output
};

enum class Action : std::uint8_t { map, fetch, index, gather, reduce, store, chain };

/// An operand as an instruction reads it.
struct Source {
  int value = -1;
  bool slow = false, fast = false;  // along which axes it varies
  Extent bytes = 0;                 // of an element
};

struct LoopInstruction {
  Action action = Action::map;
  bool slow = false, fast = false;  // axes it runs over
  int arg_count = 0;
  TileFunction map = nullptr;  // also the copy of a plain store
  ReduceFunction reduce = nullptr;
  MomentsFunction moments = nullptr;
  int out = -1;  // value; reductions: index of the reduction
  int sum = -1;  // moments: index of the reduction that is the sum
  Source args[4];
  Extent out_bytes = 0;  // of an element
  bool streams = false;  // store, gather: bypasses the caches
  int packed_bits = 0;   // fetch, gather, store: of an element in memory, where several share a byte
  int operand = -1;
  int access = -1;  // fetch, index, gather, store: index into the accesses
  Extent axis_stride = 0, axis_extent = 0;
  int name = -1;                    // for printing: index into the names
  std::optional<ChainOp> in_chain;  // what it is as a part of a chain, if it can be one
  int chain = -1;                   // index into the chains
};

/// Instructions that run as one.
struct LoopChain {
  struct Place {
    Source value;     // as it is read or written; or
    int output = -1;  // an output, through an access
    int access = -1;
    bool streams = false;  // the output bypasses the caches
    bool is_next = false;  // what the next block reads of the value, which is only prefetched
    int reduction = -1;    // partial results of a reduction down columns, a float each
  };
  ChainCode code;
  std::optional<ChainCode> unaligned;  // without streams, for outputs whose vectors cross cache lines
  std::vector<Place> places;
  std::vector<int> folds;                     // reductions along rows
  bool reduces_columns = false;               // some place has a reduction
  std::vector<LoopInstruction> instructions;  // for printing
};

struct ReductionInfo {
  scalar::Reduction reduction = scalar::Reduction::sum;
  DType from = DType::f32;
  int value = -1;  // the outer-level value it gives
  int phase = 0;
  bool is_squares = false;                 // a sum of squared differences; the positions are the means then
  Extent accumulators = 0, positions = 0;  // offsets in the frame
  Extent partials = 0;                     // the same, of floats for chains down columns

  /// Whether an accumulator has a second part.
  bool has_positions() const { return is_squares || gives_position(); }
  bool gives_position() const {
    return reduction == scalar::Reduction::argmax || reduction == scalar::Reduction::argmin;
  }
};

/// The code that runs once per block before the chunks of a phase, and once per chunk.
struct Phase {
  std::vector<LoopInstruction> outer, inner;
  std::vector<int> outer_memory, inner_memory;  // values read or written in place, whose pointers move
  std::vector<int> inner_registers;             // inner-level values whose rows are as long as the chunk
  std::vector<int> reductions;
  bool far = false;       // operands are beyond the L2 cache, so that chains prefetch the lines ahead
  std::vector<int> next;  // values in memory that the next block reads first, worth prefetching in this later phase
};

struct LoopProgram::Code {
  std::string name;
  bool columns = false;  // the inner axis is the slow one
  Extent outer = 1, inner = 1;
  Extent block = 1, chunk = 1;  // extents of a tile along outer and inner, at most
  Extent run = 1;               // blocks do not cross its multiples along outer
  Extent fast_run = 1;          // tiles do not cross its multiples along inner
  Extent tile = 1;              // its elements, at most
  std::vector<Value> values;
  std::vector<Access> accesses;
  std::vector<std::string> names;
  std::vector<int> outer_registers;
  std::vector<ReductionInfo> reductions;
  std::vector<Phase> phases;
  Phase last;  // outer-level stores
  std::vector<LoopChain> chains;
  std::vector<char> constants;
  Extent frame_bytes = 0;
  std::vector<std::size_t> input_bytes, output_bytes;  // of an element
  std::size_t product_bytes = 4;
  bool streams = false;  // some store bypasses the caches
  Extent splits = 1;     // parts of the inner axis that are separate tasks
  Extent blocks_per_task = 1;

  struct Range {
    Extent begin, end;
  };
  Extent blocks_of_run() const { return (run + block - 1) / block; }
  Extent blocks() const { return outer == 0 ? 0 : outer / run * blocks_of_run(); }
  /// The part of the outer axis that is block `b`.
  Range block_range(Extent b) const {
    const Extent start = b / blocks_of_run() * run, begin = start + b % blocks_of_run() * block;
    return {begin, std::min(begin + block, start + run)};
  }
};

struct LoopProgram::Totals {
  std::vector<int> phases;              // those that are stages
  Extent part = 1, parts = 1;           // of the inner axis
  std::vector<double> totals, partial;  // by reduction and outer index; by part, reduction of the phase, outer index
  std::vector<std::int64_t> total_positions, partial_positions;
  std::atomic<Extent> ended = 0;  // tasks of the stage
};

/// The bytecode of a kernel; arguments as LoopProgram's.
std::shared_ptr<const LoopProgram::Code> compile_loop(const kernel::LoopKernel& kernel, Extent columns,
                                                      DType product_type, int product_output);
/// The same, made once for kernels that differ only in the places of operands, while one of them exists. Thread
/// safe.
std::shared_ptr<const LoopProgram::Code> shared_code(const kernel::LoopKernel& kernel, Extent columns,
                                                     DType product_type, int product_output);

/// Joins neighbouring instructions to chains, if chains are used.
void form_chains(LoopProgram::Code& code);

}  // namespace weft::cpu
