// Turns nodes into the bytecode of a loop program, for tiles of a given size.
#pragma once

#include "backend/cpu/loop/code.hpp"
#include "backend/cpu/loop/nodes.hpp"

namespace weft::cpu {

/// Extents of blocks, chunks and tasks for tiles of about `tile_elements` values.
void choose_tile(const LoopNodes& nodes, Extent tile_elements, LoopProgram::Code& code);

/// Fills in everything else: values, phases, stores. Returns the number of registers of a tile.
int schedule(const LoopNodes& nodes, LoopProgram::Code& code);

}  // namespace weft::cpu
