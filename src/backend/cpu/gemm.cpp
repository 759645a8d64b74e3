// The matrix product: how C is split into tasks, what each packs, and the loops around the kernels.
//
// A task owns a block of C (or some whole small products) and computes it alone, over all of k, so that tasks never wait
// for each other. Inside it, k goes in blocks whose part of B stays in the L2 cache; a panel of A (as many rows as a
// kernel takes) stays in L1 and meets all strips of B (as many columns as a kernel takes) before the next panel comes.
#include "backend/cpu/gemm.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>

#include "backend/cpu/gemm_kernels.hpp"
#include "base/threads.hpp"
#include "weft/error.hpp"

namespace weft::cpu {
namespace {

using std::int64_t;

constexpr int64_t ceil_divide(int64_t a, int64_t b) { return (a + b - 1) / b; }

const GemmKernels<float>* kernels_for(Isa isa, float) {
#if defined(__x86_64__)
  if (isa == Isa::avx512) return &avx512::kGemmF32;
  if (isa == Isa::avx2) return &avx2::kGemmF32;
#endif
  return &baseline::kGemmF32;
}
const GemmKernels<double>* kernels_for(Isa isa, double) {
#if defined(__x86_64__)
  if (isa == Isa::avx512) return &avx512::kGemmF64;
  if (isa == Isa::avx2) return &avx2::kGemmF64;
#endif
  return &baseline::kGemmF64;
}

// --- The split, a function of shapes and strides only.

constexpr int64_t kBlockBytes = 512 * 1024;           // of packed B for one block of k: half of a common L2 cache
constexpr int64_t kStripBytesMax = 2048;              // columns of a task's block of C
constexpr int64_t kPackedBytesMax = 8 * 1024 * 1024;  // of B packed over all of k, kept for the thread's next task
constexpr int64_t kDepthMax = 512;
constexpr double kSmallTask = 1e6;  // multiply-adds: some 10 us, far above the cost of handing a task out
constexpr double kLargeTask = 4e6;

struct Split {
  int64_t row_tiles = 1, column_tiles = 1, tile_columns = 0;
  int64_t batches_per_task = 1;
  int64_t depth_block = 0;  // k of one pass of the kernels
  bool pack_a = false, pack_b = false;
  bool keeps_b = false;  // B of a column tile is packed whole and serves the tasks of a thread one after another
  int64_t tasks = 0;
};

/// Rows this far apart fall on few sets of the cache, and a panel of them does not stay in it.
bool is_awkward(int64_t stride_bytes) {
  const int64_t distance = std::abs(stride_bytes) % 4096;
  return std::abs(stride_bytes) >= 4096 && std::min(distance, 4096 - distance) < 256;
}

template <class T>
Split split(const GemmArgs<T>& args, const GemmKernels<T>& kernels) {
  constexpr int64_t kSize = sizeof(T);
  const int64_t strip = kernels.lanes * kGemmVectors;
  Split s;

  const double work = static_cast<double>(args.m) * static_cast<double>(args.n) * static_cast<double>(args.k);
  const double total = work * static_cast<double>(args.batch);
  const double wanted = std::clamp(total / kSmallTask, 1.0, std::max(16.0, std::min(64.0, total / kLargeTask)));
  const auto per_product = static_cast<int64_t>(std::ceil(wanted / static_cast<double>(args.batch)));
  const int64_t strips = ceil_divide(args.n, strip);
  s.column_tiles = ceil_divide(args.n * kSize, kStripBytesMax);
  s.row_tiles = std::clamp<int64_t>(ceil_divide(per_product, s.column_tiles), 1, std::max<int64_t>(1, args.m / 56));
  if (s.row_tiles * s.column_tiles < per_product)
    s.column_tiles =
        std::clamp(ceil_divide(per_product, s.row_tiles), s.column_tiles, std::max<int64_t>(1, strips / 2));
  s.tile_columns = ceil_divide(strips, s.column_tiles) * strip;
  s.column_tiles = ceil_divide(args.n, s.tile_columns);
  if (s.row_tiles * s.column_tiles == 1)
    s.batches_per_task =
        std::clamp<int64_t>(static_cast<int64_t>(static_cast<double>(args.batch) / wanted), 1, args.batch);
  s.tasks = s.row_tiles * s.column_tiles * ceil_divide(args.batch, s.batches_per_task);

  const int64_t width = std::min(s.tile_columns, ceil_divide(args.n, kernels.lanes) * kernels.lanes);
  const int64_t depth_max = std::clamp<int64_t>(kBlockBytes / (width * kSize), 128, kDepthMax);
  s.depth_block = ceil_divide(args.k, std::max<int64_t>(1, ceil_divide(args.k, depth_max)));

  const int64_t rows_of_tile = ceil_divide(args.m, s.row_tiles);
  s.pack_b =
      args.b.column != 1 || (rows_of_tile > 2 * kernels.rows && (args.m >= 256 || is_awkward(args.b.row * kSize)));
  s.keeps_b =
      s.pack_b && s.batches_per_task == 1 && s.row_tiles > 1 && args.k * s.tile_columns * kSize <= kPackedBytesMax;
  const int64_t stride = args.a.column == 1 ? args.a.row : args.a.column;
  s.pack_a =
      (args.a.column != 1 && args.a.row != 1) || width * kSize >= 1024 || (width > strip && is_awkward(stride * kSize));
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

  /// The column tile whose B stands packed in b(): the call's number, the batch, the tile. Calls count from 1.
  struct Kept {
    std::uint64_t call = 0;
    int64_t batch = 0, column_tile = 0;
    bool operator==(const Kept&) const = default;
  } kept;

 private:
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  struct Block {
    std::unique_ptr<void, Free> data;
    int64_t bytes = 0;
  };

  void* grown(Block& block, int64_t bytes) {
    if (block.bytes < bytes) {
      kept = {};
      block = {};
      const int64_t rounded = ceil_divide(bytes, 4096) * 4096;
      block.data.reset(std::aligned_alloc(4096, static_cast<std::size_t>(rounded)));
      if (!block.data) throw std::bad_alloc();
      block.bytes = rounded;
    }
    return block.data.get();
  }

  Block a_, b_;
};

thread_local Scratch scratch;
std::atomic<std::uint64_t> calls = 0;

// --- One product, or a block of it.

template <class T>
class Product {
 public:
  Product(const GemmArgs<T>& args, const GemmKernels<T>& kernels)
      : args_(args), kernels_(kernels), split_(split(args, kernels)), call_(++calls) {}

  void run() const {
    parallel_for(split_.tasks, [this](int64_t task) { run_task(task); });
  }

 private:
  struct Range {
    int64_t begin, end;
    int64_t size() const { return end - begin; }
  };

  void run_task(int64_t task) const {
    const int64_t row_tile = task % split_.row_tiles;
    const int64_t column_tile = task / split_.row_tiles % split_.column_tiles;
    const int64_t group = task / (split_.row_tiles * split_.column_tiles);
    const Range rows{args_.m * row_tile / split_.row_tiles, args_.m * (row_tile + 1) / split_.row_tiles};
    const Range columns{column_tile * split_.tile_columns, std::min(args_.n, (column_tile + 1) * split_.tile_columns)};
    const int64_t last = std::min(args_.batch, (group + 1) * split_.batches_per_task);
    for (int64_t batch = group * split_.batches_per_task; batch < last; ++batch)
      run_block(batch, column_tile, rows, columns);
  }

  /// Columns that a strip of `count` columns takes in packed B.
  int64_t packed_width(int64_t count) const { return ceil_divide(count, kernels_.lanes) * kernels_.lanes; }

  /// Packs B over `depth` for these columns, strip after strip; each holds depth.size() rows.
  void pack_b(const T* b, Range depth, Range columns, T* to) const {
    const int64_t strip = kernels_.lanes * kGemmVectors;
    for (int64_t j = columns.begin; j < columns.end; j += strip) {
      const int64_t count = std::min(strip, columns.end - j);
      const T* from = b + depth.begin * args_.b.row + j * args_.b.column;
      if (args_.b.column == 1) {
        kernels_.pack(depth.size(), count, from, args_.b.row, to, packed_width(count));
      } else {
        kernels_.pack_transposed(depth.size(), count, from, args_.b.column, to, packed_width(count));
      }
      to += packed_width(count) * depth.size();
    }
  }

  void run_block(int64_t batch, int64_t column_tile, Range rows, Range columns) const {
    const T* b = args_.b.data + args_.b.batch[batch];
    T* packed = nullptr;
    if (split_.pack_b) {
      packed = scratch.b<T>((split_.keeps_b ? args_.k : split_.depth_block) * packed_width(columns.size()));
      const Scratch::Kept key{call_, batch, column_tile};
      if (split_.keeps_b && scratch.kept != key) {
        pack_b(b, {0, args_.k}, columns, packed);
        scratch.kept = key;
      }
      if (!split_.keeps_b) scratch.kept = {};
    }
    Range depth{0, 0};
    do {
      depth = {depth.end, std::min(args_.k, depth.end + split_.depth_block)};
      if (split_.pack_b && !split_.keeps_b) pack_b(b, depth, columns, packed);
      run_depth(batch, depth, rows, columns, packed, split_.keeps_b ? args_.k : depth.size());
    } while (depth.end < args_.k);
  }

  void run_depth(int64_t batch, Range depth, Range rows, Range columns, const T* packed, int64_t packed_depth) const {
    constexpr int64_t kReadyElements = 8192;  // few calls of after_block, each for what L1 holds
    const T* a = args_.a.data + args_.a.batch[batch];
    const bool accumulate = args_.accumulate || depth.begin > 0;
    const bool is_final = args_.after_block && depth.end == args_.k;
    const int64_t panels = ceil_divide(rows.size(), kernels_.rows);
    const int64_t a_stride = packed_width(kernels_.rows);
    T* packed_a = split_.pack_a ? scratch.a<T>(a_stride * split_.depth_block) : nullptr;
    int64_t ready = rows.begin;
    for (int64_t panel = 0; panel < panels; ++panel) {
      // Even panels: 64 rows are 4 panels of 13 and one of 12, not 4 of 14 and one of 8.
      const Range part{rows.begin + rows.size() * panel / panels, rows.begin + rows.size() * (panel + 1) / panels};
      const T* from = a + part.begin * args_.a.row + depth.begin * args_.a.column;
      if (!split_.pack_a) {
        const bool by_row = args_.a.column == 1;
        run_panel(batch, depth, part, columns, by_row ? kernels_.by_row : kernels_.by_depth, from,
                  by_row ? args_.a.row : args_.a.column, packed, packed_depth, accumulate);
      } else {
        if (args_.a.column == 1) {
          kernels_.pack_transposed(depth.size(), part.size(), from, args_.a.row, packed_a, a_stride);
        } else {
          kernels_.pack(depth.size(), part.size(), from, args_.a.column, packed_a, a_stride);
        }
        run_panel(batch, depth, part, columns, kernels_.by_depth, packed_a, a_stride, packed, packed_depth, accumulate);
      }
      if (is_final && (panel + 1 == panels || (part.end - ready) * columns.size() >= kReadyElements)) {
        args_.after_block(batch, ready, part.end, columns.begin, columns.end);
        ready = part.end;
      }
    }
  }

  void run_panel(int64_t batch, Range depth, Range rows, Range columns,
                 const typename GemmKernels<T>::Tile (&tiles)[2][kGemmRowsMax][kGemmVectors], const T* a,
                 int64_t a_stride, const T* packed, int64_t packed_depth, bool accumulate) const {
    const int64_t strip = kernels_.lanes * kGemmVectors;
    const int lanes = kernels_.lanes;
    const T* b = args_.b.data + args_.b.batch[batch] + depth.begin * args_.b.row;
    T* c = args_.c.data + args_.c.batch[batch] + rows.begin * args_.c.row;
    for (int64_t j = columns.begin; j < columns.end; j += strip) {
      const int64_t count = std::min(strip, columns.end - j);
      const int vectors = static_cast<int>(ceil_divide(count, lanes));
      const int last = static_cast<int>(count - (vectors - 1) * lanes);
      const int64_t width = vectors * lanes;
      const T* strip_b = packed != nullptr ? packed + (split_.keeps_b ? depth.begin * width : 0) : b + j;
      const int64_t b_stride = packed != nullptr ? width : args_.b.row;
      tiles[last == lanes][rows.size() - 1][vectors - 1](depth.size(), a, a_stride, strip_b, b_stride, c + j,
                                                         args_.c.row, last, accumulate);
      if (packed != nullptr) packed += width * packed_depth;
    }
  }

  const GemmArgs<T>& args_;
  const GemmKernels<T>& kernels_;
  const Split split_;
  const std::uint64_t call_;
};

/// A dimension of extent 1 has no stride: give it the one that makes the source regular.
template <class T>
void normalise(GemmSource<T>& source, int64_t rows, int64_t columns, const char* name) {
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
  const auto follows = [&](const BatchOffsets& offsets, int64_t stride) {
    return offsets.each == nullptr && offsets.stride == stride;
  };
  if (args.batch == 1 || args.after_block || !follows(args.b.batch, 0) || !follows(args.a.batch, args.m * args.a.row) ||
      !follows(args.c.batch, args.m * args.c.row))
    return;
  args.m *= args.batch;
  args.batch = 1;
}

template <class T>
void gemm_vectorised(GemmArgs<T> args) {
  if (args.batch <= 0 || args.m <= 0 || args.n <= 0) return;
  if (args.k <= 0) {
    args.k = 0;
    args.a = {.data = args.c.data, .row = 1, .column = 1};  // never read; a null one could not be offset
    args.b = {.data = args.c.data, .row = 1, .column = 1};
  }
  normalise(args.a, args.m, args.k, "A");
  normalise(args.b, args.k, args.n, "B");
  fold_batch(args);
  Product<T>(args, *kernels_for(isa(), T{})).run();
}

/// Row by row, in the unsigned numbers, where overflow is defined to wrap around.
void gemm_plain(const GemmArgs<std::int32_t>& args) {
  parallel_for(args.batch * args.m, [&](int64_t task) {
    const int64_t batch = task / args.m, i = task % args.m;
    const std::int32_t* a = args.a.data + args.a.batch[batch] + i * args.a.row;
    const std::int32_t* b = args.b.data + args.b.batch[batch];
    std::int32_t* c = args.c.data + args.c.batch[batch] + i * args.c.row;
    for (int64_t j = 0; j < args.n; ++j) {
      std::uint32_t sum = args.accumulate ? static_cast<std::uint32_t>(c[j]) : 0;
      for (int64_t k = 0; k < args.k; ++k)
        sum += static_cast<std::uint32_t>(a[k * args.a.column]) *
               static_cast<std::uint32_t>(b[k * args.b.row + j * args.b.column]);
      c[j] = static_cast<std::int32_t>(sum);
    }
    if (args.after_block && args.n > 0) args.after_block(batch, i, i + 1, 0, args.n);
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

}  // namespace weft::cpu
