#include "backend/webgpu/wgsl/matmul.hpp"

#include "backend/webgpu/wgsl/matmul/as_reduction.hpp"
#include "backend/webgpu/wgsl/matmul/integer_product.hpp"
#include "backend/webgpu/wgsl/matmul/matrix_writer.hpp"
#include "backend/webgpu/wgsl/matmul/scaled_product.hpp"
#include "backend/webgpu/wgsl/matmul/staged_product.hpp"
#include "backend/webgpu/wgsl/matmul/tile_writer.hpp"

namespace weft::webgpu {
using kernel::MatmulKernel;

void render(const MatmulKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered,
            std::optional<TileChoice> choice) {
  if (kernel.batch * kernel.m * kernel.n == 0) return;
  const bool tiled =
      is_tiled(kernel.m, kernel.n, kernel.k) && reads_as_f32(kernel.a.type) && reads_as_f32(kernel.b.type);
  if (!tiled && !choice) {
    const bool integers = is_tiled(kernel.m, kernel.n, kernel.k) && suits_integers(kernel);
    if (integers && target.integer_matrices())
      return render_integers(kernel, IntegerForm::matrices, target, scratch, rendered);
    if (integers && target.tested.integer_dots)
      return render_integers(kernel, IntegerForm::dots, target, scratch, rendered);
    return render_as_reduction(kernel, target, scratch, rendered);
  }
  if (!choice) {
    if (const auto on_matrices = choose_matrix_tile(kernel, target)) {
      const MatrixTile& tile = matrix_tiles()[static_cast<std::size_t>(on_matrices->tile)];
      return render_on_matrices(kernel, tile, on_matrices->split, target, scratch, rendered);
    }
    if (const auto staged = choose_staged_tile(kernel, target)) {
      const MatrixTile& tile = matrix_tiles()[static_cast<std::size_t>(staged->tile)];
      return render_staged(kernel, tile, staged->split, target, scratch, rendered);
    }
    if (const auto scaled = choose_scaled_tile(kernel, target)) {
      const MatrixTile& tile = matrix_tiles()[static_cast<std::size_t>(scaled->tile)];
      return render_scaled(kernel, tile, scaled->split, target, scratch, rendered);
    }
  }
  if (!choice) choice = choose_tile(kernel.batch, kernel.m, kernel.n, kernel.k, target);
  TileWriter(kernel, nullptr, nullptr, tiles()[static_cast<std::size_t>(choice->tile)], choice->split, target, scratch,
             rendered)
      .render();
}

void render_on_matrices(const MatmulKernel& kernel, const MatrixTile& tile, int split, const Target& target,
                        Scratch& scratch, Rendered& rendered) {
  if (kernel.batch * kernel.m * kernel.n == 0) return;
  MatrixWriter(kernel, tile, split, target, scratch, rendered).render();
}

bool is_tiled(Extent m, Extent n, Extent k) { return k > 0 && m > 4 && n > 4; }

void render_grouped(const MatmulKernel& kernel, const Tile& tile, const RowGroups& groups, const Target& target,
                    Scratch& scratch, Rendered& rendered) {
  TileWriter(kernel, &groups, nullptr, tile, 1, target, scratch, rendered).render();
}

void render_over_ranges(const MatmulKernel& kernel, const Tile& tile, const kernel::Operand& k_ends,
                        const Target& target, Scratch& scratch, Rendered& rendered) {
  TileWriter(kernel, nullptr, &k_ends, tile, 1, target, scratch, rendered).render();
}

}  // namespace weft::webgpu
