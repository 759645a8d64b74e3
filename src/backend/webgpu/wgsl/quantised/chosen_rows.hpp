// Chosen rows of A: rows to which a mixture of experts gives a weight.
#pragma once

#include <string>

#include "backend/webgpu/wgsl/render.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu {

/// Whether the product computes a row of A. The test compares bits, so that a NaN weight counts as chosen.
ShaderPieces::Function is_chosen_function(const kernel::PackedMatmulKernel& kernel, int chosen,
                                          const Bindings& bindings);

/// Orders the rows, the chosen ones first, and counts these.
RenderedDispatch order_rows(const kernel::PackedMatmulKernel& kernel, const kernel::Operand& order,
                            const Target& target);

}  // namespace weft::webgpu
