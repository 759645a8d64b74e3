// The exponential of matrices and its derivative in a direction. Each matrix takes the degree and the squarings that its size needs.
#pragma once

#include <span>

#include "compile/kernel.hpp"

namespace weft::cpu {

void run_matrix_exp(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs);
void run_matrix_exp_frechet(const kernel::CallKernel& kernel, std::span<char* const> reads,
                            std::span<char* const> outs);

}  // namespace weft::cpu
