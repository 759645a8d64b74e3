#include "backend/cpu/gemm_split.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace weft::cpu::blocked {
namespace {

constexpr int64_t kBlockBytes = 640 * 1024;           // of B for one block of k, in an L2 cache of 1 MiB
constexpr int64_t kStripBytesMax = 2048;              // columns of a task's block of C
constexpr int64_t kPackedBytesMax = 8 * 1024 * 1024;  // of B packed over all of k, kept for the thread's next task
constexpr int64_t kSharedBlockBytes = 800 * 1024;  // kBlockBytes with a shared B: C goes through memory for each block
constexpr int64_t kSharedPanels = 64;              // at least, so that packing B pays
constexpr int64_t kDepthMax = 512;
constexpr int64_t kBlockDepthMax = 256;  // where a panel has 32 rows, which would not stay in L1
constexpr double kSmallTask = 1e6;       // multiply-adds: some 10 us, far above the cost of starting a task
constexpr double kLargeTask = 1e9;       // beyond kTasks: the rows of a task share its packed operands

/// Rows at this distance fall on few sets of the cache, so a panel of them does not stay there.
bool is_awkward(int64_t stride_bytes) {
  const int64_t distance = std::abs(stride_bytes) % 4096;
  return std::abs(stride_bytes) >= 4096 && std::min(distance, 4096 - distance) < 256;
}

}  // namespace

template <class T>
Split split(const GemmArgs<T>& args, const GemmKernels<T>& kernels) {
  constexpr int64_t kSize = sizeof(T);
  const int64_t strip = kernels.lanes * kGemmVectors, unit = unit_of(kernels), depth = ceil_divide(args.k, unit);
  Split s;

  const double work = static_cast<double>(args.m) * static_cast<double>(args.n) * static_cast<double>(depth);
  const double total = work * static_cast<double>(args.batch);
  const double wanted = std::clamp(total / kSmallTask, 1.0, std::clamp(total / kLargeTask, double{kTasks}, 64.0));
  const auto per_product = static_cast<int64_t>(std::ceil(wanted / static_cast<double>(args.batch)));
  const int64_t strips = ceil_divide(args.n, strip);
  s.column_tiles = ceil_divide(args.n * kSize, kStripBytesMax);
  s.panels = ceil_divide(args.m, kernels.rows);
  // A task's rows share the reads of B, from L2 if all of B fits there. Rows that are read through a view, or turned into blocks,
  // are packed once for each tile of columns, so tiles are narrow only if there are few rows.
  const bool finds_a = args.a.view != nullptr || (kernels.reads_blocks() && args.a.column != 1);
  const int64_t tiles_min = args.a.view != nullptr ? 4 : 8;
  const int64_t task_panels = finds_a ? 1 : depth * std::min(args.n * kSize, kStripBytesMax) <= kBlockBytes ? 2 : 4;
  s.row_tiles =
      std::clamp<int64_t>(ceil_divide(per_product, s.column_tiles), 1, std::max<int64_t>(1, s.panels / task_panels));
  if (s.row_tiles * s.column_tiles < std::min(per_product, finds_a ? tiles_min : kTasks)) {
    // Narrow tiles read A more often, so they are used only if there are too few wide tiles.
    const int64_t wide = ceil_divide(args.n * kSize, kStripBytesMax / 2);
    const int64_t most = 2 * s.row_tiles * wide >= kTasks ? std::max(wide, std::min<int64_t>(2, strips / 2))
                                                          : std::max<int64_t>(1, strips / 2);
    s.column_tiles = std::clamp(ceil_divide(per_product, s.row_tiles), s.column_tiles, most);
  }
  // Packing is divided between at least two tiles, and so between threads, unless kernels are so fast that few columns to a
  // panel cost more.
  if (!kernels.reads_blocks() && args.b.column != 1 && s.column_tiles == 1 && s.row_tiles > 1 && strips >= 4)
    s.column_tiles = 2;
  s.tile_columns = ceil_divide(strips, s.column_tiles) * strip;
  s.column_tiles = ceil_divide(args.n, s.tile_columns);
  s.batch_groups = args.batch;
  if (s.row_tiles * s.column_tiles == 1) {
    s.batch_groups = std::min(args.batch, static_cast<int64_t>(wanted));
    if (s.batch_groups > 1) s.batch_groups = s.batch_groups / 2 * 2;  // for a common number of cores
  }
  s.tasks = s.row_tiles * s.column_tiles * s.batch_groups;

  const int64_t width = std::min(s.tile_columns, ceil_divide(args.n, kernels.lanes) * kernels.lanes);
  // B with short rows is as fast unpacked, unless many panels read it.
  const int64_t pack_from_rows = args.b.row * kSize <= 1024 ? 1024 : 256;
  const bool is_large = args.m >= pack_from_rows || is_awkward(args.b.row * kSize);
  const int64_t stride = args.a.column == 1 ? args.a.row : args.a.column;
  s.pack_a = args.a.view != nullptr || (is_awkward(stride * kSize / unit) && (args.a.column == 1 || width > strip));
  // For a small B, packing a private copy is faster than reading one that another thread packed.
  const bool must_pack_b = args.b.column != 1 || args.b.view != nullptr;
  s.shares_b = args.batch == 1 && s.panels >= kSharedPanels && s.row_tiles > 1 && (must_pack_b || is_large) &&
               depth * args.n * kSize > kBlockBytes;
  s.by_block = s.shares_b && depth * args.n * kSize > kSharedBytesMax;
  s.pack_a = s.pack_a || (kernels.reads_blocks() && args.a.column != 1);
  // If threads share A, or a task uses it with all tiles of a shared B, it is converted once.
  s.pack_a = s.pack_a || (args.a.narrow && s.shares_b);
  s.shares_a = s.by_block && s.pack_a;
  s.pack_b = s.shares_b || must_pack_b || args.b.narrow || (s.panels > 2 * s.row_tiles && is_large);
  if (s.shares_b) {
    s.column_tiles = ceil_divide(args.n * kSize, kStripBytesMax);
    s.tile_columns = ceil_divide(strips, s.column_tiles) * strip;
    s.column_tiles = ceil_divide(args.n, s.tile_columns);
  }
  const int64_t most = kernels.reads_blocks() ? kBlockDepthMax : kDepthMax;
  const int64_t depth_max = s.shares_b ? std::min(most, kSharedBlockBytes / (s.tile_columns * kSize))
                                       : std::clamp<int64_t>(kBlockBytes / (width * kSize), 128, most);
  s.depth_block = ceil_divide(depth, std::max<int64_t>(1, ceil_divide(depth, depth_max)));
  if (kernels.depth_step > 1) s.depth_block = ceil_divide(s.depth_block, kernels.depth_step) * kernels.depth_step;
  s.keeps_b = !s.shares_b && s.pack_b && s.row_tiles > 1 && depth * s.tile_columns * kSize <= kPackedBytesMax;
  s.keeps_all =
      s.keeps_b && s.column_tiles <= kKeptTiles && depth * s.tile_columns * s.column_tiles * kSize <= kPackedBytesMax;
  return s;
}

template Split split(const GemmArgs<float>& args, const GemmKernels<float>& kernels);
template Split split(const GemmArgs<double>& args, const GemmKernels<double>& kernels);

}  // namespace weft::cpu::blocked
