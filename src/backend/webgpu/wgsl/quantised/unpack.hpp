// Weights as f32 or f16.
#pragma once

#include <string>

#include "backend/webgpu/wgsl/render.hpp"
#include "tensor/block_format.hpp"

namespace weft::webgpu {

/// Unpacks `count` rows of the matrix [n, k] from row `first` on, or those in `indices`, to `out`, f32 or f16. Halves saturate.
RenderedDispatch unpack(const std::string& name, BlockType type, const kernel::Operand& words, Extent n, Extent k,
                        const kernel::Operand* indices, const kernel::Operand& out, Extent count, const Target& target,
                        Extent first = 0);

/// The same rows as halves, each scaled by the power of two of scale_exponent (matmul/scaled_product.hpp). `largest`, f32 [count],
/// receives the largest size in each row.
RenderedDispatch unpack_scaled(const std::string& name, BlockType type, const kernel::Operand& words, Extent n,
                               Extent k, const kernel::Operand& largest, const kernel::Operand& out, Extent count,
                               const Target& target, Extent first = 0);

}  // namespace weft::webgpu
