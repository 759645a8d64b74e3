// Orthogonal polynomials by their recurrences. f32 computes in f64.
#pragma once

#include <span>

#include "compile/kernel.hpp"

namespace weft::cpu {

void run_orthogonal_polynomial(const kernel::CallKernel& kernel, std::span<char* const> reads,
                               std::span<char* const> outs);

}  // namespace weft::cpu
