// Alignments of labels with steps.
#pragma once

#include <span>

#include "compile/kernel.hpp"

namespace weft::cpu {

/// Operands as graph/ctc.hpp lists them, of f32 or f64. Each sequence is a task.
void run_ctc_alignment(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs);
void run_ctc_alignment_backward(const kernel::CallKernel& kernel, std::span<char* const> reads,
                                std::span<char* const> outs);

}  // namespace weft::cpu
