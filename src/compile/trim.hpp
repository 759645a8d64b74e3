// Operands cut down to the elements that a kernel can reach through its views.
#pragma once

#include "compile/kernel.hpp"

namespace weft::compiler {

/// Moves each operand's begin and end to the first and last element that its views reach, and adapts the views. The range that
/// a kernel touches is then known, and kernels that do equal work elsewhere differ only in their places. Operands of packed
/// types begin at a whole byte.
void trim_operands(kernel::Kernel& kernel);

}  // namespace weft::compiler
