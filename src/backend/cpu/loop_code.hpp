// The compiled form of a loop kernel, shared by its compiler (loop.cpp) and its interpreter (loop_run.cpp).
#pragma once

#include <string>
#include <vector>

#include "backend/cpu/loop.hpp"

namespace weft::cpu {

/// Where a value lies.
enum class Place : std::uint8_t {
  constant,  // in `constants`
  memory,    // read in place from an input, or from the product
  tile,      // a register of one tile, reused
  kept,      // a register that lasts for the block: outer-level values, and what later phases read again
  output,    // written in place to an output
};

struct Value {
  DType type = DType::f32;
  bool slow = false, fast = false;  // along which axes it varies
  bool outer = true;                // outer level: does not vary along the chunk axis
  Place place = Place::tile;
  Extent offset = 0;     // bytes in the frame (tile, kept) or in the constants
  int operand = -1;      // memory: input, or -1 for the product; output: output
  Access access;         // memory and output
};

enum class Action : std::uint8_t { map, fetch, index, gather, reduce, store };

struct Instruction {
  Action action = Action::map;
  TileFunction map = nullptr;  // also the copy of a plain store
  ReduceFunction reduce = nullptr;
  int out = -1;                // value; reductions: index of the reduction
  int args[4] = {-1, -1, -1, -1};
  int arg_count = 0;
  bool slow = false, fast = false;  // axes it runs over
  int operand = -1;
  Access access;               // fetch, index, gather, store
  Extent axis_stride = 0, axis_extent = 0;
  std::string name;            // for printing
};

struct ReductionInfo {
  scalar::Reduction reduction = scalar::Reduction::sum;
  DType from = DType::f32;
  int value = -1;   // the outer-level value it gives
  int phase = 0;
  Extent accumulators = 0, positions = 0;  // offsets in the frame
};

/// What runs once a block before the chunks of a phase, and once a chunk.
struct Phase {
  std::vector<Instruction> outer, inner;
  std::vector<int> outer_memory, inner_memory;  // values read or written in place, whose pointers move
  std::vector<int> reductions;
  std::vector<int> ahead;  // values in memory whose next tile is worth asking for while this one is worked on
};

struct LoopProgram::Code {
  std::string name;
  bool columns = false;        // the inner axis is the slow one
  Extent outer = 1, inner = 1;
  Extent block = 1, chunk = 1;  // extents of a tile along outer and inner
  std::vector<Value> values;
  std::vector<ReductionInfo> reductions;
  std::vector<Phase> phases;
  Phase last;                  // outer-level stores
  std::vector<char> constants;
  Extent frame_bytes = 0;
  std::vector<std::size_t> input_bytes, output_bytes;  // of an element
  std::size_t product_bytes = 4;
  bool streams = false;        // some store goes past the caches
  Extent splits = 1;           // parts of the inner axis that are tasks of their own
  Extent blocks_per_task = 1;
};

}  // namespace weft::cpu
