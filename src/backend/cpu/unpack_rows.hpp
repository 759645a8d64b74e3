// Rows of a packed matrix, as embeddings take them.
#pragma once

#include <span>

#include "compile/kernel.hpp"

namespace weft::cpu {

/// Operands as ops/routine.hpp lists them. A row outside the matrix reads zeros.
void run_unpack_rows(const kernel::RoutineKernel& kernel, std::span<char* const> reads, char* out);

}  // namespace weft::cpu
