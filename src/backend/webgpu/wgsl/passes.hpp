// The order of work in a loop kernel with reductions.
#pragma once

#include <vector>

#include "compile/kernel.hpp"

namespace weft::webgpu {

/// When each step of a kernel with reductions is computed. Pass p runs over inner with the results of the reductions of
/// passes before p.
struct Passes {
  int count = 0;
  std::vector<int> ready;  // first pass in which the step can be computed; for a reduce: in which its result is known
  std::vector<int> first;  // inner steps: pass that computes it, the first that uses it; -1: none
  std::vector<int> last;   // inner steps: last pass that uses it directly
  std::vector<int> store;  // of each store at inner level: its pass; -1: outer level
};

Passes plan_passes(const kernel::LoopKernel& kernel);

}  // namespace weft::webgpu
