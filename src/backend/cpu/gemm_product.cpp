#include "backend/cpu/gemm_product.hpp"

#include <algorithm>
#include <atomic>

#include "backend/cpu/scratch_block.hpp"
#include "base/threads.hpp"

namespace weft::cpu::blocked {
namespace {

constexpr int64_t kSharedTaskPanels = 9;     // of a task at most, where its part of C stays in L2
constexpr int64_t kSharedTaskPanelsMin = 3;  // of a task at least, where not
constexpr int64_t kPackPanels = 2;           // of A that it packs if they are along memory
constexpr int64_t kPanelGroup = 8;           // panels packed together
constexpr int64_t kConvertedPanels = 4;      // of a narrow A converted together
constexpr int64_t kReadyElements = 8192;  // of C at least in a call of after_block: few calls, each for what L1 holds

/// Scratch of a thread: it grows to the largest product met and stays.
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

  ScratchBlock a_, b_;
};

thread_local Scratch scratch;
std::atomic<std::uint64_t> calls = 0;

}  // namespace

template <class T>
Product<T>::Product(const GemmArgs<T>& args, const GemmKernels<T>& kernels)
    : args_(args),
      kernels_(kernels),
      split_(split(args, kernels)),
      operands_(args, kernels, split_.panels),
      call_(++calls) {}

template <class T>
void Product<T>::run() const {
  if (split_.shares_b)
    run_shared();
  else
    parallel_for(split_.tasks, [this](int64_t task) { run_task(task); });
}

template <class T>
void Product<T>::run_task(int64_t task) const {
  // If all column tiles are kept, each thread stays on its own tiles and packs only those.
  const int64_t tile = task % (split_.row_tiles * split_.column_tiles);
  const int64_t row_tile = split_.keeps_all ? tile / split_.column_tiles : tile % split_.row_tiles;
  const int64_t column_tile = split_.keeps_all ? tile % split_.column_tiles : tile / split_.row_tiles;
  const int64_t group = task / (split_.row_tiles * split_.column_tiles);
  const Range batches{args_.batch * group / split_.batch_groups, args_.batch * (group + 1) / split_.batch_groups};
  ConfiguredPanels configured(kernels_.setup);
  for (int64_t batch = batches.begin; batch < batches.end; ++batch)
    run_block(batch, column_tile, panels_of(row_tile), columns_of(column_tile), configured);
}

template <class T>
std::vector<typename Product<T>::Part> Product<T>::parts_of(Range panels, Range tiles) const {
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

template <class T>
void Product<T>::run_shared() const {
  const int64_t depth = split_.by_block ? split_.depth_block : operands_.depth();
  const int64_t a_size = split_.shares_a ? split_.panels * operands_.packed_width(kernels_.rows) * depth : 0;
  const int64_t b_size = split_.column_tiles * split_.tile_columns * depth;
  constexpr auto kMax = static_cast<int64_t>(kSharedBytesMax / sizeof(T));
  const int64_t row_groups = std::max<int64_t>(1, ceil_divide(a_size, kMax));
  const int64_t tiles = ceil_divide(split_.column_tiles, ceil_divide(b_size, kMax));
  T* const packed_a =
      split_.shares_a
          ? scratch.a<T>(ceil_divide(split_.panels, row_groups) * operands_.packed_width(kernels_.rows) * depth)
          : nullptr;
  T* const packed_b = scratch.b<T>(tiles * split_.tile_columns * depth);
  for (int64_t row_group = 0; row_group < row_groups; ++row_group)
    for (int64_t tile = 0; tile < split_.column_tiles; tile += tiles) {
      const Range panels{split_.panels * row_group / row_groups, split_.panels * (row_group + 1) / row_groups};
      const Range group{tile, std::min(tile + tiles, split_.column_tiles)};
      const std::vector<Part> parts = parts_of(panels, group);
      for (int64_t begin = 0; begin < operands_.depth(); begin += depth)
        run_shared_depth({begin, std::min(operands_.depth(), begin + depth)}, panels, group, parts, packed_a, packed_b);
    }
}

template <class T>
void Product<T>::run_shared_depth(Range whole_depth, Range panels, Range tiles, const std::vector<Part>& parts,
                                  T* packed_a, T* packed_b) const {
  const Range columns{columns_of(tiles.begin).begin, columns_of(tiles.end - 1).end};
  const int64_t a_width = operands_.packed_width(kernels_.rows), b_width = operands_.packed_width(columns.size());
  const int64_t blocks = ceil_divide(whole_depth.size(), split_.depth_block);
  const auto depth_of = [&](int64_t block) {
    const int64_t begin = whole_depth.begin + block * split_.depth_block;
    return Range{begin, std::min(whole_depth.end, begin + split_.depth_block)};
  };
  const auto a_of = [&](Range depth, int64_t panel) {
    return packed_a + (panel - panels.begin) * operands_.panel_size(depth.size());
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
      operands_.pack_a(0, depth, rows, chosen, a_of(depth, chosen.begin));
    else
      operands_.pack_b(0, depth, rows, chosen, b_of(depth, chosen.begin));
  });
  parallel_for(static_cast<int64_t>(parts.size()), [&](int64_t task) {
    const Part& part = parts[static_cast<std::size_t>(task)];
    ConfiguredPanels configured(kernels_.setup);
    T* own_a = nullptr;
    if (split_.pack_a && !split_.shares_a) own_a = scratch.a<T>(part.panels.size() * a_width * split_.depth_block);
    for (int64_t block = 0; block < blocks; ++block) {
      const Range depth = depth_of(block);
      if (own_a != nullptr) operands_.pack_a(0, depth, depth, part.panels, own_a);
      const T* part_a = split_.shares_a ? a_of(depth, part.panels.begin) : own_a;
      for (int64_t tile = part.tiles.begin; tile < part.tiles.end; ++tile)
        run_depth(0, depth, part.panels, columns_of(tile), b_of(depth, columns_of(tile).begin), configured, part_a);
    }
  });
}

template <class T>
void Product<T>::run_block(int64_t batch, int64_t column_tile, Range panels, Range columns,
                           ConfiguredPanels& configured) const {
  const int64_t width = operands_.packed_width(columns.size());
  const Scratch::Kept key{call_, batch, column_tile};
  const int64_t slot = split_.keeps_all ? column_tile : 0;
  T* packed = nullptr;
  bool is_packed = false;
  if (split_.pack_b) {
    const int64_t tile_size = operands_.depth() * split_.tile_columns;
    packed = scratch.b<T>(split_.keeps_all ? split_.column_tiles * tile_size
                          : split_.keeps_b ? operands_.depth() * width
                                           : split_.depth_block * width) +
             slot * tile_size;
    is_packed = split_.keeps_b && scratch.kept[slot] == key;
    if (!is_packed) scratch.kept[slot] = {};
  }
  Range depth{0, 0};
  do {
    depth = {depth.end, std::min(operands_.depth(), depth.end + split_.depth_block)};
    // Block after block of k, each in one piece: strips over all of k would be a power of two apart in the cache.
    T* block = split_.keeps_b ? packed + depth.begin * width : packed;
    if (split_.pack_b && !is_packed) operands_.pack_b(batch, depth, depth, columns, block);
    run_depth(batch, depth, panels, columns, block, configured);
  } while (depth.end < operands_.depth());
  if (split_.keeps_b) scratch.kept[slot] = key;
}

template <class T>
void Product<T>::run_depth(int64_t batch, Range depth, Range panels, Range columns, const T* packed_b,
                           ConfiguredPanels& configured, const T* given_a) const {
  const T* a = operands_.plain_a();
  const bool is_final = args_.after_block && depth.end == operands_.depth();
  const int64_t a_width = operands_.packed_width(kernels_.rows);
  const bool by_row = args_.a.column == 1;
  const bool packs = split_.pack_a && given_a == nullptr;
  const bool converts = a == nullptr && !split_.pack_a;  // to what the kernels read, and the strides stay
  // Panels whose rows are along memory are packed one by one, other panels in groups, for longer runs.
  const int64_t group_size = by_row ? 1 : split_.pack_a ? kPanelGroup : converts ? kConvertedPanels : 1;
  T* packed_a = packs ? scratch.a<T>(group_size * a_width * split_.depth_block) : nullptr;
  const int64_t converted_row =
      by_row ? operands_.spread_row(depth.size()) : operands_.packed_width(group_size * kernels_.rows);
  if (converts) packed_a = scratch.a<T>(by_row ? kernels_.rows * converted_row : depth.size() * converted_row);
  int64_t ready = operands_.rows_of(panels.begin).begin;
  for (int64_t first = panels.begin; first < panels.end; first += group_size) {
    const Range group{first, std::min(panels.end, first + group_size)};
    if (packs) operands_.pack_a(batch, depth, depth, group, packed_a);
    if (converts) operands_.convert_a(batch, depth, group, packed_a, converted_row);
    for (int64_t panel = group.begin; panel < group.end; ++panel) {
      const Range rows = operands_.rows_of(panel);
      if (split_.pack_a) {
        const T* panel_a = packs ? packed_a + (panel - group.begin) * operands_.panel_size(depth.size())
                                 : given_a + (panel - panels.begin) * operands_.panel_size(depth.size());
        const bool asks = packs && panel + 1 < panels.end && by_row && a != nullptr;
        run_panel(batch, depth, rows, columns, kernels_.by_depth, panel_a, operands_.panel_stride(), packed_b,
                  asks ? a + operands_.place_in_a(batch, rows.end, depth.begin) / operands_.unit() : nullptr,
                  configured);
      } else if (converts) {
        const T* panel_a = by_row ? packed_a : packed_a + (rows.begin - operands_.rows_of(group.begin).begin);
        run_panel(batch, depth, rows, columns, by_row ? kernels_.by_row : kernels_.by_depth, panel_a, converted_row,
                  packed_b, nullptr, configured);
      } else {
        run_panel(batch, depth, rows, columns, by_row ? kernels_.by_row : kernels_.by_depth,
                  a + operands_.place_in_a(batch, rows.begin, depth.begin) / operands_.unit(),
                  by_row ? args_.a.row / operands_.unit() : args_.a.column, packed_b, nullptr, configured);
      }
      if (is_final && (panel + 1 == panels.end || (rows.end - ready) * columns.size() >= kReadyElements)) {
        args_.after_block(batch, ready, rows.end, columns.begin, columns.end);
        ready = rows.end;
      }
    }
  }
}

template <class T>
void Product<T>::run_panel(int64_t batch, Range depth, Range rows, Range columns,
                           const typename GemmKernels<T>::Tile (&tiles)[2][kGemmRowsMax][kGemmVectors], const T* a,
                           int64_t a_stride, const T* packed_b, const T* next_a, ConfiguredPanels& configured) const {
  const int lanes = kernels_.lanes;
  const int64_t strip = lanes * kGemmVectors;
  const bool accumulate = args_.accumulate || depth.begin > 0;
  const T* b = packed_b != nullptr ? nullptr : args_.b.data + operands_.place_in_b(batch, depth.begin, 0);
  T* c = args_.c.data + args_.c.batch[batch] + rows.begin * args_.c.row;
  constexpr int64_t kLine = 64 / sizeof(T);
  const int64_t ahead_step = ceil_divide(ceil_divide(depth.size(), kLine), ceil_divide(columns.size(), strip)) * kLine;
  const int64_t next_row = args_.a.row / operands_.unit();
  int64_t ahead_begin = 0, ahead_end = std::min(depth.size(), ahead_step);
  configured.set_rows(static_cast<int>(rows.size()));
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
    tiles[last == lanes][rows.size() - 1][vectors - 1](depth.size(), a, a_stride, strip_b, b_stride, c + j, args_.c.row,
                                                       last, accumulate);
    if (packed_b != nullptr) packed_b += width * depth.size();
  }
}

template class Product<float>;
template class Product<double>;

}  // namespace weft::cpu::blocked
