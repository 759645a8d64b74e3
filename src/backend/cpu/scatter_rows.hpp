// Sums of rows by index.
#pragma once

#include <cstddef>
#include <memory>

#include "backend/cpu/prepared.hpp"

namespace weft::cpu {

/// Every element of the result is a sum in the order of the updates, whatever the number of threads. f32, f64, and integers of 32
/// and 64 bits (which wrap); DTypeError for others when it runs.
std::unique_ptr<Prepared> prepare_scatter_rows(const kernel::ScatterAddKernel& kernel);
/// Kernel `first` of the plan and the next one as one, if they are a scatter and an addition that alone reads its result; else null.
std::unique_ptr<Prepared> prepare_scatter_and_add(const kernel::Plan& plan, std::size_t first);

}  // namespace weft::cpu
