// Scans along an axis.
#pragma once

#include <span>

#include "compile/kernel.hpp"

namespace weft::cpu {

/// Operands as `cumsum` lists them. Rows along the axis are tasks; the order of additions is that of the elements.
void run_cumsum(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs);

}  // namespace weft::cpu
