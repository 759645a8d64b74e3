// Sums of rows by index, as in the gradient of an embedding.
#pragma once

#include <span>

#include "compile/kernel.hpp"

namespace weft::cpu {

/// Pointers to the first element of each operand. Every element of the output is a sum in the order of i, whatever the
/// number of threads. f32, f64, i32 and u32 (which wrap); DTypeError for bool.
void run_scatter_add(const kernel::ScatterAddKernel& kernel, const void* indices, const void* updates, void* out);

/// Operands as `scatter_add_along_axis` lists them. Lines along the axis are tasks; each adds its updates in order.
void run_scatter_along(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs);

}  // namespace weft::cpu
