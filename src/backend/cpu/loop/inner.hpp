// The inner-level code of one phase.
#pragma once

#include <set>
#include <utility>
#include <vector>

#include "backend/cpu/loop/instructions.hpp"

namespace weft::cpu {

/// The registers of a tile, which the phases share.
struct TileRegisters {
  int count = 0;
  Extent bytes = 0;                         // of the largest one
  std::vector<std::pair<int, int>> values;  // value, register
};

/// Writes the code that computes the nodes `needed` in phase `phase`, its reductions (`reductions` holds their indices by node)
/// and its stores.
void write_inner(const LoopNodes& nodes, int phase, const std::set<int>& needed, const std::vector<int>& reductions,
                 InstructionMaker& make, LoopProgram::Code& code, TileRegisters& registers);

}  // namespace weft::cpu
