// Weights as f32 or f16.
#pragma once

#include <string>

#include "backend/webgpu/wgsl/render.hpp"
#include "tensor/block_format.hpp"

namespace weft::webgpu {

/// Unpacks all rows of the matrix, or those in `indices`, to `out`, f32 or f16. Halves saturate.
RenderedDispatch unpack(const std::string& name, BlockType type, const kernel::Operand& words, Extent n, Extent k,
                        const kernel::Operand* indices, const kernel::Operand& out, Extent count, const Target& target);

}  // namespace weft::webgpu
