// Norms that products with packed weights compute as they read.
#pragma once

#include <vector>

#include "compile/compile.hpp"
#include "compile/draft.hpp"
#include "compile/place.hpp"

namespace weft::compiler {

/// A norm of few rows that only products with packed weights read moves into each of them: computing it again takes less
/// time than waiting for a kernel between.
void compute_rows_in_products(std::vector<DraftKernel>& kernels, const Placement& placement, const Target& target);

}  // namespace weft::compiler
