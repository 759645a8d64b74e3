// Scatters along an axis: sums and last updates by index, and which index names a place last.
#pragma once

#include <span>

#include "compile/kernel.hpp"

namespace weft::cpu {

/// Operands as `scatter_add_along_axis` lists them. A task takes neighbouring lines along the axis and adds their
/// updates in order.
void run_scatter_along(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs);
/// Operands as `put_along_axis` lists them, of 32 or 64 bits.
void run_put_along(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs);
/// Operands as `last_along_axis` lists them; indices i32 or u32.
void run_last_along(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs);

}  // namespace weft::cpu
