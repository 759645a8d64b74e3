// Products of bf16 on subgroup matrices of f16, which scale their operands as they stage them.
//
// A dispatch finds the largest number in each row of A and column of B. The product takes a power of two for each from that, so that
// halves hold their numbers, and takes the powers back from the sums.
#pragma once

#include <optional>

#include "backend/webgpu/wgsl/matmul/matrix_tile.hpp"
#include "backend/webgpu/wgsl/render.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu {

/// The tile and split, if the product can be computed this way (operands of bf16 in aligned groups of eight) and that is
/// estimated to take less time than in f32.
std::optional<TileChoice> choose_staged_tile(const kernel::MatmulKernel& kernel, const Target& target);

void render_staged(const kernel::MatmulKernel& kernel, const MatrixTile& tile, int split, const Target& target,
                   Scratch& scratch, Rendered& rendered);

}  // namespace weft::webgpu
