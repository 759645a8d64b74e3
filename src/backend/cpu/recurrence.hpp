// Recurrent cells along a sequence.
#pragma once

#include <span>

#include "compile/kernel.hpp"

namespace weft::cpu {

/// Operands as graph/recurrence.hpp lists them, of f32 or f64. Sequences are independent: a task takes some of them through all
/// steps, so tasks never wait for each other.
void run_recurrence(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs);
void run_recurrence_backward(const kernel::CallKernel& kernel, std::span<char* const> reads,
                             std::span<char* const> outs);

}  // namespace weft::cpu
