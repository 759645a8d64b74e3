// The dependencies between the kernels of a plan.
#pragma once

#include <vector>

#include "compile/kernel.hpp"

namespace weft::cpu {

/// Kernels [begin, end) of a plan as a list: for each the last one before it, as an index from `begin`, that writes what
/// it reads or writes, or reads what it writes; -1: none.
std::vector<int> last_needed(const kernel::Plan& plan, std::size_t begin, std::size_t end);
/// Whether kernels [begin, end) of a plan write any of these.
bool is_written(const kernel::Plan& plan, std::size_t begin, std::size_t end,
                const std::vector<kernel::Operand>& operands);

}  // namespace weft::cpu
