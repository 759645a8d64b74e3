// Reads rows of a packed matrix, for embeddings, and packs values into matrices.
#pragma once

#include <span>

#include "compile/kernel.hpp"

namespace weft::cpu {

/// Operands as the row lists them (graph/cache.hpp). A row outside the matrix reads zeros.
void run_unpack_rows(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs);
/// Rounds f32 to blocks. UsageError for values that are not finite.
void run_pack_rows(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs);

}  // namespace weft::cpu
