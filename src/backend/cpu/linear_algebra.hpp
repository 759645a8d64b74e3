// Decompositions of matrices. f32 computes in f64. A batch is split over threads; a matrix of its own is computed by one, but for
// the larger ones of eigh and svd. Long work looks for interrupts.
#pragma once

#include <span>

#include "compile/kernel.hpp"

namespace weft::cpu {

void run_solve(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs);
void run_slogdet(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs);
void run_lu_factor(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs);
void run_pivot_order(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs);
void run_cholesky(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs);
void run_solve_triangular(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs);
void run_qr(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs);
void run_eigh(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs);
void run_svd(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs);

}  // namespace weft::cpu
