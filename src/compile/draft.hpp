// Kernels whose operands have owners, but no buffers yet.
#pragma once

#include <vector>

#include "compile/kernel.hpp"
#include "graph/node.hpp"

namespace weft::compiler {

struct DraftKernel {
  kernel::Kernel kernel;
  std::vector<const graph::Node*> reads,
      writes;    // owners of the operands' memory, in the order of kernel::visit_operands
  int rank = 0;  // kernels run by rank, as far as their inputs allow
};

}  // namespace weft::compiler
