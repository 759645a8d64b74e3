// The two products of a gated unit, which one dispatch computes.
#pragma once

#include <cstddef>
#include <optional>

#include "compile/kernel.hpp"

namespace weft::webgpu {

/// What follows the sums of both: the first product's epilogue, then the second's, which takes the first's result as a value.
struct GatedPair {
  kernel::LoopKernel epilogue;
  std::size_t steps_of_first = 0;  // an accumulator among them is the sum of the first product
};

/// Nothing unless the products have the same rows of A and the same size, and the second reads the first in its epilogue, element
/// for element. `keeps_first`: whether anything else reads the result of the first, which is then stored.
std::optional<GatedPair> gated_pair(const kernel::PackedMatmulKernel& first, const kernel::PackedMatmulKernel& second,
                                    bool keeps_first);

}  // namespace weft::webgpu
