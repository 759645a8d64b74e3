// The quantised product: panels of activations, and how y is split into tasks.
//
// A task owns a block of y: some columns, in groups of 16, of all rows or of as many as have their panels in the L2
// cache. A group of weights stays in L1 and meets the panels one after another. Few rows are one panel, so that a group
// is read from memory once, in runs as long as the threads allow. No element of y depends on the split.
#include "backend/cpu/quant_matmul.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <new>
#include <vector>

#include <fmt/format.h>

#include "backend/cpu/isa.hpp"
#include "backend/cpu/quant_kernels.hpp"
#include "base/threads.hpp"
#include "weft/error.hpp"

namespace weft::cpu {
namespace {

using std::int64_t;

constexpr int64_t ceil_divide(int64_t a, int64_t b) { return (a + b - 1) / b; }

constexpr int64_t kPanelsBytes = 384 * 1024;    // of a task's rows, in an L2 cache of 1 MiB
constexpr double kTaskCycles = 8e3;             // some 2 us, far above the cost of handing a task out
constexpr double kTasks = 64;                   // for large products of many rows
constexpr double kTasksPerThread = 2;           // of few rows: memory is quickest in long runs
constexpr int64_t kStreamedRows = 4;            // of x, while memory and not arithmetic takes the time
constexpr double kBytesPerCycle = 5;            // from memory, for one core
constexpr double kProductsPerCycle = 48;        // with the quickest kernels
constexpr int64_t kWideGroups = 4;              // columns of a block for epilogues, when there are many rows
constexpr int64_t kExactRows = 64;              // of x as they are, which take 4 times the room of rounded ones,
constexpr int64_t kNearBytes = 256 * 1024;      // at a time, where the weights stay in the cache meanwhile
constexpr int64_t kSerialElements = 16 * 1024;  // of x, packed sooner than a thread is called

// --- Instruction sets.

struct Available {
  std::array<const QuantKernels*, 6> all{};
  std::size_t count = 0;
  void add(const QuantKernels& kernels) { all[count++] = &kernels; }
};

const Available& available() {
  static const Available found = [] {
    Available a;
    a.add(baseline::kQuant);
#if defined(__x86_64__)
    if (best_isa() >= Isa::avx2 && __builtin_cpu_supports("f16c")) {
      a.add(avx2::kQuant);
      if (__builtin_cpu_supports("avxvnni")) a.add(avx2::kQuantVnni);
      if (best_isa() >= Isa::avx512) {
        a.add(avx512::kQuant);
        if (__builtin_cpu_supports("avx512vnni")) a.add(avx512::kQuantVnni);
        if (best_isa() >= Isa::amx) a.add(avx512::quant_amx());
      }
    }
#endif
    return a;
  }();
  return found;
}

// --- Panels of x.

/// Memory of a calling thread, which grows to the largest product met and stays.
class Scratch {
 public:
  std::byte* grown(int64_t bytes) {
    if (bytes_ < bytes) {
      std::free(data_);
      const int64_t rounded = ceil_divide(bytes, 4096) * 4096;
      bytes_ = 0;
      data_ = std::aligned_alloc(4096, static_cast<std::size_t>(rounded));
      if (data_ == nullptr) throw std::bad_alloc();
      bytes_ = rounded;
    }
    return static_cast<std::byte*>(data_);
  }
  ~Scratch() { std::free(data_); }

 private:
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};
thread_local Scratch eight_bit_scratch[2], exact_scratch, group_scratch, tile_scratch;

/// The rows of x in panels of the greatest height; the last, or the only one, is as low as its rows allow.
struct Panels {
  int height = 0, last_height = 0;
  int height_index = 0, last_index = 0;
  int64_t m = 0, count = 0, bytes = 0;  // bytes of a whole panel
  const std::byte* data = nullptr;

  const std::byte* at(int64_t panel) const { return data + panel * bytes; }
  int rows_of(int64_t panel) const { return static_cast<int>(std::min<int64_t>(height, m - panel * height)); }
  int index_of(int64_t panel) const { return panel + 1 < count ? height_index : last_index; }
};

Panels make_panels(const int (&heights)[kQuantHeights], const float* x, int64_t m, int64_t x_row, int64_t k,
                   int64_t (*panel_bytes)(int64_t, int64_t), QuantKernels::Pack pack, Scratch& scratch) {
  Panels p;
  p.m = m;
  while (p.height_index + 1 < kQuantHeights && heights[p.height_index + 1] > 0) ++p.height_index;
  p.height = heights[p.height_index];
  p.count = ceil_divide(m, p.height);
  const int64_t rest = m - (p.count - 1) * p.height;
  while (heights[p.last_index] < rest) ++p.last_index;
  p.last_height = heights[p.last_index];
  const int64_t blocks = ceil_divide(k, kQuantBlock);
  p.bytes = panel_bytes(p.height, blocks);
  std::byte* data = scratch.grown((p.count - 1) * p.bytes + panel_bytes(p.last_height, blocks));
  p.data = data;
  const auto pack_panel = [&](int64_t panel) {
    pack(x + panel * p.height * x_row, x_row, p.rows_of(panel), panel + 1 < p.count ? p.height : p.last_height, k,
         data + panel * p.bytes);
  };
  if (m * k <= kSerialElements) {
    for (int64_t panel = 0; panel < p.count; ++panel) pack_panel(panel);
  } else {
    parallel_for(p.count, pack_panel);
  }
  return p;
}

// --- The split.

/// One product of a call: its kernels, and its blocks of y.
struct Part {
  const QuantProduct* product;
  const Panels* panels;
  const QuantKernels::Tile* tiles;  // by index of the panel's height
  bool together;                    // panels of the greatest height are one call
  int64_t group_bytes, groups;
  int64_t row_tiles, tile_groups, column_tiles;
  int64_t first_task;
};

double cycles_of_group(const Part& part, int64_t k) {
  const double rows = static_cast<double>(part.panels->m) / static_cast<double>(part.row_tiles);
  return std::max(static_cast<double>(part.group_bytes) / kBytesPerCycle,
                  static_cast<double>(kQuantGroup * k) * rows / kProductsPerCycle);
}

void run_task(const Part& part, int64_t task, int64_t blocks) {
  const Panels& panels = *part.panels;
  const QuantProduct& product = *part.product;
  const int64_t row_tile = task % part.row_tiles, column_tile = task / part.row_tiles;
  const int64_t panel_begin = panels.count * row_tile / part.row_tiles;
  const int64_t panel_end = panels.count * (row_tile + 1) / part.row_tiles;
  const int64_t group_begin = column_tile * part.tile_groups;
  const int64_t group_end = std::min(part.groups, group_begin + part.tile_groups);
  const int64_t column_end = std::min(product.weights->n(), group_end * kQuantGroup);
  const int64_t row_begin = panel_begin * panels.height, row_end = std::min(panels.m, panel_end * panels.height);

  const int64_t step = panel_end - panel_begin == 1 ? group_end - group_begin : 1;
  float* y = product.y;
  int64_t y_row = product.y_row;
  if (y == nullptr) {
    y_row = (group_end - group_begin) * kQuantGroup;
    const std::byte* memory = tile_scratch.grown((row_end - row_begin) * y_row * static_cast<int64_t>(sizeof(float)));
    y = shifted(memory, -(row_begin * y_row + group_begin * kQuantGroup));
  }
  QuantTile tile{.group_bytes = part.group_bytes, .blocks = blocks, .y_row = y_row};
  tile.panel_bytes = panels.bytes;
  if (part.together) tile.scratch = group_scratch.grown(kQuantScratchBytes * blocks);
  for (int64_t group = group_begin; group < group_end; group += step) {
    tile.weights = product.weights->data() + group * part.group_bytes;
    tile.columns = std::min(column_end, (group + step) * kQuantGroup) - group * kQuantGroup;
    for (int64_t panel = panel_begin; panel < panel_end; panel += tile.panels) {
      tile.x = panels.at(panel);
      tile.y = shifted(y, panel * panels.height * y_row + group * kQuantGroup);
      tile.rows = panels.rows_of(panel);
      tile.panels = 1;
      if (part.together && panels.index_of(panel) == panels.height_index) {
        tile.panels = panel_end - panel - (panels.index_of(panel_end - 1) == panels.height_index ? 0 : 1);
        tile.rows = static_cast<int>(std::min(panels.m, (panel + tile.panels) * panels.height) - panel * panels.height);
      }
      part.tiles[panels.index_of(panel)](tile);
    }
  }
  if (product.y == nullptr)
    product.after_tile(y, y_row, row_begin, row_end, group_begin * kQuantGroup, column_end);
  else if (product.after_block)
    product.after_block(0, row_begin, row_end, group_begin * kQuantGroup, column_end);
}

}  // namespace

std::span<const QuantKernels* const> runnable_quant_kernels() { return {available().all.data(), available().count}; }

const QuantKernels& quant_kernels() {
  const auto all = runnable_quant_kernels();
  if (isa() == best_isa()) return *all.back();
#if defined(__x86_64__)
  // A set named below the best is that set alone, without what newer processors added to it.
  if (isa() == Isa::avx512) return __builtin_cpu_supports("avx512vnni") ? avx512::kQuantVnni : avx512::kQuant;
  if (isa() == Isa::avx2 && all.size() > 1) return avx2::kQuant;
#endif
  return baseline::kQuant;
}

void quant_matmul(std::span<const QuantProduct> products, const float* x, int64_t m, int64_t x_row,
                  Activations activations, const QuantKernels* kernels) {
  if (products.empty() || m <= 0) return;
  if (kernels == nullptr) kernels = &quant_kernels();
  const int64_t k = products[0].weights->k(), blocks = ceil_divide(k, kQuantBlock);
  const auto is_rounded = [&](const QuantProduct& product) {
    return activations == Activations::eight_bit && !quant_format(product.weights->type()).is_plain();
  };
  bool any_rounded[2] = {}, any_exact = false;
  int64_t weight_bytes = 0;
  const auto full_range = [&](const QuantProduct& product) {
    return kernels->takes_full_range(quant_format(product.weights->type()));
  };
  for (const QuantProduct& product : products) {
    if (product.weights->k() != k)
      throw ShapeError(fmt::format("quantised product: matrices of one x differ in k: [{}, {}] and [{}, {}]",
                                   products[0].weights->n(), k, product.weights->n(), product.weights->k()));
    (is_rounded(product) ? any_rounded[full_range(product)] : any_exact) = true;
    weight_bytes += product.weights->bytes();
  }
  if (activations == Activations::exact && m > kExactRows && weight_bytes <= kNearBytes) {
    for (const QuantProduct& product : products)
      for (int64_t row = 0; row < m; row += kExactRows) {
        const auto after = [&](int64_t batch, int64_t row_begin, int64_t row_end, int64_t column_begin,
                               int64_t column_end) {
          product.after_block(batch, row + row_begin, row + row_end, column_begin, column_end);
        };
        const auto after_tile = [&](const float* y, int64_t y_row, int64_t row_begin, int64_t row_end,
                                    int64_t column_begin, int64_t column_end) {
          product.after_tile(shifted(y, -row * y_row), y_row, row + row_begin, row + row_end, column_begin, column_end);
        };
        QuantProduct part{product.weights, nullptr, product.y_row, {}, {}};
        if (product.y != nullptr) part.y = product.y + row * product.y_row;
        if (product.after_block) part.after_block = after;
        if (product.after_tile) part.after_tile = after_tile;
        quant_matmul({&part, 1}, x + row * x_row, std::min(kExactRows, m - row), x_row, activations, kernels);
      }
    return;
  }
  Panels rounded[2], exact;
  for (int full = 0; full < 2; ++full)
    if (any_rounded[full])
      rounded[full] = make_panels(kernels->eight_bit_heights, x, m, x_row, k, eight_bit_panel_bytes,
                                  kernels->pack_eight_bit[full], eight_bit_scratch[full]);
  if (any_exact)
    exact = make_panels(kernels->exact_heights, x, m, x_row, k, exact_panel_bytes, kernels->pack_exact, exact_scratch);

  thread_local std::vector<Part> scratch_parts;
  std::vector<Part>& parts = scratch_parts;
  parts.clear();
  double cycles = 0;
  for (const QuantProduct& product : products) {
    const QuantFormat format = quant_format(product.weights->type());
    const int index = quant_index(product.weights->type());
    Part part{};
    part.product = &product;
    part.panels = is_rounded(product) ? &rounded[full_range(product)] : &exact;
    part.tiles = is_rounded(product) ? kernels->eight_bit[index] : kernels->exact[index];
    part.together = is_rounded(product) && kernels->panels_together;
    part.group_bytes = format.group_bytes(blocks);
    part.groups = ceil_divide(product.weights->n(), kQuantGroup);
    part.row_tiles =
        ceil_divide(part.panels->count, std::max<int64_t>(1, kPanelsBytes / std::max<int64_t>(1, part.panels->bytes)));
    cycles += cycles_of_group(part, k) * static_cast<double>(part.groups * part.row_tiles);
    if (part.groups > 0) parts.push_back(part);
  }
  const double wanted = m <= kStreamedRows ? kTasksPerThread * thread_count() : kTasks;
  const double task_cycles = std::max(kTaskCycles, cycles / wanted);
  int64_t tasks = 0;
  for (Part& part : parts) {
    const auto fitting = static_cast<int64_t>(task_cycles / std::max(1.0, cycles_of_group(part, k)));
    const int64_t least = part.panels->count > 1 ? kWideGroups : 1;
    part.tile_groups = std::clamp<int64_t>(fitting, std::min(least, part.groups), part.groups);
    part.column_tiles = ceil_divide(part.groups, part.tile_groups);
    part.first_task = tasks;
    tasks += part.row_tiles * part.column_tiles;
  }
  parallel_for(tasks, [&](int64_t task) {
    std::size_t i = parts.size() - 1;
    while (parts[i].first_task > task) --i;
    run_task(parts[i], task - parts[i].first_task, blocks);
  });
}

}  // namespace weft::cpu
