#include "backend/webgpu/wgsl/matmul/matrix_tile.hpp"

#include <algorithm>
#include <limits>

#include "tensor/element.hpp"

namespace weft::webgpu {
namespace {

// Measured on an H200. Two buffers are for long sums; with one, a tile starts sooner.
constexpr MatrixTile kMatrixTiles[] = {
    {"128x128x16 in two buffers", 128, 128, 16, 64, 64, 2, 32, 32, 1, 4, false, {{5.2, 3.0}, {3.0, 2.8}}, 2},
    {"128x256x16 in two buffers", 128, 256, 16, 64, 64, 2, 32, 32, 2, 4, false, {{4.6, 4.0}, {4.7, 3.5}}, 1},
    {"256x128x16 in two buffers", 256, 128, 16, 64, 64, 2, 32, 32, 2, 4, false, {{4.6, 4.5}, {4.0, 3.5}}, 1},
    {"128x128x64", 128, 128, 64, 128, 32, 1, 64, 64, 1, 1, false, {{3.5, 3.8}, {3.8, 4.0}}, 2},
    {"128x128x32", 128, 128, 32, 64, 64, 1, 32, 32, 1, 1, false, {{4.0, 3.8}, {4.0, 3.5}}, 2},
    {"128x128x64 in eight subgroups", 128, 128, 64, 64, 32, 1, 64, 64, 1, 1, false, {{3.3, 3.3}, {3.8, 3.42}}, 2},
    {"128x192x64 in eight subgroups", 128, 192, 64, 64, 48, 1, 64, 64, 1, 1, false, {{3.0, 3.6}, {3.0, 3.8}}, 1},
    {"192x128x64 in eight subgroups", 192, 128, 64, 48, 64, 1, 64, 64, 1, 1, false, {{3.6, 3.0}, {3.9, 3.4}}, 1},
    {"96x128x32", 96, 128, 32, 48, 64, 1, 32, 32, 1, 1, false, {{3.0, 3.0}, {3.6, 3.3}}, 2},
    {"128x128x32 in eight subgroups", 128, 128, 32, 64, 32, 1, 32, 32, 1, 1, false, {{2.8, 2.8}, {3.4, 2.8}}, 2},
    {"64x64x64", 64, 64, 64, 32, 32, 1, 64, 64, 1, 1, false, {{2.4, 2.3}, {2.4, 2.4}}, 6},
    {"64x64x32", 64, 64, 32, 32, 32, 1, 32, 32, 1, 1, false, {{2.4, 2.3}, {2.4, 2.2}}, 6},
    {"32x64x64", 32, 64, 64, 16, 32, 1, 64, 64, 1, 1, false, {{1.5, 1.5}, {1.5, 1.6}}, 8},
    {"32x64x32", 32, 64, 32, 16, 32, 1, 32, 32, 1, 1, false, {{1.5, 1.5}, {1.5, 1.4}}, 8},
};

// Serial costs of one subgroup, in fmas: a step and each vector that a thread stages in it, but for one k no more than the last
// of these; and 64 x 64 results for one k.
constexpr double kMatrixStepFmas = 89, kMatrixVectorFmas = 9.5, kMatrixWaitMost = 4, kMatrixFmas = 6.5;

/// Vectors of eight in a line and lines of one staging step, which threads share evenly.
bool is_shared_evenly(const MatrixTile& tile, int extent, int chunk, bool along_k) {
  const int vectors = (along_k ? chunk : extent) / 8, slices = along_k ? chunk / tile.depth : 1;
  const int lines = (along_k ? extent : tile.depth) / slices;
  return tile.threads() % vectors == 0 && (lines * vectors % tile.threads() == 0 || lines * vectors < tile.threads()) &&
         (tile.buffers == 1 || tile.turn % (2 * slices) == 0);
}

/// Factor of the efficiency if operands are not read by eights: each vector needs much text, so few vectors are best.
constexpr double one_by_one(const MatrixTile& tile) { return tile.depth > 32 ? 0.15 : tile.buffers == 2 ? 0.25 : 0.4; }

/// Factor of the time where short sums are followed by an epilogue: tiles with few threads for their results, or whose
/// subgroups store them in many parts, then wait longer. Measured on an H200 with biases, gelu and results in f16.
double finishing(const MatrixTile& tile, int split, const kernel::MatmulKernel& kernel) {
  constexpr Extent kShort = 2048;
  constexpr std::size_t kLongEpilogue = 20;  // steps, as the gradient of gelu has
  if (split > 1 || kernel.k > kShort || kernel.epilogue.steps.size() < 2) return 1;
  const bool few_threads = tile.subgroup_rows * tile.subgroup_columns > 64 * 32;
  if (kernel.epilogue.steps.size() >= kLongEpilogue && (few_threads || tile.depth > 32)) return 1.6;
  return tile.subgroup_rows > 64 ? 1.6 : tile.buffers == 2 ? 1.25 : 1;
}

/// Waits of one k. Deep steps share theirs.
double waiting_fmas(const MatrixTile& tile) {
  const double vectors = (tile.rows + tile.columns) * tile.depth / 8.0 / tile.threads();
  return std::min(kMatrixWaitMost, (kMatrixStepFmas + kMatrixVectorFmas * vectors) / tile.depth);
}

/// Whether every group of eight neighbours is read at once.
bool by_eights(const kernel::MatmulKernel& kernel) {
  const auto aligned = [&](const kernel::Operand& operand, const kernel::MatrixView& view, Extent extent) {
    return operand.type == DType::f16 && groups_of(operand, view, extent, kernel.k) == 8;
  };
  return aligned(kernel.a, kernel.a_view, kernel.m) && aligned(kernel.b, kernel.b_view.transposed(), kernel.n);
}

}  // namespace

int groups_of(const kernel::Operand& operand, const kernel::MatrixView& view, Extent extent, Extent k) {
  const bool along_k = follows_k(view);
  const Extent along = along_k ? view.column() : view.row(), across = along_k ? view.row() : view.column();
  const kernel::View& batch = view.at.batch;
  for (const int group : {8, 4}) {
    if (along == 1 && across % group == 0 && operand.offset % group == 0 && batch.bounds.empty() &&
        batch.offset % group == 0 && (along_k ? k : extent) % group == 0 &&
        std::all_of(batch.strides.begin(), batch.strides.end(), [&](Extent stride) { return stride % group == 0; }))
      return group;
  }
  return 1;
}

bool fits(const MatrixTile& tile, bool a_along_k, bool b_along_k, const Limits& limits) {
  return workgroup_bytes(tile, a_along_k, b_along_k) <= static_cast<int>(limits.workgroup_bytes) &&
         tile.threads() <= static_cast<int>(limits.workgroup_invocations) &&
         is_shared_evenly(tile, tile.rows, tile.buffers == 1 ? tile.depth : tile.chunk_a, a_along_k) &&
         is_shared_evenly(tile, tile.columns, tile.buffers == 1 ? tile.depth : tile.chunk_b, b_along_k);
}

std::span<const MatrixTile> matrix_tiles() { return kMatrixTiles; }

bool follows_k(const kernel::MatrixView& view) {
  const Extent stride = view.row(), k_stride = view.column();
  return stride != 1 && (k_stride == 1 || std::abs(k_stride) < std::abs(stride));
}

bool is_batched(const kernel::MatrixView& view) {
  const auto& strides = view.at.batch.strides;
  return std::any_of(strides.begin(), strides.end(), [](Extent stride) { return stride != 0; });
}

bool suits_matrices(const kernel::MatmulKernel& kernel) {
  const auto suits = [](const kernel::Operand& operand, const kernel::MatrixView& view) {
    return (operand.type == DType::f16 || (is_storage(operand.type) && holds_all(DType::f16, operand.type))) &&
           view.is_plain();
  };
  return (kernel.a.type == DType::f16 || kernel.b.type == DType::f16) && suits(kernel.a, kernel.a_view) &&
         suits(kernel.b, kernel.b_view) && kernel.k > 0;
}

int staged_bytes(const MatrixTile& tile, bool a_along_k, bool b_along_k, int halves) {
  const auto staged = [&](int extent, int chunk, bool along_k) {
    const int lines = along_k ? extent : tile.depth;
    const int vectors = (along_k ? (tile.buffers == 1 ? tile.depth : chunk) : extent) / 8;
    return halves * tile.buffers * lines * (vectors + 1);
  };
  const int results = tile.rows / tile.subgroup_rows * kMatrix * result_pitch(tile);
  const int operands = staged(tile.rows, tile.chunk_a, a_along_k) + staged(tile.columns, tile.chunk_b, b_along_k);
  return 16 * std::max(results, operands);
}

bool has_whole_steps(const MatrixTile& tile, Extent k) {
  return k % (Extent{tile.depth} * tile.turn) == 0 && k % (tile.buffers == 1 ? tile.depth : tile.chunk_b) == 0;
}

bool suits_pair(const MatrixTile& tile, const kernel::MatmulKernel& kernel) {
  const int chunk = tile.buffers == 1 ? tile.depth : tile.chunk_b;
  return follows_k(kernel.b_view.transposed()) && kernel.n % (tile.columns / 2) == 0 &&
         has_whole_steps(tile, kernel.k) && tile.columns / 2 % (tile.threads() / (chunk / 8)) == 0;
}

double estimate(const MatrixTile& tile, int split, const kernel::MatmulKernel& kernel, const DeviceProfile& device) {
  const bool a_along_k = follows_k(kernel.a_view), b_along_k = follows_k(kernel.b_view.transposed());
  const Work work{tile.rows,
                  tile.columns,
                  tile.depth * tile.turn,
                  tile.efficiency[a_along_k][b_along_k] * (by_eights(kernel) ? 1 : one_by_one(tile)),
                  tile.resident,
                  waiting_fmas(tile) + kMatrixFmas * tile.subgroup_rows * tile.subgroup_columns / (64 * 64)};
  return estimate(work, split, kernel.batch, kernel.m, kernel.n, kernel.k, device) * finishing(tile, split, kernel);
}

std::optional<TileChoice> choose_matrix_tile(const kernel::MatmulKernel& kernel, const Target& target) {
  if (!target.matrices() || !suits_matrices(kernel)) return {};
  const bool a_along_k = follows_k(kernel.a_view), b_along_k = follows_k(kernel.b_view.transposed());
  std::optional<TileChoice> best;
  double least = std::numeric_limits<double>::infinity();
  for (int t = 0; t < static_cast<int>(std::size(kMatrixTiles)); ++t) {
    const MatrixTile& tile = kMatrixTiles[t];
    if (!fits(tile, a_along_k, b_along_k, target.limits)) continue;
    // Gradients of weights, whose sums are over rows, are better split: the joins share dispatches with other work.
    const bool is_small = tile.rows <= 64 && tile.columns <= 64;
    if (is_small && tile.depth > 32 && !a_along_k && !b_along_k) continue;
    const Extent turns = divide_up(kernel.k, tile.depth * tile.turn);
    const Extent split_max = std::clamp<Extent>(turns / 2, 1, 64);
    for (int split = 1; split <= split_max && split_fits(kernel.batch, kernel.m, kernel.n, split, target); ++split) {
      const double time = estimate(tile, split, kernel, target.profile);
      if (time >= least * 0.999) continue;
      least = time;
      best = {t, split};
    }
  }
  return best;
}

}  // namespace weft::webgpu
