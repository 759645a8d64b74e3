#include "backend/webgpu/wgsl/matmul/tile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "weft/error.hpp"

namespace weft::webgpu {

namespace {

// Larger tiles reuse more data; smaller tiles fill the device sooner. Measured on an H200 at 4096 and on the shapes of
// char-gpt, where 128x128x16 reaches 34 to 39 TFLOP/s and the two tiles of half its size 43 to 46.
constexpr Tile kTiles[] = {
    {"128x128x16", 128, 128, 16, 8, 8, 0.66, 2}, {"128x64x16", 128, 64, 16, 8, 8, 0.72, 4},
    {"64x128x16", 64, 128, 16, 8, 8, 0.71, 4},   {"64x64x16", 64, 64, 16, 8, 4, 0.66, 5},
    {"64x64x16s", 64, 64, 16, 4, 4, 0.45, 4},    {"64x32x16", 64, 32, 16, 4, 4, 0.42, 8},
    {"32x64x16", 32, 64, 16, 4, 4, 0.42, 8},     {"32x32x16", 32, 32, 16, 4, 4, 0.38, 14},
};

// The costs of parts of a product, in units of the device profile. The ratios are those of an H200.
constexpr double kFirstDispatches = 1.5;                  // with the first read and the last write
constexpr double kJoinDispatches = 5.0 / 3;               // the second dispatch that a split needs
constexpr double kJoinBandwidth = 2.5 / 4.5;              // of partial sums, which are written and read again
constexpr double kStepLoads = 2.1875;                     // one step of k in a compute unit that has little else to do
constexpr double kStepFmas = 2.5, kProductFmas = 0.3125;  // of one thread and one k, one after another

bool fits(const Tile& tile, const Target& target) {
  return tile.workgroup_bytes() <= static_cast<int>(target.limits.workgroup_bytes) &&
         tile.threads() <= static_cast<int>(target.limits.workgroup_invocations);
}

}  // namespace

std::span<const Tile> tiles() { return kTiles; }

double estimate(const Tile& tile, int split, Extent batch, Extent m, Extent n, Extent k, const DeviceProfile& device) {
  return estimate(Work{tile.rows, tile.columns, tile.depth, tile.efficiency, tile.resident,
                       kStepFmas + kProductFmas * tile.thread_rows * tile.thread_columns},
                  split, batch, m, n, k, device);
}

double estimate(const Work& tile, int split, Extent batch, Extent m, Extent n, Extent k, const DeviceProfile& device) {
  const double groups = static_cast<double>(divide_up(m, tile.rows) * divide_up(n, tile.columns) * batch) * split;
  const double steps = static_cast<double>(divide_up(divide_up(k, tile.depth), split));
  const double alone =
      2.0 * tile.rows * tile.columns * tile.depth * steps / (device.unit_flops * tile.efficiency) * 1e6;
  const double slots = static_cast<double>(device.compute_units) * tile.resident;
  const double full = std::floor(groups / slots);
  // In the last round a compute unit with few workgroups waits for memory, and each thread waits for its own results.
  const double last = std::ceil((groups - full * slots) / device.compute_units);
  const double thread_alone = steps * tile.depth * tile.fmas * device.fma_microseconds;
  double time = full * tile.resident * alone;
  if (last > 0) time += std::max({last * alone, thread_alone, steps * kStepLoads * device.load_microseconds});
  time += kFirstDispatches * device.dispatch_microseconds;
  if (split > 1)
    time += kJoinDispatches * device.dispatch_microseconds +
            8.0 * static_cast<double>(batch * m * n) * split / (kJoinBandwidth * device.bytes_per_second) * 1e6;
  return time;
}

bool split_fits(Extent batch, Extent m, Extent n, int split, const Target& target) {
  return split == 1 || static_cast<double>(batch) * static_cast<double>(m) * static_cast<double>(n) * split * 4 <
                           static_cast<double>(target.limits.binding_bytes);
}

namespace {

/// Software adapters spend time between the multiplications, relatively more if a thread has few of them.
double software_estimate(const Tile& tile, Extent m, Extent n) {
  return static_cast<double>(divide_up(m, tile.rows) * tile.rows * divide_up(n, tile.columns) * tile.columns) /
         (tile.thread_rows * tile.thread_columns);
}

int checked_choice(int tile, const Target& target) {
  if (tile < 0)
    throw DeviceError(fmt::format("webgpu: no matrix product kernel fits {} bytes of workgroup memory and {} threads",
                                  target.limits.workgroup_bytes, target.limits.workgroup_invocations));
  return tile;
}

}  // namespace

TileChoice choose_tile(Extent batch, Extent m, Extent n, Extent k, const Target& target) {
  TileChoice best{-1, 1};
  double least = std::numeric_limits<double>::infinity();
  for (int t = 0; t < static_cast<int>(std::size(kTiles)); ++t) {
    const Tile& tile = kTiles[t];
    if (!fits(tile, target)) continue;
    if (!target.unroll) {
      const double time = software_estimate(tile, m, n);
      if (time < least) {
        least = time;
        best = {t, 1};
      }
      continue;
    }
    const Extent steps = divide_up(k, tile.depth);
    const Extent split_max = std::clamp<Extent>(steps / 4, 1, 64);
    for (int split = 1; split <= split_max && split_fits(batch, m, n, split, target); ++split) {
      const double time = estimate(tile, split, batch, m, n, k, target.profile);
      if (time < least * 0.999) {
        least = time;
        best = {t, split};
      }
    }
  }
  checked_choice(best.tile, target);
  return best;
}

Extent rows_in_groups(Extent rows, Extent groups, int tile) {
  const Extent used = std::max<Extent>(1, std::min(rows, groups));
  return used * divide_up(divide_up(rows, used), tile) * tile;
}

int choose_grouped_tile(Extent rows, Extent groups, Extent n, Extent k, const Target& target) {
  int best = -1;
  double least = std::numeric_limits<double>::infinity();
  for (int t = 0; t < static_cast<int>(std::size(kTiles)); ++t) {
    const Tile& tile = kTiles[t];
    if (!fits(tile, target)) continue;
    const Extent m = rows_in_groups(rows, groups, tile.rows);
    const double time = target.unroll ? estimate(tile, 1, 1, m, n, k, target.profile) : software_estimate(tile, m, n);
    if (time < least * 0.999) {
      least = time;
      best = t;
    }
  }
  return checked_choice(best, target);
}

double estimate_of_choice(Extent batch, Extent m, Extent n, Extent k, const Target& target) {
  const TileChoice choice = choose_tile(batch, m, n, k, target);
  return estimate(tiles()[static_cast<std::size_t>(choice.tile)], choice.split, batch, m, n, k, target.profile);
}

}  // namespace weft::webgpu
