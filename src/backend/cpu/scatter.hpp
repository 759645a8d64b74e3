// Scatters along an axis: sums and last updates by index, and which index names a place last.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "backend/cpu/prepared.hpp"
#include "compile/kernel.hpp"

namespace weft::cpu {

/// Operands as `scatter_add_along_axis` lists them. A task takes neighbouring lines along the axis and adds their
/// updates in order.
void run_scatter_along(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs);
/// Kernel `first` of the plan and the next one as one, if they are such sums within rows and an addition that alone reads them; else
/// null.
std::unique_ptr<Prepared> prepare_scatter_along_and_add(const kernel::Plan& plan, std::size_t first);
/// Operands as `put_along_axis` lists them, of 32 or 64 bits.
void run_put_along(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs);
/// Operands as `last_along_axis` lists them; indices i32 or u32.
void run_last_along(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs);

}  // namespace weft::cpu
