// Sorting along the last axis.
#pragma once

#include <span>

#include "compile/kernel.hpp"

namespace weft::cpu {

/// Operands as `sort` lists them. A line is sorted by radix; long lines are shared by all threads.
void run_sort(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs);

}  // namespace weft::cpu
