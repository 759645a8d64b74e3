// The matrix product: how C is split into tasks, what each packs, and the loops around the kernels.
//
// A task owns a block of C (or some whole small products) and computes it alone, over all of k, so that tasks never wait for
// each other. Inside it, k is cut into blocks whose part of B stays in the L2 cache. A panel of A (the rows of one kernel call)
// stays in L1 and is multiplied with all strips of B (the columns of one kernel call) before the next panel. If a product's
// tasks share a packed B, all threads pack it first. If all of B would not stay in the caches, all tasks go through blocks of k
// together, and share A as well.
#include "backend/cpu/gemm.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "backend/cpu/gemm_kernels.hpp"
#include "backend/cpu/gemm_view.hpp"
#include "backend/cpu/scratch_block.hpp"
#include "backend/cpu/window_product.hpp"
#include "base/threads.hpp"
#include "weft/error.hpp"

namespace weft::cpu {
namespace {

using std::int64_t;

constexpr int64_t ceil_divide(int64_t a, int64_t b) { return (a + b - 1) / b; }

const GemmKernels<float>* kernels_for(Isa isa, float) {
#if defined(__x86_64__)
  if (isa >= Isa::avx512) return &avx512::kGemmF32;
  if (isa == Isa::avx2) return &avx2::kGemmF32;
#endif
  return &baseline::kGemmF32;
}
/// Whether the product runs on pairs of bf16.
bool takes_pairs(const GemmArgs<float>& args) {
  return args.a.narrow.is_bf16 && args.b.narrow.is_bf16 && isa() >= Isa::avx512_bf16;
}

const GemmKernels<double>* kernels_for(Isa isa, double) {
#if defined(__x86_64__)
  if (isa >= Isa::avx512) return &avx512::kGemmF64;
  if (isa == Isa::avx2) return &avx2::kGemmF64;
#endif
  return &baseline::kGemmF64;
}

const GemmKernels<float>& kernels_for(const GemmArgs<float>& args) {
#if defined(__x86_64__)
  if (takes_pairs(args)) return isa() >= Isa::amx && args.a.view == nullptr ? avx512::gemm_amx() : avx512::kGemmBf16;
#endif
  return *kernels_for(isa(), float{});
}
const GemmKernels<double>& kernels_for(const GemmArgs<double>&) { return *kernels_for(isa(), double{}); }

/// The elements along k that the kernels take as one.
template <class T>
int64_t unit_of(const GemmKernels<T>& kernels) {
  return kernels.interleave != nullptr ? 2 : 1;
}

// --- The split, a function of shapes and strides only.

constexpr int64_t kBlockBytes = 640 * 1024;           // of B for one block of k, in an L2 cache of 1 MiB
constexpr int64_t kStripBytesMax = 2048;              // columns of a task's block of C
constexpr int64_t kPackedBytesMax = 8 * 1024 * 1024;  // of B packed over all of k, kept for the thread's next task
constexpr int64_t kKeptTiles = 16;                    // column tiles that may be kept side by side
constexpr int64_t kSharedBytesMax = 8 * 1024 * 1024;  // of A, and of B, packed for all tasks together
constexpr int64_t kSharedBlockBytes = 800 * 1024;  // kBlockBytes with a shared B: C goes through memory for each block
constexpr int64_t kSharedPanels = 64;              // at least, so that packing B pays
constexpr int64_t kSharedTaskPanels = 9;           // of a task at most, where its part of C stays in L2
constexpr int64_t kSharedTaskPanelsMin = 3;        // of a task at least, where not
constexpr int64_t kPackDepth = 16;                 // rows of a shared operand that a task packs
constexpr int64_t kPackPanels = 2;                 // of A that it packs if they are along memory
constexpr int64_t kDepthMax = 512;
constexpr int64_t kPieceDepth = 1024;                 // of k at least, when k is cut into pieces
constexpr int64_t kPiecesBytesMax = 4 * 1024 * 1024;  // of the products of all pieces
constexpr int64_t kPackRows = 8;                      // copied at a time across a block
constexpr int64_t kPanelGroup = 8;                    // panels packed together
constexpr int64_t kConvertedPanels = 4;               // of a narrow A converted together
constexpr int64_t kReadyElements = 8192;  // of C at least in a call of after_block: few calls, each for what L1 holds
constexpr int64_t kTasks = 16;            // enough to balance and to keep many cores busy
constexpr double kSmallTask = 1e6;        // multiply-adds: some 10 us, far above the cost of starting a task
constexpr double kLargeTask = 1e9;        // beyond kTasks: the rows of a task share its packed operands

struct Split {
  int64_t panels = 0;  // of A, as even as can be: 64 rows are 4 panels of 13 and one of 12, not 4 of 14 and one of 8
  int64_t row_tiles = 1, column_tiles = 1, tile_columns = 0;
  int64_t batch_groups = 1;  // a task takes a group of small products
  int64_t depth_block = 0;   // k of one pass of the kernels
  bool pack_a = false, pack_b = false;
  bool keeps_b = false;    // B of a column tile is packed whole and serves the tasks of a thread one after another
  bool keeps_all = false;  // the same for all column tiles side by side
  bool shares_b = false;   // all threads pack B first
  bool by_block = false;   // ... and go from one block of k to the next together
  bool shares_a = false;   // ... for which they pack A, too
  int64_t tasks = 0;
};

/// Rows at this distance fall on few sets of the cache, so a panel of them does not stay there.
bool is_awkward(int64_t stride_bytes) {
  const int64_t distance = std::abs(stride_bytes) % 4096;
  return std::abs(stride_bytes) >= 4096 && std::min(distance, 4096 - distance) < 256;
}

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
  // A task's rows share the reads of B, from L2 if all of B fits there. Rows that are read through a view are packed once for
  // each tile of columns, so tiles are narrow only if there are few rows.
  const bool finds_a = args.a.view != nullptr;
  constexpr int64_t kRowTilesMin = 4;
  const int64_t task_panels = finds_a ? 1 : depth * std::min(args.n * kSize, kStripBytesMax) <= kBlockBytes ? 2 : 4;
  s.row_tiles =
      std::clamp<int64_t>(ceil_divide(per_product, s.column_tiles), 1, std::max<int64_t>(1, s.panels / task_panels));
  if (s.row_tiles * s.column_tiles < std::min(per_product, finds_a ? kRowTilesMin : kTasks)) {
    // Narrow tiles read A more often, so they are used only if there are too few wide tiles.
    const int64_t wide = ceil_divide(args.n * kSize, kStripBytesMax / 2);
    const int64_t most = 2 * s.row_tiles * wide >= kTasks ? std::max(wide, std::min<int64_t>(2, strips / 2))
                                                          : std::max<int64_t>(1, strips / 2);
    s.column_tiles = std::clamp(ceil_divide(per_product, s.row_tiles), s.column_tiles, most);
  }
  // Packing is divided between at least two tiles, and so between threads.
  if (args.b.column != 1 && s.column_tiles == 1 && s.row_tiles > 1 && strips >= 4) s.column_tiles = 2;
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
  s.pack_a = s.pack_a || (kernels.reads_rows_only() && args.a.column != 1);
  // If threads share A, or a task uses it with all tiles of a shared B, it is converted once.
  s.pack_a = s.pack_a || (args.a.narrow && s.shares_b);
  s.shares_a = s.by_block && s.pack_a;
  s.pack_b = s.shares_b || must_pack_b || args.b.narrow || (s.panels > 2 * s.row_tiles && is_large);
  if (s.shares_b) {
    s.column_tiles = ceil_divide(args.n * kSize, kStripBytesMax);
    s.tile_columns = ceil_divide(strips, s.column_tiles) * strip;
    s.column_tiles = ceil_divide(args.n, s.tile_columns);
  }
  const int64_t depth_max = s.shares_b ? std::min(kDepthMax, kSharedBlockBytes / (s.tile_columns * kSize))
                                       : std::clamp<int64_t>(kBlockBytes / (width * kSize), 128, kDepthMax);
  s.depth_block = ceil_divide(depth, std::max<int64_t>(1, ceil_divide(depth, depth_max)));
  if (kernels.depth_step > 1) s.depth_block = ceil_divide(s.depth_block, kernels.depth_step) * kernels.depth_step;
  s.keeps_b = !s.shares_b && s.pack_b && s.row_tiles > 1 && depth * s.tile_columns * kSize <= kPackedBytesMax;
  s.keeps_all =
      s.keeps_b && s.column_tiles <= kKeptTiles && depth * s.tile_columns * s.column_tiles * kSize <= kPackedBytesMax;
  return s;
}

// --- Scratch of a thread: it grows to the largest product met and stays.

class Scratch {
 public:
  template <class T>
  T* b(int64_t count) {
    return static_cast<T*>(grown(b_, count * static_cast<int64_t>(sizeof(T))));
  }
  template <class T>
  T* a(int64_t count) {
    return static_cast<T*>(grown(a_, count * static_cast<int64_t>(sizeof(T))));
  }
  template <class T>
  T* pieces(int64_t count) {
    return static_cast<T*>(grown(pieces_, count * static_cast<int64_t>(sizeof(T))));
  }

  /// The column tile whose packed B is in b(): the call's number, the batch, the tile. Calls count from 1.
  struct Kept {
    std::uint64_t call = 0;
    int64_t batch = 0, column_tile = 0;
    bool operator==(const Kept&) const = default;
  } kept[kKeptTiles];  // those of a product that is kept whole, or the first for the last one packed

 private:
  void* grown(ScratchBlock& block, int64_t bytes) {
    if (block.grow(bytes)) std::fill(std::begin(kept), std::end(kept), Kept());
    return block.data();
  }

  ScratchBlock a_, b_, pieces_;
};

thread_local Scratch scratch;
std::atomic<std::uint64_t> calls = 0;

// --- One product, or a block of it.

template <class T>
class Product {
 public:
  Product(const GemmArgs<T>& args, const GemmKernels<T>& kernels)
      : args_(args),
        kernels_(kernels),
        unit_(unit_of(kernels)),
        depth_(ceil_divide(args.k, unit_)),
        split_(split(args, kernels)),
        call_(++calls) {
    if constexpr (std::is_same_v<T, float>)
      if (unit_ > 1 && is_whole_pairs(args.a)) pairs_of_a_ = reinterpret_cast<const T*>(halves_of(args.a));
  }

  /// Independent tasks; 0 if there are steps before them.
  int64_t tasks() const { return split_.shares_b ? 0 : split_.tasks; }
  /// Blocks of C that one product is split into, or can be.
  int64_t tiles() const { return (split_.shares_b ? split_.panels : split_.row_tiles) * split_.column_tiles; }

  void run() const {
    if (split_.shares_b)
      run_shared();
    else
      parallel_for(split_.tasks, [this](int64_t task) { run_task(task); });
  }

  void run_task(int64_t task) const {
    // If all column tiles are kept, each thread stays on its own tiles and packs only those.
    const int64_t tile = task % (split_.row_tiles * split_.column_tiles);
    const int64_t row_tile = split_.keeps_all ? tile / split_.column_tiles : tile % split_.row_tiles;
    const int64_t column_tile = split_.keeps_all ? tile % split_.column_tiles : tile / split_.row_tiles;
    const int64_t group = task / (split_.row_tiles * split_.column_tiles);
    const Range batches{args_.batch * group / split_.batch_groups, args_.batch * (group + 1) / split_.batch_groups};
    for (int64_t batch = batches.begin; batch < batches.end; ++batch)
      run_block(batch, column_tile, panels_of(row_tile), columns_of(column_tile));
  }

 private:
  struct Range {
    int64_t begin, end;
    int64_t size() const { return end - begin; }
  };

  /// A part of C: some panels by the columns of some tiles.
  struct Part {
    Range panels, tiles;
  };

  /// C in parts that get smaller towards the end, in pairs, so that threads end together. Parts of one tile are consecutive; if
  /// a task packs its own A, it takes all tiles.
  std::vector<Part> parts_of(Range panels, Range tiles) const {
    const bool takes_all = split_.pack_a && !split_.shares_a;
    const int64_t least = split_.by_block ? kSharedTaskPanelsMin : 1;
    const int64_t most = split_.by_block ? panels.size() : kSharedTaskPanels;
    const int64_t share = split_.by_block ? kTasks : kTasks / 2;  // of the remaining work
    std::vector<Part> parts;
    int64_t rest = panels.size() * (takes_all ? 1 : tiles.size()), size = 1;
    for (int64_t tile = tiles.begin; tile < tiles.end; tile = parts.back().tiles.end)
      for (int64_t begin = panels.begin; begin < panels.end; begin = parts.back().panels.end) {
        if (parts.size() % 2 == 0) size = std::clamp(rest / share, least, most);
        const int64_t end = panels.end - begin < size + least ? panels.end : begin + size;
        parts.push_back({{begin, end}, {tile, takes_all ? tiles.end : tile + 1}});
        rest -= end - begin;
      }
    return parts;
  }

  /// All threads pack the shared operands, then compute. A B that stays in the caches is packed over all of k, and a task
  /// computes its part of C over all of k. Otherwise both operands are packed block by block of k, and a block stays in the
  /// caches while it is used; if it is too large, C is computed in groups of rows and of columns.
  void run_shared() const {
    const int64_t depth = split_.by_block ? split_.depth_block : depth_;
    const int64_t a_size = split_.shares_a ? split_.panels * packed_width(kernels_.rows) * depth : 0;
    const int64_t b_size = split_.column_tiles * split_.tile_columns * depth;
    constexpr auto kMax = static_cast<int64_t>(kSharedBytesMax / sizeof(T));
    const int64_t row_groups = std::max<int64_t>(1, ceil_divide(a_size, kMax));
    const int64_t tiles = ceil_divide(split_.column_tiles, ceil_divide(b_size, kMax));
    T* const packed_a = split_.shares_a
                            ? scratch.a<T>(ceil_divide(split_.panels, row_groups) * packed_width(kernels_.rows) * depth)
                            : nullptr;
    T* const packed_b = scratch.b<T>(tiles * split_.tile_columns * depth);
    for (int64_t row_group = 0; row_group < row_groups; ++row_group)
      for (int64_t tile = 0; tile < split_.column_tiles; tile += tiles) {
        const Range panels{split_.panels * row_group / row_groups, split_.panels * (row_group + 1) / row_groups};
        const Range group{tile, std::min(tile + tiles, split_.column_tiles)};
        const std::vector<Part> parts = parts_of(panels, group);
        for (int64_t begin = 0; begin < depth_; begin += depth)
          run_shared_depth({begin, std::min(depth_, begin + depth)}, panels, group, parts, packed_a, packed_b);
      }
  }

  /// The parts of C, all of `panels` by `tiles`, over `whole_depth`: one block of k, or all of them.
  void run_shared_depth(Range whole_depth, Range panels, Range tiles, const std::vector<Part>& parts, T* packed_a,
                        T* packed_b) const {
    const Range columns{columns_of(tiles.begin).begin, columns_of(tiles.end - 1).end};
    const int64_t a_width = packed_width(kernels_.rows), b_width = packed_width(columns.size());
    const int64_t blocks = ceil_divide(whole_depth.size(), split_.depth_block);
    const auto depth_of = [&](int64_t block) {
      const int64_t begin = whole_depth.begin + block * split_.depth_block;
      return Range{begin, std::min(whole_depth.end, begin + split_.depth_block)};
    };
    const auto a_of = [&](Range depth, int64_t panel) {
      return packed_a + (panel - panels.begin) * a_width * depth.size();
    };
    const auto b_of = [&](Range depth, int64_t column) {
      return packed_b + (depth.begin - whole_depth.begin) * b_width + (column - columns.begin) * depth.size();
    };

    // Operands along memory are packed by rows, operands across it by strips or panels: both read long runs.
    const bool a_across = args_.a.column == 1 || args_.a.view != nullptr;
    const bool b_across = args_.b.column != 1 || args_.b.view != nullptr;
    const int64_t a_step = a_across ? kPackPanels : kPackDepth;
    const int64_t b_step = b_across ? kernels_.lanes * kGemmVectors : kPackDepth;
    const int64_t a_pieces = split_.shares_a ? ceil_divide(a_across ? panels.size() : split_.depth_block, a_step) : 0;
    const int64_t pieces = a_pieces + ceil_divide(b_across ? columns.size() : split_.depth_block, b_step);
    parallel_for(blocks * pieces, [&](int64_t task) {
      const Range depth = depth_of(task / pieces);
      const int64_t piece = task % pieces;
      const bool is_a = piece < a_pieces, across = is_a ? a_across : b_across;
      const int64_t step = is_a ? a_step : b_step, skip = (is_a ? piece : piece - a_pieces) * step;
      const Range others = is_a ? panels : columns, divided = across ? others : depth;
      const Range part{divided.begin + skip, std::min(divided.end, divided.begin + skip + step)};
      if (part.begin >= part.end) return;
      const Range rows = across ? depth : part, chosen = across ? part : others;
      if (is_a)
        pack_a(0, depth, rows, chosen, a_of(depth, chosen.begin));
      else
        pack_b(0, depth, rows, chosen, b_of(depth, chosen.begin));
    });
    parallel_for(static_cast<int64_t>(parts.size()), [&](int64_t task) {
      const Part& part = parts[static_cast<std::size_t>(task)];
      T* own_a = nullptr;
      if (split_.pack_a && !split_.shares_a) own_a = scratch.a<T>(part.panels.size() * a_width * split_.depth_block);
      for (int64_t block = 0; block < blocks; ++block) {
        const Range depth = depth_of(block);
        if (own_a != nullptr) pack_a(0, depth, depth, part.panels, own_a);
        const T* part_a = split_.shares_a ? a_of(depth, part.panels.begin) : own_a;
        for (int64_t tile = part.tiles.begin; tile < part.tiles.end; ++tile)
          run_depth(0, depth, part.panels, columns_of(tile), b_of(depth, columns_of(tile).begin), part_a);
      }
    });
  }

  Range panels_of(int64_t row_tile) const {
    return {split_.panels * row_tile / split_.row_tiles, split_.panels * (row_tile + 1) / split_.row_tiles};
  }
  Range columns_of(int64_t column_tile) const {
    return {column_tile * split_.tile_columns, std::min(args_.n, (column_tile + 1) * split_.tile_columns)};
  }

  Range rows_of(int64_t panel) const {
    return {args_.m * panel / split_.panels, args_.m * (panel + 1) / split_.panels};
  }

  /// Columns that a strip of `count` columns takes in packed B.
  int64_t packed_width(int64_t count) const { return ceil_divide(count, kernels_.lanes) * kernels_.lanes; }

  static const std::uint16_t* halves_of(const GemmSource<T>& source) {
    return static_cast<const std::uint16_t*>(source.narrow.data) + source.narrow.first;
  }
  /// Whether every row of A begins at a whole pair and ends with one.
  bool is_whole_pairs(const GemmSource<T>& a) const {
    bool whole = a.view == nullptr && a.column == 1 && args_.k % 2 == 0 && a.row % 2 == 0 &&
                 reinterpret_cast<std::uintptr_t>(halves_of(a)) % sizeof(T) == 0;
    for (int64_t batch = 0; whole && batch < args_.batch; ++batch) whole = a.batch[batch] % 2 == 0;
    return whole;
  }
  /// Runs of pairs; the last one of an odd number of `elements` gets a zero.
  static void copy_pairs(const std::uint16_t* from, int64_t stride, int64_t rows, int64_t pairs, int64_t elements,
                         T* to, int64_t to_stride) {
    const auto bytes = static_cast<std::size_t>(2 * std::min(2 * pairs, elements));
    const bool is_odd = elements < 2 * pairs;
    for (int64_t r = 0; r < rows; ++r, from += stride, to += to_stride) {
      if (is_odd) to[pairs - 1] = T{0};
      std::memcpy(to, from, bytes);
    }
  }

  /// The matrix of a view that matrix `batch` of the product reads: parts of k are all of one.
  static int64_t matrix_of(const GemmSource<T>& source, int64_t batch) { return source.first_step != 0 ? 0 : batch; }

  /// The place in A of this row at this k, in elements.
  int64_t place_in_a(int64_t batch, int64_t row, int64_t k) const {
    return args_.a.batch[batch] + row * args_.a.row + k * unit_ * args_.a.column;
  }
  int64_t place_in_b(int64_t batch, int64_t k, int64_t column) const {
    return args_.b.batch[batch] + k * unit_ * args_.b.row + column * args_.b.column;
  }
  /// A in memory, as the kernels read it; null if its elements are converted or combined first.
  const T* plain_a() const { return args_.a.view != nullptr || args_.a.narrow ? pairs_of_a_ : args_.a.data; }

  /// Like GemmKernels::pack for a source whose rows are across k, from k on, at element `from` of the source.
  void pack(const GemmSource<T>& source, int64_t k, int64_t depth, int64_t count, int64_t from, int64_t stride, T* to,
            int64_t to_stride) const {
    if constexpr (std::is_same_v<T, float>) {
      if (unit_ > 1)
        return kernels_.interleave(depth, args_.k - k * unit_, static_cast<int>(count), halves_of(source) + from,
                                   stride, to, to_stride);
      if (source.narrow) return source.narrow.copy_rows(from, stride, depth, count, to, to_stride);
    }
    kernels_.pack(depth, static_cast<int>(count), source.data + from, stride, to, static_cast<int>(to_stride));
  }
  /// Rows along k, from k on, as they are.
  void copy(const GemmSource<T>& source, int64_t k, int64_t rows, int64_t depth, int64_t from, int64_t stride, T* to,
            int64_t to_stride) const {
    if constexpr (std::is_same_v<T, float>) {
      if (unit_ > 1)
        return copy_pairs(halves_of(source) + from, stride, rows, depth, args_.k - k * unit_, to, to_stride);
      return source.narrow.copy_rows(from, stride, rows, depth, to, to_stride);
    }
  }
  void pack_transposed(const GemmSource<T>& source, int64_t k, int64_t depth, int64_t count, int64_t from,
                       int64_t stride, T* to, int64_t to_stride) const {
    if constexpr (std::is_same_v<T, float>)
      if (source.narrow) return pack_narrow_transposed(source, k, depth, count, from, stride, to, to_stride);
    kernels_.pack_transposed(depth, static_cast<int>(count), source.data + from, stride, to,
                             static_cast<int>(to_stride));
  }
  /// A few elements of each run are converted at a time, and transposed while they are in L1.
  void pack_narrow_transposed(const GemmSource<T>& source, int64_t k, int64_t depth, int64_t count, int64_t from,
                              int64_t stride, T* to, int64_t to_stride) const {
    constexpr int64_t kDepth = 64, kPitch = kDepth + 16;  // rows fall on different sets of the cache
    alignas(64) T stage[kGemmVectors * 16 * kPitch];
    for (int64_t done = 0; done < depth; done += kDepth, to += kDepth * to_stride) {
      const int64_t size = std::min(kDepth, depth - done);
      copy(source, k + done, count, size, from + done * unit_, stride, stage, kPitch);
      kernels_.pack_transposed(size, static_cast<int>(count), stage, kPitch, to, static_cast<int>(to_stride));
    }
  }
  /// Packs elements of k in `depth`, which is in units, for these lanes of a source that is read through its view.
  template <MatrixAxis kAxis>
  void pack_view_of(const GemmSource<T>& source, int64_t batch, MatrixRange lanes, Range depth, T* to,
                    int64_t width) const {
    const int64_t matrix = matrix_of(source, batch), begin = depth.begin * unit_;
    const MatrixRange range{source.first + batch * source.first_step + begin,
                            std::min(depth.size() * unit_, args_.k - begin)};
    if constexpr (std::is_same_v<T, float>) {
      if (unit_ > 1) {
        PackedPairs target{kernels_, to, width, {}};
        return pack_view<kAxis>(target, PlainElements<std::uint16_t>{halves_of(source)}, *source.view, matrix, lanes,
                                range);
      }
    }
    PackedElements<T> target{kernels_, to, width};
    if constexpr (std::is_same_v<T, float>)
      if (source.narrow) return pack_view<kAxis>(target, source.narrow, *source.view, matrix, lanes, range);
    pack_view<kAxis>(target, PlainElements<T>{source.data}, *source.view, matrix, lanes, range);
  }

  /// Packs rows of B, of those in `depth`, for these columns, strip after strip; each holds depth.size() rows.
  void pack_b(int64_t batch, Range depth, Range rows_of_b, Range columns, T* to) const {
    const int64_t strip = kernels_.lanes * kGemmVectors;
    if (args_.b.view != nullptr) {
      for (int64_t j = columns.begin; j < columns.end; j += strip) {
        const int64_t count = std::min(strip, columns.end - j), width = packed_width(count);
        pack_view_of<MatrixAxis::columns>(args_.b, batch, {j, count}, rows_of_b,
                                          to + (rows_of_b.begin - depth.begin) * width, width);
        to += width * depth.size();
      }
      return;
    }
    // Plain rows are copied a few at a time across all strips: long runs of memory, and few pages at once.
    const int64_t step = args_.b.column == 1 ? kPackRows : rows_of_b.size();
    for (int64_t k = rows_of_b.begin; k < rows_of_b.end; k += step) {
      const int64_t rows = std::min(step, rows_of_b.end - k);
      T* strip_to = to;
      for (int64_t j = columns.begin; j < columns.end; j += strip) {
        const int64_t count = std::min(strip, columns.end - j), width = packed_width(count);
        const int64_t from = place_in_b(batch, k, j);
        T* rows_to = strip_to + (k - depth.begin) * width;
        if (args_.b.column == 1) {
          pack(args_.b, k, rows, count, from, args_.b.row, rows_to, width);
        } else {
          pack_transposed(args_.b, k, rows, count, from, args_.b.column, rows_to, width);
        }
        strip_to += width * depth.size();
      }
    }
  }

  /// Rows of A, `count` of them, from columns `stride` apart: through blocks of a vector by a vector.
  void pack_rows(const GemmSource<T>& source, int64_t k, int64_t depth, int64_t count, int64_t from, int64_t stride,
                 T* to, int64_t to_stride) const {
    constexpr int64_t kSide = 16;
    alignas(64) T across[kSide * kSide], along[kSide * kSide];
    for (int64_t row = 0; row < count; row += kSide)
      for (int64_t done = 0; done < depth; done += kSide) {
        const int64_t size = std::min(kSide, depth - done), rows = std::min(kSide, count - row);
        pack(source, k + done, size, rows, from + row + done * unit_ * stride, stride, across, kSide);
        kernels_.pack_transposed(rows, static_cast<int>(size), across, kSide, along, kSide);
        for (int64_t r = 0; r < rows; ++r)
          std::memcpy(to + (row + r) * to_stride + done, along + r * kSide, static_cast<std::size_t>(size) * sizeof(T));
      }
  }

  /// Packs columns of A, of those in `depth`, for these panels, panel after panel; each holds depth.size() columns.
  void pack_a(int64_t batch, Range depth, Range columns_of_a, Range panels, T* to) const {
    const int64_t width = packed_width(kernels_.rows);
    if (args_.a.view != nullptr) {
      for (int64_t panel = panels.begin; panel < panels.end; ++panel, to += width * depth.size())
        pack_view_of<MatrixAxis::rows>(args_.a, batch, {rows_of(panel).begin, rows_of(panel).size()}, columns_of_a,
                                       to + (columns_of_a.begin - depth.begin) * width, width);
      return;
    }
    const int64_t step = args_.a.column == 1          ? columns_of_a.size()
                         : kernels_.reads_rows_only() ? kPackDepth
                                                      : kPackRows;
    for (int64_t k = columns_of_a.begin; k < columns_of_a.end; k += step) {
      const int64_t size = std::min(step, columns_of_a.end - k);
      for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
        const Range rows = rows_of(panel);
        const int64_t from = place_in_a(batch, rows.begin, k);
        T* panel_to = to + ((panel - panels.begin) * depth.size() + k - depth.begin) * width;
        if (kernels_.reads_rows_only()) {
          T* row_to = to + (panel - panels.begin) * depth.size() * width + k - depth.begin;
          if (args_.a.column == 1)
            copy(args_.a, k, rows.size(), size, from, args_.a.row, row_to, depth.size());
          else
            pack_rows(args_.a, k, size, rows.size(), from, args_.a.column, row_to, depth.size());
        } else if (args_.a.column == 1) {
          pack_transposed(args_.a, k, size, rows.size(), from, args_.a.row, panel_to, width);
        } else {
          pack(args_.a, k, size, rows.size(), from, args_.a.column, panel_to, width);
        }
      }
    }
  }

  /// Elements from one row of converted numbers to the next, so that rows fall on different sets of the cache.
  static int64_t spread_row(int64_t count) {
    constexpr auto kLine = static_cast<int64_t>(64 / sizeof(T));
    return (ceil_divide(count, kLine) | 1) * kLine;
  }
  /// Converts a part of a narrow A in memory order, with rows or columns `stride` apart.
  void convert_a(int64_t batch, Range depth, Range panels, T* to, int64_t stride) const {
    const Range rows{rows_of(panels.begin).begin, rows_of(panels.end - 1).end};
    const int64_t from = place_in_a(batch, rows.begin, depth.begin);
    if (args_.a.column == 1)
      copy(args_.a, depth.begin, rows.size(), depth.size(), from, args_.a.row, to, stride);
    else
      pack(args_.a, depth.begin, depth.size(), rows.size(), from, args_.a.column, to, stride);
  }

  void run_block(int64_t batch, int64_t column_tile, Range panels, Range columns) const {
    const int64_t width = packed_width(columns.size());
    const Scratch::Kept key{call_, batch, column_tile};
    const int64_t slot = split_.keeps_all ? column_tile : 0;
    T* packed = nullptr;
    bool is_packed = false;
    if (split_.pack_b) {
      const int64_t tile_size = depth_ * split_.tile_columns;
      packed = scratch.b<T>(split_.keeps_all ? split_.column_tiles * tile_size
                            : split_.keeps_b ? depth_ * width
                                             : split_.depth_block * width) +
               slot * tile_size;
      is_packed = split_.keeps_b && scratch.kept[slot] == key;
      if (!is_packed) scratch.kept[slot] = {};
    }
    Range depth{0, 0};
    do {
      depth = {depth.end, std::min(depth_, depth.end + split_.depth_block)};
      // Block after block of k, each in one piece: strips over all of k would be a power of two apart in the cache.
      T* block = split_.keeps_b ? packed + depth.begin * width : packed;
      if (split_.pack_b && !is_packed) pack_b(batch, depth, depth, columns, block);
      run_depth(batch, depth, panels, columns, block);
    } while (depth.end < depth_);
    if (split_.keeps_b) scratch.kept[slot] = key;
  }

  /// Runs all panels of a task over one block of k. A packed A is given (`given_a`), or packed here group by group.
  void run_depth(int64_t batch, Range depth, Range panels, Range columns, const T* packed_b,
                 const T* given_a = nullptr) const {
    const T* a = plain_a();
    const bool is_final = args_.after_block && depth.end == depth_;
    const int64_t a_width = packed_width(kernels_.rows);
    const bool by_row = args_.a.column == 1;
    const bool packs = split_.pack_a && given_a == nullptr;
    const bool converts = a == nullptr && !split_.pack_a;  // to what the kernels read, and the strides stay
    // Panels whose rows are along memory are packed one by one, other panels in groups, for longer runs.
    const int64_t group_size = by_row ? 1 : split_.pack_a ? kPanelGroup : converts ? kConvertedPanels : 1;
    T* packed_a = packs ? scratch.a<T>(group_size * a_width * split_.depth_block) : nullptr;
    const int64_t converted_row = by_row ? spread_row(depth.size()) : packed_width(group_size * kernels_.rows);
    if (converts) packed_a = scratch.a<T>(by_row ? kernels_.rows * converted_row : depth.size() * converted_row);
    int64_t ready = rows_of(panels.begin).begin;
    for (int64_t first = panels.begin; first < panels.end; first += group_size) {
      const Range group{first, std::min(panels.end, first + group_size)};
      if (packs) pack_a(batch, depth, depth, group, packed_a);
      if (converts) convert_a(batch, depth, group, packed_a, converted_row);
      for (int64_t panel = group.begin; panel < group.end; ++panel) {
        const Range rows = rows_of(panel);
        if (split_.pack_a) {
          const T* panel_a = packs ? packed_a + (panel - group.begin) * a_width * depth.size()
                                   : given_a + (panel - panels.begin) * a_width * depth.size();
          const bool asks = packs && panel + 1 < panels.end && by_row && a != nullptr;
          const bool in_rows = kernels_.reads_rows_only();
          run_panel(batch, depth, rows, columns, in_rows ? kernels_.by_row : kernels_.by_depth, panel_a,
                    in_rows ? depth.size() : a_width, packed_b,
                    asks ? a + place_in_a(batch, rows.end, depth.begin) / unit_ : nullptr);
        } else if (converts) {
          const T* panel_a = by_row ? packed_a : packed_a + (rows.begin - rows_of(group.begin).begin);
          run_panel(batch, depth, rows, columns, by_row ? kernels_.by_row : kernels_.by_depth, panel_a, converted_row,
                    packed_b, nullptr);
        } else {
          run_panel(batch, depth, rows, columns, by_row ? kernels_.by_row : kernels_.by_depth,
                    a + place_in_a(batch, rows.begin, depth.begin) / unit_,
                    by_row ? args_.a.row / unit_ : args_.a.column, packed_b, nullptr);
        }
        if (is_final && (panel + 1 == panels.end || (rows.end - ready) * columns.size() >= kReadyElements)) {
          args_.after_block(batch, ready, rows.end, columns.begin, columns.end);
          ready = rows.end;
        }
      }
    }
  }

  /// One panel of A, at `a`, and all strips of B. Meanwhile prefetches the next panel of A, at `next_a`.
  void run_panel(int64_t batch, Range depth, Range rows, Range columns,
                 const typename GemmKernels<T>::Tile (&tiles)[2][kGemmRowsMax][kGemmVectors], const T* a,
                 int64_t a_stride, const T* packed_b, const T* next_a) const {
    const int lanes = kernels_.lanes;
    const int64_t strip = lanes * kGemmVectors;
    const bool accumulate = args_.accumulate || depth.begin > 0;
    const T* b = packed_b != nullptr ? nullptr : args_.b.data + place_in_b(batch, depth.begin, 0);
    T* c = args_.c.data + args_.c.batch[batch] + rows.begin * args_.c.row;
    constexpr int64_t kLine = 64 / sizeof(T);
    const int64_t ahead_step =
        ceil_divide(ceil_divide(depth.size(), kLine), ceil_divide(columns.size(), strip)) * kLine;
    const int64_t next_row = args_.a.row / unit_;
    int64_t ahead_begin = 0, ahead_end = std::min(depth.size(), ahead_step);
    if (kernels_.begin_panel != nullptr) kernels_.begin_panel(static_cast<int>(rows.size()));
    for (int64_t j = columns.begin; j < columns.end; j += strip) {
      const int64_t count = std::min(strip, columns.end - j);
      const int vectors = static_cast<int>(ceil_divide(count, lanes));
      const int last = static_cast<int>(count - (vectors - 1) * lanes);
      const int64_t width = vectors * lanes;
      const T* strip_b = packed_b != nullptr ? packed_b : b + j;
      const int64_t b_stride = packed_b != nullptr ? width : args_.b.row;
      if (next_a != nullptr) {
        for (int64_t r = 0; r < rows.size(); ++r)
          for (int64_t k = ahead_begin; k < ahead_end; k += kLine) __builtin_prefetch(next_a + r * next_row + k, 0, 2);
        ahead_begin = ahead_end;
        ahead_end = std::min(depth.size(), ahead_end + ahead_step);
      }
      tiles[last == lanes][rows.size() - 1][vectors - 1](depth.size(), a, a_stride, strip_b, b_stride, c + j,
                                                         args_.c.row, last, accumulate);
      if (packed_b != nullptr) packed_b += width * depth.size();
    }
    if (kernels_.end_panel != nullptr) kernels_.end_panel();
  }

  const GemmArgs<T>& args_;
  const GemmKernels<T>& kernels_;
  const int64_t unit_, depth_;     // elements of k that the kernels take as one; all of k, in these units
  const T* pairs_of_a_ = nullptr;  // if the kernels can read pairs of bf16 where they are
  const Split split_;
  const std::uint64_t call_;
};

/// A dimension of extent 1 may have any stride: choose the one that makes the source regular.
template <class T>
void normalise(GemmSource<T>& source, int64_t rows, int64_t columns, const char* name) {
  if (source.view != nullptr) return;
  if (columns == 1 && source.row != 1)
    source.column = 1;
  else if (rows == 1 && source.column != 1)
    source.row = 1;
  if (source.row != 1 && source.column != 1)
    throw InternalError(std::string("gemm: neither stride of ") + name + " is 1; copy it first");
}

/// A batch whose products share B and stack up in A and C is one product.
template <class T>
void fold_batch(GemmArgs<T>& args) {
  if (args.a.view != nullptr || args.b.view != nullptr) return;
  const auto follows = [&](const BatchOffsets& offsets, int64_t stride) {
    return offsets.each == nullptr && offsets.stride == stride;
  };
  if (args.batch == 1 || args.after_block || !follows(args.b.batch, 0) || !follows(args.a.batch, args.m * args.a.row) ||
      !follows(args.c.batch, args.m * args.c.row))
    return;
  args.m *= args.batch;
  args.batch = 1;
}

/// The number of pieces of k: a small C with a deep k, as for weight gradients, has too few blocks for many threads, and each
/// would read nearly all of A and B.
template <class T>
int64_t pieces_of(const GemmArgs<T>& args, int64_t tiles) {
  if (args.batch > 1 || tiles >= kTasks) return 1;
  const int64_t bytes = args.m * args.n * static_cast<int64_t>(sizeof(T));
  return std::max<int64_t>(1, std::min({kTasks, args.k / kPieceDepth, kPiecesBytesMax / bytes}));
}

template <class T>
void skip(GemmSource<T>& source, int64_t elements) {
  if (source.narrow)
    source.narrow.first += elements;
  else
    source.data += elements;
}

/// The product as a batch of `pieces` products over parts of k, which are then added in their order.
template <class T>
void run_in_pieces(const GemmArgs<T>& args, const GemmKernels<T>& kernels, int64_t pieces) {
  const int64_t unit = unit_of(kernels), depth = args.k / unit / pieces * unit, rest = args.k - depth * pieces;
  const int64_t size = args.m * args.n;
  T* const partial = scratch.pieces<T>(pieces * size);
  GemmArgs<T> parts{.batch = pieces, .m = args.m, .n = args.n, .k = depth};
  const auto part_of = [&](const GemmSource<T>& source, int64_t k_stride) {
    GemmSource<T> part = source;
    if (source.view == nullptr) {
      skip(part, source.batch[0]);
      part.batch = {.stride = depth * k_stride};
      return part;
    }
    part.first_step = depth;
    return part;
  };
  parts.a = part_of(args.a, args.a.column);
  parts.b = part_of(args.b, args.b.row);
  parts.c = {.data = partial, .row = args.n, .batch = {.stride = size}};
  Product<T>(parts, kernels).run();

  T* const c = args.c.data + args.c.batch[0];
  const bool is_final = args.after_block && rest == 0;
  parallel_for(kTasks, [&](int64_t task) {
    const int64_t begin = args.m * task / kTasks, end = args.m * (task + 1) / kTasks;
    for (int64_t i = begin; i < end; ++i) {
      T* to = c + i * args.c.row;
      if (!args.accumulate) std::fill_n(to, args.n, T{0});
      for (int64_t piece = 0; piece < pieces; ++piece) {
        const T* from = partial + piece * size + i * args.n;
        for (int64_t j = 0; j < args.n; ++j) to[j] += from[j];
      }
    }
    if (is_final && begin < end) args.after_block(0, begin, end, 0, args.n);
  });
  if (rest == 0) return;
  GemmArgs<T> last = args;
  const auto go_on = [&](GemmSource<T>& source, int64_t k_stride) {
    if (source.view == nullptr)
      skip(source, (args.k - rest) * k_stride);
    else
      source.first += args.k - rest;
  };
  go_on(last.a, args.a.column);
  go_on(last.b, args.b.row);
  last.k = rest;
  last.accumulate = true;
  Product<T>(last, kernels).run();
}

template <class T>
GemmArgs<T> regular(GemmArgs<T> args) {
  if (args.k <= 0) {
    args.k = 0;
    args.a = {.data = args.c.data, .row = 1, .column = 1};  // never read; a null one could not be offset
    args.b = {.data = args.c.data, .row = 1, .column = 1};
  }
  normalise(args.a, args.m, args.k, "A");
  normalise(args.b, args.k, args.n, "B");
  fold_batch(args);
  return args;
}

template <class T>
void gemm_vectorised(const GemmArgs<T>& given) {
  if (given.batch <= 0 || given.m <= 0 || given.n <= 0) return;
  const GemmArgs<T> args = regular(given);
  const GemmKernels<T>& kernels = kernels_for(args);
  if constexpr (std::is_same_v<T, float>)
    if (const auto windows = WindowProduct::of(args, kernels)) return windows->run();
  const Product<T> product(args, kernels);
  const int64_t pieces = pieces_of(args, product.tiles());
  if (pieces > 1) {
    run_in_pieces(args, kernels, pieces);
  } else {
    product.run();
  }
}

/// Row by row, in unsigned numbers, whose overflow is defined.
template <class T>
void gemm_plain(const GemmArgs<T>& args) {
  using Wrapping = std::make_unsigned_t<T>;
  parallel_for(args.batch * args.m, [&](int64_t task) {
    const int64_t batch = task / args.m, i = task % args.m;
    const T* a = args.a.data + args.a.batch[batch] + i * args.a.row;
    const T* b = args.b.data + args.b.batch[batch];
    T* c = args.c.data + args.c.batch[batch] + i * args.c.row;
    if (!args.accumulate) std::fill_n(c, args.n, T{0});
    for (int64_t k = 0; k < args.k; ++k) {
      const auto left = static_cast<Wrapping>(a[k * args.a.column]);
      const T* right = b + k * args.b.row;
      for (int64_t j = 0; j < args.n; ++j)
        c[j] = static_cast<T>(static_cast<Wrapping>(c[j]) + left * static_cast<Wrapping>(right[j * args.b.column]));
    }
    if (args.after_block) args.after_block(batch, i, i + 1, 0, args.n);
  });
}

}  // namespace

template <>
void gemm<float>(const GemmArgs<float>& args) {
  gemm_vectorised(args);
}
template <>
void gemm<double>(const GemmArgs<double>& args) {
  gemm_vectorised(args);
}
template <>
void gemm<std::int32_t>(const GemmArgs<std::int32_t>& args) {
  if (args.batch > 0 && args.m > 0 && args.n > 0) gemm_plain(args);
}
template <>
void gemm<std::int64_t>(const GemmArgs<std::int64_t>& args) {
  if (args.batch > 0 && args.m > 0 && args.n > 0) gemm_plain(args);
}

template <class T>
struct GemmTasks<T>::State {
  GemmArgs<T> args;
  Product<T> product;

  bool has_steps = false;

  explicit State(const GemmArgs<T>& given) : args(regular(given)), product(args, kernels_for(args)) {
    if constexpr (std::is_same_v<T, float>) has_steps = WindowProduct::of(args, kernels_for(args)).has_value();
  }
};
template <class T>
GemmTasks<T>::GemmTasks(const GemmArgs<T>& args) : state_(std::make_unique<State>(args)) {}
template <class T>
GemmTasks<T>::~GemmTasks() = default;
template <class T>
GemmTasks<T>::GemmTasks(GemmTasks&&) noexcept = default;
template <class T>
GemmTasks<T>& GemmTasks<T>::operator=(GemmTasks&&) noexcept = default;
template <class T>
int64_t GemmTasks<T>::count() const {
  const GemmArgs<T>& args = state_->args;
  if (args.batch <= 0 || args.m <= 0 || args.n <= 0) return 0;
  return state_->has_steps || pieces_of(args, state_->product.tiles()) > 1 ? 0 : state_->product.tasks();
}
template <class T>
void GemmTasks<T>::run(int64_t task) const {
  state_->product.run_task(task);
}

template <class T>
const GemmKernels<T>& gemm_kernels_in_use() {
  return *kernels_for(isa(), T{});
}
template const GemmKernels<float>& gemm_kernels_in_use<float>();
template const GemmKernels<double>& gemm_kernels_in_use<double>();

template <class T>
SmallGemm<T>::SmallGemm(const GemmKernels<T>& kernels) : kernels_(&kernels), strip_(kernels.lanes * kGemmVectors) {}
template <class T>
SmallGemm<T>::SmallGemm() : SmallGemm(gemm_kernels_in_use<T>()) {}
template <class T>
std::optional<SmallGemm<T>> SmallGemm<T>::of_pairs() {
#if defined(__x86_64__)
  if constexpr (std::is_same_v<T, float>)
    if (isa() >= Isa::avx512_bf16) return SmallGemm(avx512::kGemmBf16);
#endif
  return std::nullopt;
}

template <class T>
void SmallGemm<T>::pack_transposed(int64_t depth, int64_t columns, const T* from, int64_t row, T* to) const {
  for (int64_t j = 0; j < columns; j += strip_, to += strip_ * depth)
    kernels_->pack_transposed(depth, static_cast<int>(std::min(strip_, columns - j)), from + j * row, row, to,
                              static_cast<int>(strip_));
}

template <class T>
void SmallGemm<T>::multiply(int64_t m, int64_t n, int64_t k, const T* a, int64_t a_row, int64_t a_column, const T* b,
                            int64_t b_row, T* c, int64_t c_row, bool accumulate) const {
  run(m, n, k, a, a_row, a_column, b, b_row, strip_, c, c_row, accumulate);
}

template <class T>
void SmallGemm<T>::multiply_packed(int64_t m, int64_t n, int64_t k, const T* a, int64_t a_row, const T* b, T* c,
                                   int64_t c_row) const {
  run(m, n, k, a, a_row, 1, b, strip_, strip_ * k, c, c_row, false);
}

template <class T>
void SmallGemm<T>::run(int64_t m, int64_t n, int64_t k, const T* a, int64_t a_row, int64_t a_column, const T* b,
                       int64_t b_row, int64_t b_strip, T* c, int64_t c_row, bool accumulate) const {
  const int64_t panels = ceil_divide(m, kernels_->rows), lanes = kernels_->lanes;
  const auto& tiles = a_column == 1 ? kernels_->by_row : kernels_->by_depth;
  for (int64_t panel = 0; panel < panels; ++panel) {
    const int64_t begin = m * panel / panels, rows = m * (panel + 1) / panels - begin;
    for (int64_t j = 0, s = 0; j < n; j += strip_, s += b_strip) {
      const int64_t count = std::min(strip_, n - j), vectors = ceil_divide(count, lanes);
      const auto last = static_cast<int>(count - (vectors - 1) * lanes);
      tiles[last == lanes][rows - 1][vectors - 1](k, a + begin * a_row, a_column == 1 ? a_row : a_column, b + s, b_row,
                                                  c + begin * c_row + j, c_row, last, accumulate);
    }
  }
}

template class GemmTasks<float>;
template class SmallGemm<float>;
template class SmallGemm<double>;

}  // namespace weft::cpu
