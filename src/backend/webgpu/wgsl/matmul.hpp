// Matrix products as WGSL: tiled in registers in exact f32, or on subgroup matrices.
#pragma once

#include <optional>

#include "backend/webgpu/wgsl/matmul/matrix_tile.hpp"
#include "backend/webgpu/wgsl/matmul/row_groups.hpp"
#include "backend/webgpu/wgsl/matmul/tile.hpp"
#include "backend/webgpu/wgsl/render.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu {

/// Appends the dispatches of `kernel`: one, or two where k is split (the second adds up and applies the epilogue).
/// Floats with all of m, n > 4 are tiled; the rest (matrix times vector, integers, k = 0) runs as a reduction. Tiles of f16
/// run on subgroup matrices where the device has them (choose_matrix_tile): products are exact then, sums are in f32 as the
/// device rounds them. Products of f32 run there too where their precision allows it (matmul/scaled_product.hpp). `choice`
/// overrules choose_tile, and with it that.
void render(const kernel::MatmulKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered,
            std::optional<TileChoice> choice = {});
/// The same in this tile of subgroup matrices, whether or not the device lists them.
void render_on_matrices(const kernel::MatmulKernel& kernel, const MatrixTile& tile, int split, const Target& target,
                        Scratch& scratch, Rendered& rendered);
/// Whether an f32 product of these extents is tiled.
bool is_tiled(Extent m, Extent n, Extent k);
/// Such a product whose rows are in `groups`; B has a batch for each. The tile has `groups.tile` rows.
void render_grouped(const kernel::MatmulKernel& kernel, const Tile& tile, const RowGroups& groups, const Target& target,
                    Scratch& scratch, Rendered& rendered);
/// Such a product of which each batch sums over a range of k: TileWriter's `k_ends`.
void render_over_ranges(const kernel::MatmulKernel& kernel, const Tile& tile, const kernel::Operand& k_ends,
                        const Target& target, Scratch& scratch, Rendered& rendered);

}  // namespace weft::webgpu
