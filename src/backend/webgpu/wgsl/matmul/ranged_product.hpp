// Products of bf16 on subgroup matrices of f16: a power of two for each operand takes its numbers to halves.
//
// Three short dispatches and the product: the first finds the largest number of each operand and the smallest of its rows (or
// columns, as they are summed), the second writes scaled halves in the operand's own layout, and the last computes the product
// in f32 if the numbers do not fit: where they are infinite, NaN, or rows are too far apart. The product then does nothing.
#pragma once

#include <optional>

#include "backend/webgpu/wgsl/matmul/matrix_tile.hpp"
#include "backend/webgpu/wgsl/render.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu {

/// The tile and split, if the product can be computed this way (operands of bf16 in aligned groups of eight) and that is
/// estimated to take less time than in f32.
std::optional<TileChoice> choose_ranged_tile(const kernel::MatmulKernel& kernel, const Target& target);

void render_ranged(const kernel::MatmulKernel& kernel, const MatrixTile& tile, int split, const Target& target,
                   Scratch& scratch, Rendered& rendered);

}  // namespace weft::webgpu
