// Caches of keys and values: rows written in place, and attention over them.
#pragma once

#include <memory>
#include <span>

#include "backend/cpu/prepared.hpp"

namespace weft::cpu {

/// Operands as the row lists them (graph/cache.hpp), by pointers to their first elements.
void run_write_rows(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs);
/// For few queries of a sequence, heads and ranges of keys are tasks, joined at the end. For many, blocks of queries use matrix
/// products. The order of sums does not depend on the number of threads.
std::unique_ptr<Prepared> prepare_cache_attention(const kernel::CallKernel& kernel);

}  // namespace weft::cpu
