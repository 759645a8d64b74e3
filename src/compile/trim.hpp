// Operands cut down to the elements that a kernel can reach through its views.
#pragma once

#include "compile/kernel.hpp"

namespace weft::compiler {

/// Moves each operand's begin and end to the first and last element that its views reach, and the views with it. What
/// kernels touch is then known by range, and kernels that do equal work at other places are equal but for the places. Operands
/// of packed types begin at a whole byte.
void trim_operands(kernel::Kernel& kernel);

}  // namespace weft::compiler
