// Gathers within rows, read from a copy of the row in workgroup memory.
#pragma once

#include <optional>
#include <vector>

#include "backend/webgpu/wgsl/render.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu {

/// Gathers of a flat loop whose elements come in runs: run n, of `run` elements, picks from `extent` neighbouring elements of one
/// operand, those of row n. A workgroup copies the row to workgroup memory, with reads of neighbours, and then picks there. If
/// 32 threads read from memory, this takes a step for each cache line that they touch; from workgroup memory it takes about four.
struct StagedGather {
  std::vector<int> steps;  // gathers that pick from the row
  int operand = -1;
  kernel::View rows;           // the place of each row's first element
  Extent run = 1, extent = 0;  // elements of a run, and of a row
  Extent part = 1;             // elements of a run that a workgroup takes
  int threads = 256;

  Extent parts() const { return divide_up(run, part); }
};

/// Whether picks of `run` elements from each of `rows` rows of `extent` elements of 32 bits take that form.
bool can_stage(Extent rows, Extent extent, Extent run, const Target& target);

/// The form for a loop over `total` elements, if there is such a gather and the copy pays.
std::optional<StagedGather> staged_gather(const kernel::LoopKernel& kernel, const std::vector<bool>& needed,
                                          Extent total, const Target& target);

}  // namespace weft::webgpu
