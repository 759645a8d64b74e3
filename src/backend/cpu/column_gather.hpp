// Gathers in which each column of a matrix has indices of its own.
#pragma once

#include <memory>

#include "backend/cpu/prepared.hpp"

namespace weft::cpu {

/// The kernel as a gather down columns, or null if it is anything else or too small.
std::unique_ptr<Prepared> prepare_column_gather(const kernel::LoopKernel& kernel);

}  // namespace weft::cpu
