// The draw of the next token from logits.
#pragma once

#include <span>

#include "compile/kernel.hpp"

namespace weft::cpu {

/// Operands as `sample_token` lists them (weft/inference.hpp), by pointers to their first elements. Rows are tasks.
void run_sample_token(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs);

}  // namespace weft::cpu
