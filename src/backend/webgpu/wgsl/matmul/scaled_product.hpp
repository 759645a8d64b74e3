// Products of f32 on subgroup matrices of f16: operands are scaled, then rounded to one half or split into two.
#pragma once

#include <optional>
#include <string>

#include "backend/webgpu/wgsl/matmul/matrix_tile.hpp"
#include "backend/webgpu/wgsl/render.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu {

/// Whether the product can be computed this way: its precision allows it, and its operands are plain views.
bool suits_scaling(const kernel::MatmulKernel& kernel, const Target& target);

/// The tile and split of subgroup matrices, where that is estimated to take less time than the exact product.
std::optional<TileChoice> choose_scaled_tile(const kernel::MatmulKernel& kernel, const Target& target);

/// Whether the tile can multiply the high and low halves of a step of k together, which reads each of them once. On an H200
/// that takes longer than one after the other, as it needs more registers, and rounds large sums three times as often.
bool multiplies_together(const kernel::MatmulKernel& kernel, const MatrixTile& tile, const Target& target);

/// Appends the dispatches: for each operand the largest sizes of its rows (of A) or columns (of B), then its halves; then
/// the product, which takes the scales from its sums.
/// `together`: see multiplies_together.
void render_scaled(const kernel::MatmulKernel& kernel, const MatrixTile& tile, int split, const Target& target,
                   Scratch& scratch, Rendered& rendered, bool together = false);

/// Text of the i32 exponent of the scale for numbers whose largest size is `largest`: the scale takes that to [2^14, 2^15).
std::string scale_exponent(const std::string& largest);

}  // namespace weft::webgpu
