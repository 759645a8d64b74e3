// Tiles of a matrix product: the table, the time estimates, and the choice.
#pragma once

#include <cstdint>
#include <span>

#include "backend/webgpu/wgsl/render.hpp"

namespace weft::webgpu {

/// One way to tile a product in f32 registers (for tensor cores: matrix_tile.hpp): a workgroup computes rows x columns results,
/// `depth` of k at a time, and each thread thread_rows x thread_columns of them, in groups of 4 x 4; 32 neighbouring threads
/// form a patch of 4 x 8, so that their reads from workgroup memory are broadcast or contiguous.
struct Tile {
  const char* name;
  int rows, columns, depth;
  int thread_rows, thread_columns;
  double efficiency;  // of a compute unit's peak, when full
  int resident;       // workgroups that a compute unit holds

  int threads() const { return rows / thread_rows * (columns / thread_columns); }
  /// Bytes of workgroup memory, both operands padded.
  int workgroup_bytes() const { return depth * (rows / 4 + 1 + columns / 4 + 1) * 16; }
};
std::span<const Tile> tiles();

struct TileChoice {
  int tile = 0;   // index into tiles()
  int split = 1;  // workgroups that share a result, each over a part of k
};
/// The tile and split with the least estimated time among those that fit the target's limits.
TileChoice choose_tile(Extent batch, Extent m, Extent n, Extent k, const Target& target);
/// Rows that tiles of `tile` rows have where `rows` fall evenly on groups, each of which begins a tile.
Extent rows_in_groups(Extent rows, Extent groups, int tile);
/// The tile with the least estimated time for such rows; none is split.
int choose_grouped_tile(Extent rows, Extent groups, Extent n, Extent k, const Target& target);
/// The estimated microseconds of that choice.
double estimate_of_choice(Extent batch, Extent m, Extent n, Extent k, const Target& target);
/// Whether the partial results of this many splits can be bound as one operand.
bool split_fits(Extent batch, Extent m, Extent n, int split, const Target& target);
/// The properties of a tile that determine its time.
struct Work {
  int rows, columns, depth;
  double efficiency;  // of a compute unit's peak in f32 registers, when full
  int resident;       // workgroups that a compute unit holds
  double fmas;        // for one k, that wait for one another
};
/// Estimated microseconds.
double estimate(const Work& work, int split, Extent batch, Extent m, Extent n, Extent k, const DeviceProfile& device);
double estimate(const Tile& tile, int split, Extent batch, Extent m, Extent n, Extent k, const DeviceProfile& device);

constexpr int kPatchRows = 4, kPatchColumns = 8;  // threads

}  // namespace weft::webgpu
