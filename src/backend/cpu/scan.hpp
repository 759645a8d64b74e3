// Scans along an axis.
#pragma once

#include <span>

#include "compile/kernel.hpp"

namespace weft::cpu {

/// Operands as the rows of graph/scan.hpp list them. Lines along the axis are tasks; elements are combined in their order.
void run_scan(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs);

}  // namespace weft::cpu
