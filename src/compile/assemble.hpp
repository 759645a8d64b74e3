// Turns ordered kernels into a plan: external buffers, memory of intermediate values, and the operands' places in both.
#pragma once

#include "compile/compile.hpp"
#include "compile/draft.hpp"
#include "compile/order.hpp"

namespace weft::compiler {

Compiled assemble(std::vector<DraftKernel> drafts, const Order& order, const std::vector<graph::NodeRef>& outputs,
                  const Target& target);

}  // namespace weft::compiler
