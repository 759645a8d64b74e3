// Chooses the size of a tile, and the division of the rectangle into tasks.
#include <algorithm>

#include "backend/cpu/loop/schedule.hpp"

namespace weft::cpu {
namespace {

using kernel::StepKind;

constexpr Extent kChainRows = 4;          // times more rows in a tile where chains work on it
constexpr Extent kChainBlocks = 16;       // at least
constexpr Extent kLongRow = 1024;         // elements of a row that is worth calls
constexpr Extent kReversed = 1 << 14;     // elements of a row that is put in the opposite order
constexpr Extent kTurned = 64;            // elements of a row of a tile that is transposed
constexpr Extent kTurnedTiles = 4;        // times more elements in such a tile
constexpr Extent kPartRows = 64;          // of a product at most, for work on its parts
constexpr Extent kComputedColumns = 128;  // in a tile at most
constexpr Extent kWholeRow = 4096;        // columns that are only reduced together, at most
constexpr Extent kReducedRows = 128;      // of such columns, in a tile
constexpr Extent kPartOfColumn = 128;     // rows of a part of divided columns, at least, if there are enough parts
constexpr Extent kPartsMin = 16;
constexpr Extent kTaskWork = 1 << 16;  // element-ops that are worth a task
constexpr Extent kTasksMax = 64;

/// Whether one access runs along the slow axis and another along the fast one.
bool transposes_something(const LoopNodes& nodes) {
  const auto turned = [](const Access& access) {
    const Extent slow = access.slow_stride(), fast = access.fast.empty() ? 0 : access.fast.back().stride;
    return access.separable && slow == 1 && (fast > 1 || fast < 0);
  };
  return std::any_of(nodes.nodes.begin(), nodes.nodes.end(),
                     [&](const LoopNode& node) { return node.kind == StepKind::load && turned(node.access); }) ||
         std::any_of(nodes.stores.begin(), nodes.stores.end(),
                     [&](const StoreNode& store) { return turned(store.access); });
}

/// Whether chains do all of the work on elements: then no tile has registers in memory, and long ones save calls. Sums must not
/// depend on whether chains are switched off.
bool is_chained(const LoopNodes& nodes) {
  bool any = false;
  for (int i = 0; i < nodes.count(); ++i) {
    const LoopNode& node = nodes[i];
    if (node.outer || node.kind == StepKind::constant || node.kind == StepKind::reduce || nodes.is_memory(i)) continue;
    if (!chain_op_of(nodes, i)) return false;
    any = true;
  }
  return any && isa() >= Isa::avx512;
}

/// Whether rows are only put in the opposite order, which needs no tile: long pieces of them are read and written in one go.
bool only_reverses(const LoopNodes& nodes) {
  bool any = false;
  for (const LoopNode& node : nodes.nodes) {
    if (node.outer || node.kind == StepKind::constant) continue;
    if (node.kind != StepKind::load || size_bytes(node.type) != 4 || !node.access.is_reversed()) return false;
    any = true;
  }
  return any;
}

/// Whether reading and writing should take turns often: memory rests while a phase works on what another one has read. Short rows
/// cost more by calls than they gain. Sums of squares ask for what follows themselves.
bool alternates(const LoopNodes& nodes, Extent inner) {
  return nodes.phases > 1 && inner >= kLongRow &&
         std::none_of(nodes.nodes.begin(), nodes.nodes.end(),
                      [](const LoopNode& node) { return node.squares_around >= 0; });
}

/// Tasks of at least kTaskWork: ranges of blocks, or, if there are few blocks of long rows, parts of the inner axis.
void divide_into_tasks(const LoopNodes& nodes, LoopProgram::Code& code) {
  const Extent outer = std::max<Extent>(code.outer, 1), inner = std::max<Extent>(code.inner, 1);
  const Extent blocks = std::max<Extent>(code.blocks(), 1), chunks = (inner + code.chunk - 1) / code.chunk;
  const auto operations =
      static_cast<Extent>(std::count_if(nodes.nodes.begin(), nodes.nodes.end(), [](const LoopNode& node) {
        return node.kind != StepKind::constant && !node.outer;
      }));
  const Extent tasks = std::clamp<Extent>(outer * inner * std::max<Extent>(operations, 1) / kTaskWork, 1, kTasksMax);
  code.splits = blocks >= std::min<Extent>(tasks, 8) ? 1 : std::min(chunks, (tasks + blocks - 1) / blocks);
  // Each part of columns has accumulators of its own.
  if (code.columns)
    code.splits = std::min(code.splits, std::max(inner / kPartOfColumn, (kPartsMin + blocks - 1) / blocks));
  code.blocks_per_task = code.splits > 1 ? 1 : (blocks + tasks - 1) / tasks;
}

}  // namespace

void choose_tile(const LoopNodes& nodes, Extent tile_elements, LoopProgram::Code& code) {
  const Extent outer = std::max<Extent>(code.outer, 1), inner = std::max<Extent>(code.inner, 1);
  const bool computes = std::any_of(nodes.nodes.begin(), nodes.nodes.end(), [](const LoopNode& node) {
    return !node.outer && node.kind != StepKind::load && node.kind != StepKind::constant;
  });
  if (code.columns) {
    if (computes) {
      const Extent columns = nodes.copied_columns > 0 ? nodes.copied_columns : kComputedColumns;
      code.block = std::min(outer, std::min(columns, tile_elements));
      code.chunk = std::min(inner, std::max<Extent>(1, 4 * tile_elements / code.block));
    } else {
      // Kernels that only add up values in memory need no tiles: they read many whole rows.
      code.block = std::min(outer, kWholeRow);
      code.chunk = std::min(inner, kReducedRows);
    }
  } else if (transposes_something(nodes)) {
    // Each row of a transposed operand is read a few cache lines at a time.
    code.chunk = std::min<Extent>(inner, kTurned);
    code.block = std::min(outer, std::max<Extent>(1, kTurnedTiles * tile_elements / kTurned));
  } else if (inner <= tile_elements) {
    code.chunk = inner;
    code.block = std::min(outer, std::max<Extent>(1, tile_elements / inner));
    // Chains need few tiles, so each may be larger, which saves calls; but not so large that there are few tasks.
    if (chains_enabled() && !alternates(nodes, inner))
      code.block = std::max(code.block, std::min(kChainRows * tile_elements / inner, outer / kChainBlocks));
  } else {
    const Extent most = only_reverses(nodes) ? kReversed
                        : is_chained(nodes)  ? kChainRows * tile_elements
                                             : tile_elements;
    const Extent chunks = (inner + most - 1) / most;
    code.chunk = std::min(inner, ((inner + chunks - 1) / chunks + 63) / 64 * 64);
    code.block = 1;
  }
  code.block = std::min(code.block, std::max<Extent>(code.run, 1));
  if (const Extent run = std::max<Extent>(code.fast_run, 1); code.chunk > run) {
    code.chunk = run;
    code.block = std::min(outer, std::max<Extent>(code.block, (computes ? 1 : 16) * tile_elements / run));
  }
  code.tile = code.block * code.chunk;
  if (nodes.part_by_part) {
    // The width of the parts is known only when they are ready: narrow parts come with more rows at a time.
    code.block = std::min(outer, kPartRows);
    code.tile = std::max(code.tile, tile_elements * (chains_enabled() ? kChainRows : 1));
  }
  divide_into_tasks(nodes, code);
}

}  // namespace weft::cpu
