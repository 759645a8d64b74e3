// Norms that products with packed weights compute while reading.
#pragma once

#include <vector>

#include "compile/compile.hpp"
#include "compile/draft.hpp"
#include "compile/place.hpp"

namespace weft::compiler {

/// A norm of few rows that only products with packed weights read moves into each of them: computing it again takes less time
/// than waiting for a separate kernel.
void compute_rows_in_products(std::vector<DraftKernel>& kernels, const Placement& placement, const Target& target);

}  // namespace weft::compiler
