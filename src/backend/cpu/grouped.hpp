// Products of groups of rows with a matrix each.
#pragma once

#include <span>

#include "compile/kernel.hpp"

namespace weft::cpu {

/// Operands as `grouped_matmul` lists them: a product for each group. f32 and f64.
void run_grouped_matmul(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs);
/// Operands as `grouped_outer` lists them.
void run_grouped_outer(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs);

}  // namespace weft::cpu
