// Tiles of a product on subgroup matrices (tensor cores): the table, the time estimates, and the choice.
#pragma once

#include <cstdlib>
#include <optional>
#include <span>

#include "backend/webgpu/wgsl/matmul/tile.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu {

/// The one shape of matrices that is used: f16 operands, sums in f32.
constexpr int kMatrix = 16;

/// One way to tile a product: a workgroup computes rows x columns results, `depth` of k at a time, each subgroup of 32
/// threads subgroup_rows x subgroup_columns of them.
///
/// With one buffer in workgroup memory the next step is read into registers while this one is multiplied. With two, the
/// fragments of the next step are read while those of this one are multiplied, and `turn` steps are written out; the next
/// `ahead` steps wait in registers. An operand whose neighbours follow k is then staged in chunks of several steps, a
/// part of the rows each step, because short rows are slow to read.
struct MatrixTile {
  const char* name;
  int rows, columns, depth;
  int subgroup_rows, subgroup_columns;
  int buffers;           // 1 or 2
  int chunk_a, chunk_b;  // of k, of an operand whose neighbours follow k: a multiple of depth
  int ahead, turn;       // two buffers only, else 1
  bool late_loads;       // reads follow the fragments of a step, else they precede its barrier
  /// Over what a compute unit multiplies in f32 registers, when full: by whether A's neighbours follow k, and B's.
  double efficiency[2][2];
  int resident;  // workgroups that a compute unit holds

  int subgroups() const { return rows / subgroup_rows * (columns / subgroup_columns); }
  int threads() const { return 32 * subgroups(); }
};
std::span<const MatrixTile> matrix_tiles();

/// Whether the product may run on the matrices of a device: operands of f16 or of types whose every number f16 holds, one
/// of them f16, that are plain views.
bool suits_matrices(const kernel::MatmulKernel& kernel);

/// Whether neighbours in memory follow k, in a plain view [batch, extent, k].
bool follows_k(const kernel::MatrixView& view);

/// Whether the view differs from one batch to the next.
bool is_batched(const kernel::MatrixView& view);

/// Vectors of four from one row of results to the next where they pass through workgroup memory: rows that are stored together
/// share no bank.
constexpr int result_pitch(const MatrixTile& tile) { return tile.columns / 4 + 2; }

/// Bytes of workgroup memory for the exponents by which rows and columns of the tile are scaled.
constexpr int exponent_bytes(const MatrixTile& tile) { return 4 * (tile.rows + tile.columns); }

/// Elements of an operand [batch, extent, k] that may be read together: 8, 4 or 1.
int groups_of(const kernel::Operand& operand, const kernel::MatrixView& view, Extent extent, Extent k);

/// Bytes of workgroup memory that the tile takes for such operands, each of so many halves, and later for results.
int staged_bytes(const MatrixTile& tile, bool a_along_k, bool b_along_k, int halves = 1);
inline int workgroup_bytes(const MatrixTile& tile, bool a_along_k, bool b_along_k, int halves = 1) {
  return staged_bytes(tile, a_along_k, b_along_k, halves) + exponent_bytes(tile);
}

/// Whether the tile fits a device, and its threads share the staging of such operands evenly; the tile does not support other
/// layouts.
bool fits(const MatrixTile& tile, bool a_along_k, bool b_along_k, const Limits& limits);

/// Whether steps of the tile are whole, with chunks of B along k.
bool has_whole_steps(const MatrixTile& tile, Extent k);

/// Whether the tile can have columns of two products, half of each (ScaledOperands::second_b): operands whose neighbours follow k,
/// in eights, and whole tiles.
bool suits_pair(const MatrixTile& tile, const kernel::MatmulKernel& kernel);

/// Estimated microseconds.
double estimate(const MatrixTile& tile, int split, const kernel::MatmulKernel& kernel, const DeviceProfile& device);

/// The tile and split with the least estimated time; nothing if the device has no such matrices (Target::matrices), the
/// operands do not suit, or no tile fits.
std::optional<TileChoice> choose_matrix_tile(const kernel::MatmulKernel& kernel, const Target& target);

}  // namespace weft::webgpu
