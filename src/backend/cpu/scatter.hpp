// Scatters: sums of rows and of elements by index, and which index names a place last.
#pragma once

#include <span>

#include "compile/kernel.hpp"

namespace weft::cpu {

/// Pointers to the first element of each operand. Every element of the output is a sum in the order of i, whatever the
/// number of threads. f32, f64, i32 and u32 (which wrap); DTypeError for bool.
void run_scatter_add(const kernel::ScatterAddKernel& kernel, const void* indices, const void* updates, void* out);

/// Operands as `scatter_add_along_axis` lists them. A task takes neighbouring lines along the axis and adds their
/// updates in order.
void run_scatter_along(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs);
/// Operands as `put_along_axis` lists them, of 32 or 64 bits.
void run_put_along(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs);
/// Operands as `last_along_axis` lists them; indices i32 or u32.
void run_last_along(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs);

}  // namespace weft::cpu
