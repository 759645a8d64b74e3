// Matrix products as WGSL: register-tiled in exact f32.
#pragma once

#include <optional>

#include "backend/webgpu/wgsl/matmul/tile.hpp"
#include "backend/webgpu/wgsl/render.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu {

/// Appends the dispatches of `kernel`: one, or two where k is split (the second adds up and applies the epilogue).
/// f32 with all of m, n > 4 is tiled; the rest (matrix times vector, integers, k = 0) runs as a reduction.
/// `choice` overrules choose_tile.
void render(const kernel::MatmulKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered,
            std::optional<TileChoice> choice = {});
/// Whether an f32 product of these extents is tiled.
bool is_tiled(Extent m, Extent n, Extent k);
/// Such a product whose rows are taken in an order, `order` u32 [m + 1]: row i of A and C is number order[i], and order[m]
/// rows are asked for. The rest of C is zero; tiles of such rows only read nothing.
void render_ordered(const kernel::MatmulKernel& kernel, const kernel::Operand& order, const Target& target,
                    Scratch& scratch, Rendered& rendered);

}  // namespace weft::webgpu
