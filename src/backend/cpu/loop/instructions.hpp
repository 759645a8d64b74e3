// Instructions and values of a loop program, made from nodes one by one.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "backend/cpu/loop/code.hpp"
#include "backend/cpu/loop/nodes.hpp"

namespace weft::cpu {

class InstructionMaker {
 public:
  InstructionMaker(const LoopNodes& nodes, LoopProgram::Code& code)
      : nodes_(nodes), code_(code), values_(nodes.nodes.size(), -1) {}

  /// The value of a node, made on first use. Its place in a tile is chosen later.
  int value_of(int node);
  /// Makes a new value for the node from now on, since several phases compute it.
  void forget_value(int node) { values_[static_cast<std::size_t>(node)] = -1; }
  Source source_of(int node);
  /// Errors  DTypeError: an op that the CPU lacks for this type.
  LoopInstruction instruction_of(int node);
  /// Stores an access beside the instructions; returns its index.
  int keep(const Access& access);
  int keep(std::string name);

  /// Inner-level nodes that later phases read again: their values last for the block.
  std::map<int, int> in_place_of;  // kept values that take the place of another one, which nothing reads any more
  std::set<int> kept;

 private:
  const LoopNodes& nodes_;
  LoopProgram::Code& code_;
  std::vector<int> values_;  // of nodes; -1: none yet
};

}  // namespace weft::cpu
