// The quantised product: panels of activations, and how y is split into tasks.
//
// A task owns a block of y: some columns, in groups of 16, of all rows or of as many rows as have panels that fit the L2 cache.
// A group of weights stays in L1 and is multiplied with the panels one after another. Few rows are one panel, so that a group
// is read from memory once, in runs as long as the threads allow. No element of y depends on the split.
#include "backend/cpu/quant/matmul.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <new>
#include <vector>

#include <fmt/format.h>

#include "backend/cpu/isa.hpp"
#include "backend/cpu/quant/kernels.hpp"
#include "base/threads.hpp"
#include "weft/error.hpp"

namespace weft::cpu {
namespace {

using std::int64_t;

constexpr int64_t ceil_divide(int64_t a, int64_t b) { return (a + b - 1) / b; }

constexpr int64_t kPanelsBytes = 384 * 1024;   // of a task's rows, in an L2 cache of 1 MiB
constexpr double kTaskCycles = 8e3;            // some 2 us, far above the cost of starting a task
constexpr double kTasks = 64;                  // for large products of many rows
constexpr double kTasksPerThread = 2;          // for few rows: memory is fastest in long runs
constexpr int64_t kStreamedRows = 4;           // of x, while memory and not arithmetic takes the time
constexpr double kBytesPerCycle = 5;           // from memory, for one core
constexpr double kProductsPerCycle = 48;       // with the quickest kernels
constexpr int64_t kWideGroups = 4;             // columns of a block for epilogues, when there are many rows
constexpr int64_t kExactRows = 64;             // of x as they are, which take 4 times the room of rounded ones,
constexpr int64_t kNearBytes = 256 * 1024;     // at a time, where the weights stay in the cache meanwhile
constexpr int64_t kSmallElements = 16 * 1024;  // of x: packing it takes less time than asking another thread
constexpr int64_t kLine = 64;
constexpr int64_t kPieceBytes = 1024, kAskedBytes = 32 * 1024;  // of weights that a waiting thread prefetches

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
      if (__builtin_cpu_supports("avxvnni")) a.add(avx2::quant_vnni());
      if (best_isa() >= Isa::avx512) {
        a.add(avx512::kQuant);
        if (__builtin_cpu_supports("avx512vnni")) a.add(avx512::quant_vnni());
        if (best_isa() >= Isa::amx) a.add(avx512::quant_amx());
      }
    }
#elif defined(__aarch64__)
    if (best_isa() >= Isa::neon_dot) a.add(neon::quant_dot());
#endif
    return a;
  }();
  return found;
}

// --- Panels of x.

/// Memory of a calling thread, which grows to the largest product so far and is kept.
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
  const std::byte* data() const { return static_cast<const std::byte*>(data_); }
  ~Scratch() { std::free(data_); }

 private:
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

/// The rows of x in panels of the greatest height; the last panel is only as high as its rows need.
struct Panels {
  using Bytes = int64_t (*)(int64_t height, int64_t blocks);

  int height = 0, last_height = 0;
  int height_index = 0, last_index = 0;
  int64_t m = 0, k = 0, count = 0, bytes = 0;  // bytes of a whole panel
  int64_t total_bytes = 0, offset = 0;         // of all, and where they begin in the memory for the panels of a call
  QuantKernels::Pack pack = nullptr;           // null: none of the products needs these

  Panels() = default;
  Panels(const int (&heights)[kQuantHeights], int64_t rows, int64_t columns, Bytes panel_bytes, QuantKernels::Pack how)
      : m(rows), k(columns), pack(how) {
    while (height_index + 1 < kQuantHeights && heights[height_index + 1] > 0) ++height_index;
    height = heights[height_index];
    count = ceil_divide(m, height);
    const int64_t rest = m - (count - 1) * height;
    while (heights[last_index] < rest) ++last_index;
    last_height = heights[last_index];
    const int64_t blocks = ceil_divide(k, kQuantBlock);
    bytes = panel_bytes(height, blocks);
    total_bytes = (count - 1) * bytes + panel_bytes(last_height, blocks);
  }
  int rows_of(int64_t panel) const { return static_cast<int>(std::min<int64_t>(height, m - panel * height)); }
  int index_of(int64_t panel) const { return panel + 1 < count ? height_index : last_index; }
  void make(int64_t panel, const float* x, int64_t x_row, std::byte* memory) const {
    pack(x + panel * height * x_row, x_row, rows_of(panel), panel + 1 < count ? height : last_height, k,
         memory + offset + panel * bytes);
  }
};

/// Memory that a thread keeps between products.
struct ThreadMemory {
  Scratch panels, group, tile;
  std::uint64_t laid_out = 0;  // the call whose x is in the panels
};
thread_local ThreadMemory memory_of_thread;
std::atomic<std::uint64_t> calls = 0;

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

void run_task(const Part& part, int64_t task, int64_t blocks, const std::byte* x) {
  const Panels& panels = *part.panels;
  const QuantProduct& product = *part.product;
  const int64_t row_tile = task % part.row_tiles, column_tile = task / part.row_tiles;
  const int64_t panel_begin = panels.count * row_tile / part.row_tiles;
  const int64_t panel_end = panels.count * (row_tile + 1) / part.row_tiles;
  const int64_t group_begin = column_tile * part.tile_groups;
  const int64_t group_end = std::min(part.groups, group_begin + part.tile_groups);
  const int64_t column_begin = group_begin * kQuantGroup;
  const int64_t column_end = std::min(product.weights->n(), group_end * kQuantGroup);
  const int64_t row_begin = panel_begin * panels.height, row_end = std::min(panels.m, panel_end * panels.height);

  const int64_t step = panel_end - panel_begin == 1 ? group_end - group_begin : 1;
  float* y = product.y;
  int64_t y_row = product.y_row;
  if (y == nullptr) {
    y_row = (group_end - group_begin) * kQuantGroup;
    const std::byte* memory =
        memory_of_thread.tile.grown((row_end - row_begin) * y_row * static_cast<int64_t>(sizeof(float)));
    y = shifted(memory, -(row_begin * y_row + column_begin));
  }
  QuantTile tile{.group_bytes = part.group_bytes, .blocks = blocks, .y_row = y_row};
  tile.panel_bytes = panels.bytes;
  if (part.together) tile.scratch = memory_of_thread.group.grown(kQuantScratchBytes * blocks);
  for (int64_t group = group_begin; group < group_end; group += step) {
    tile.weights = product.weights->data() + group * part.group_bytes;
    tile.columns = std::min(column_end, (group + step) * kQuantGroup) - group * kQuantGroup;
    for (int64_t panel = panel_begin; panel < panel_end; panel += tile.panels) {
      tile.x = x + panels.offset + panel * panels.bytes;
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
    product.after_tile(y, y_row, row_begin, row_end, column_begin, column_end);
  else if (product.after_block)
    product.after_block(0, row_begin, row_end, column_begin, column_end);
}

/// The rows of a product from one row on, as a separate product.
struct RowsOfProduct {
  const QuantProduct* whole = nullptr;
  int64_t row = 0;

  QuantProduct part() {
    QuantProduct made{whole->weights, nullptr, whole->y_row, {}, {}};
    if (whole->y != nullptr) made.y = whole->y + row * whole->y_row;
    if (whole->after_block) made.after_block = *this;
    if (whole->after_tile) made.after_tile = *this;
    return made;
  }
  void operator()(int64_t batch, int64_t row_begin, int64_t row_end, int64_t column_begin, int64_t column_end) const {
    whole->after_block(batch, row + row_begin, row + row_end, column_begin, column_end);
  }
  void operator()(const float* y, int64_t y_row, int64_t row_begin, int64_t row_end, int64_t column_begin,
                  int64_t column_end) const {
    whole->after_tile(shifted(y, -row * y_row), y_row, row + row_begin, row + row_end, column_begin, column_end);
  }
};

}  // namespace

std::span<const QuantKernels* const> runnable_quant_kernels() { return {available().all.data(), available().count}; }

const QuantKernels& quant_kernels() {
  const auto all = runnable_quant_kernels();
  if (isa() == best_isa()) return *all.back();
#if defined(__x86_64__)
  // If a lower set than the best is named, only that set is used, without later extensions.
  if (isa() >= Isa::avx512) return __builtin_cpu_supports("avx512vnni") ? avx512::quant_vnni() : avx512::kQuant;
  if (isa() == Isa::avx2 && all.size() > 1) return avx2::kQuant;
#elif defined(__aarch64__)
  if (isa() >= Isa::neon_dot) return neon::quant_dot();
#endif
  return baseline::kQuant;
}

struct QuantTasks::State {
  int64_t m = 0, k = 0, blocks = 0;
  std::array<Panels, 3> panels;  // rounded to less than the full range of eight bits, to all of it, exact
  int64_t panel_bytes = 0;       // of all
  bool small = false;
  std::vector<Part> parts;
  int64_t tasks = 0;
  // Of this run.
  const float* x = nullptr;
  int64_t x_row = 0;
  std::uint64_t call = 0;
  const std::byte* shared = nullptr;  // panels that the thread which called `start` keeps

  const Part& part_of(int64_t task) const {
    std::size_t i = parts.size() - 1;
    while (parts[i].first_task > task) --i;
    return parts[i];
  }
  void make_panels_of_thread() const {
    ThreadMemory& mine = memory_of_thread;
    if (mine.laid_out == call) return;
    std::byte* memory = mine.panels.grown(panel_bytes);
    for (const Panels& each : panels)
      for (int64_t panel = 0; panel < each.count; ++panel) each.make(panel, x, x_row, memory);
    mine.laid_out = call;
  }
};

QuantTasks::QuantTasks(std::span<const QuantProduct> products, int64_t m, Activations activations,
                       const QuantKernels* kernels)
    : state_(std::make_unique<State>()) {
  State& s = *state_;
  if (products.empty() || m <= 0) return;
  if (kernels == nullptr) kernels = &quant_kernels();
  s.m = m, s.k = products[0].weights->k(), s.blocks = ceil_divide(s.k, kQuantBlock);
  s.small = m * s.k <= kSmallElements;
  double cycles = 0;
  for (const QuantProduct& product : products) {
    if (product.weights->k() != s.k)
      throw ShapeError(fmt::format("quantised product: matrices of one x differ in k: [{}, {}] and [{}, {}]",
                                   products[0].weights->n(), s.k, product.weights->n(), product.weights->k()));
    const QuantFormat format = quant_format(product.weights->type());
    const int index = quant_index(product.weights->type());
    const bool rounded = activations == Activations::eight_bit && !format.is_plain();
    const std::size_t kind = !rounded ? 2 : kernels->takes_full_range(format) ? 1 : 0;
    Panels& panels = s.panels[kind];
    if (panels.pack == nullptr)
      panels = rounded
                   ? Panels(kernels->eight_bit_heights, m, s.k, eight_bit_panel_bytes, kernels->pack_eight_bit[kind])
                   : Panels(kernels->exact_heights, m, s.k, exact_panel_bytes, kernels->pack_exact);
    Part part{};
    part.product = &product;
    part.panels = &panels;
    part.tiles = rounded ? kernels->eight_bit[index] : kernels->exact[index];
    part.together = rounded && kernels->panels_together;
    part.group_bytes = format.group_bytes(s.blocks);
    part.groups = ceil_divide(product.weights->n(), kQuantGroup);
    part.row_tiles = ceil_divide(panels.count, std::max<int64_t>(1, kPanelsBytes / std::max<int64_t>(1, panels.bytes)));
    cycles += cycles_of_group(part, s.k) * static_cast<double>(part.groups * part.row_tiles);
    if (part.groups > 0) s.parts.push_back(part);
  }
  for (Panels& panels : s.panels) {
    panels.offset = s.panel_bytes;
    s.panel_bytes += ceil_divide(panels.total_bytes, kLine) * kLine;
  }
  const double wanted = m <= kStreamedRows ? kTasksPerThread * thread_count() : kTasks;
  const double task_cycles = std::max(kTaskCycles, cycles / wanted);
  for (Part& part : s.parts) {
    const auto fitting = static_cast<int64_t>(task_cycles / std::max(1.0, cycles_of_group(part, s.k)));
    const int64_t least = part.panels->count > 1 ? kWideGroups : 1;
    part.tile_groups = std::clamp<int64_t>(fitting, std::min(least, part.groups), part.groups);
    part.column_tiles = ceil_divide(part.groups, part.tile_groups);
    part.first_task = s.tasks;
    s.tasks += part.row_tiles * part.column_tiles;
  }
}

QuantTasks::~QuantTasks() = default;
bool QuantTasks::is_small() const { return state_->small; }
int64_t QuantTasks::count() const { return state_->tasks; }

void QuantTasks::start(const float* x, int64_t x_row) {
  State& s = *state_;
  s.x = x, s.x_row = x_row;
  s.call = calls.fetch_add(1, std::memory_order_relaxed) + 1;
  if (s.small) return;
  ThreadMemory& mine = memory_of_thread;
  std::byte* memory = mine.panels.grown(s.panel_bytes);
  mine.laid_out = 0;
  s.shared = memory;
  for (const Panels& panels : s.panels)
    if (panels.pack != nullptr)
      parallel_for(panels.count, [&](int64_t panel) { panels.make(panel, x, x_row, memory); });
}

void QuantTasks::run(int64_t task) const {
  const State& s = *state_;
  const ThreadMemory& mine = memory_of_thread;
  if (s.small) s.make_panels_of_thread();
  const Part& part = s.part_of(task);
  run_task(part, task - part.first_task, s.blocks, s.small ? mine.panels.data() : s.shared);
}

bool QuantTasks::ask_ahead(int64_t task, int piece) const {
  const State& s = *state_;
  if (task >= s.tasks) return false;
  const Part& part = s.part_of(task);
  const int64_t group = (task - part.first_task) / part.row_tiles * part.tile_groups;
  const int64_t bytes = std::min(kAskedBytes, (part.groups - group) * part.group_bytes);
  const int64_t begin = piece * kPieceBytes, end = std::min(bytes, begin + kPieceBytes);
  const std::byte* weights = part.product->weights->data() + group * part.group_bytes;
  for (int64_t at = begin; at < end; at += kLine) __builtin_prefetch(weights + at, 0, 2);
  return end < bytes;
}

void quant_matmul(std::span<const QuantProduct> products, const float* x, int64_t m, int64_t x_row,
                  Activations activations, const QuantKernels* kernels) {
  const auto run = [&](std::span<const QuantProduct> each, const float* from, int64_t rows) {
    QuantTasks tasks(each, rows, activations, kernels);
    tasks.start(from, x_row);
    parallel_for(tasks.count(), [&](int64_t task) { tasks.run(task); });
  };
  int64_t weight_bytes = 0;
  for (const QuantProduct& product : products) weight_bytes += product.weights->bytes();
  if (activations != Activations::exact || m <= kExactRows || weight_bytes > kNearBytes) return run(products, x, m);
  std::vector<RowsOfProduct> rows(products.size());
  std::vector<QuantProduct> parts(products.size());
  for (int64_t row = 0; row < m; row += kExactRows) {
    for (std::size_t i = 0; i < products.size(); ++i) {
      rows[i] = {&products[i], row};
      parts[i] = rows[i].part();
    }
    run(parts, x + row * x_row, std::min(kExactRows, m - row));
  }
}

}  // namespace weft::cpu
