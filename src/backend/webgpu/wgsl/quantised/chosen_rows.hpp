// Rows of A that count: those to which a mixture of experts gives a weight.
#pragma once

#include <string>

#include "backend/webgpu/wgsl/render.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu {

/// Whether a row of A is one that the product is asked for. By bits: a weight that is no number counts.
ShaderPieces::Function is_chosen_function(const kernel::PackedMatmulKernel& kernel, int chosen,
                                          const Bindings& bindings);

/// The rows in an order, those first that count, and how many these are.
RenderedDispatch order_rows(const kernel::PackedMatmulKernel& kernel, const kernel::Operand& order,
                            const Target& target);

}  // namespace weft::webgpu
