// Softmax down the columns of a matrix, and its logarithm.
#pragma once

#include <memory>

#include "backend/cpu/prepared.hpp"

namespace weft::cpu {

/// The kernel as a softmax of f32 down columns, or null if it is anything else or too small.
std::unique_ptr<Prepared> prepare_column_softmax(const kernel::LoopKernel& kernel);

}  // namespace weft::cpu
