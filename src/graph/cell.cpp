// State behind Variables.
#include <algorithm>
#include <atomic>
#include <mutex>

#include "graph/node.hpp"

namespace weft::graph {
namespace {

struct Pending {
  std::mutex mutex;
  std::vector<std::shared_ptr<Cell>> cells;
  std::vector<std::weak_ptr<Cell>> known;
  std::size_t sweep_at = 64;
};
Pending& pending() {
  static Pending* p = new Pending;
  return *p;
}

// A node of its own that views of the parameter do not fold into: gradients are asked for by node, and the reshape of a
// reshape would lead past it.
NodeRef slice_of(const NodeRef& flat, Extent offset, const Shape& shape) {
  const NodeRef part = reshape(slice(flat, {offset}, {1}, {shape.numel()}), shape);
  return make_node({.kind = Kind::detach,
                    .type = part->type,
                    .shape = shape,
                    .device = part->device,
                    .inputs = {part},
                    .ints = {0}});
}

// Appends elements [begin, end) of a rank-1 value. A concat gives its own parts, so that many updates of slices, one
// after another, stay one concat.
void append_range(const NodeRef& whole, Extent begin, Extent end, std::vector<NodeRef>& parts) {
  if (begin >= end) return;
  if (whole->kind != Kind::concat) return parts.push_back(slice(whole, {begin}, {1}, {end - begin}));
  Extent first = 0;
  for (const NodeRef& part : whole->inputs) {
    const Extent last = first + part->shape[0];
    const Extent from = std::max(begin, first), to = std::min(end, last);
    if (from < to) parts.push_back(slice(part, {from - first}, {1}, {to - from}));
    first = last;
  }
}

}  // namespace

std::shared_ptr<Cell> make_cell() {
  auto cell = std::make_shared<Cell>();
  std::lock_guard lock(pending().mutex);
  auto& known = pending().known;
  // Forgotten ones are swept out whenever the list has doubled.
  if (known.size() >= pending().sweep_at) {
    known.erase(std::remove_if(known.begin(), known.end(), [](const auto& weak) { return weak.expired(); }),
                known.end());
    pending().sweep_at = std::max<std::size_t>(64, known.size() * 2);
  }
  known.push_back(cell);
  return cell;
}

std::vector<std::shared_ptr<Cell>> all_cells() {
  std::lock_guard lock(pending().mutex);
  std::vector<std::shared_ptr<Cell>> cells;
  for (const auto& weak : pending().known)
    if (auto cell = weak.lock()) cells.push_back(std::move(cell));
  return cells;
}

std::vector<std::shared_ptr<Cell>> pending_cells() {
  std::lock_guard lock(pending().mutex);
  // A cell that only this list still knows can never be read again.
  auto& cells = pending().cells;
  cells.erase(std::remove_if(cells.begin(), cells.end(), [](const auto& cell) { return cell.use_count() == 1; }),
              cells.end());
  return cells;
}

void set_pending(const std::shared_ptr<Cell>& cell, NodeRef next) {
  if (cell->shared) {
    // A slice of shared state: the whole becomes its parts around the new one.
    const NodeRef whole = value_of(cell->shared);
    const Extent n = cell->shape.numel(), total = whole->shape[0], end = cell->offset + n;
    std::vector<NodeRef> parts;
    append_range(whole, 0, cell->offset, parts);
    parts.push_back(reshape(next, {n}));
    append_range(whole, end, total, parts);
    return set_pending(cell->shared, concat(std::move(parts), 0));
  }
  if (next == cell->committed) return clear_pending(cell);
  // A node of its own for every assignment: variables with equal values (two biases of zeros) must stay apart, since
  // gradients are asked for by node.
  static std::atomic<Extent> assignments = 0;
  next = make_node({.kind = Kind::detach,
                    .type = next->type,
                    .shape = next->shape,
                    .device = next->device,
                    .inputs = {next},
                    .ints = {++assignments}});
  std::lock_guard lock(pending().mutex);
  auto& cells = pending().cells;
  if (!cell->pending) cells.push_back(cell);
  cell->pending = std::move(next);
}

void clear_pending(const std::shared_ptr<Cell>& cell) {
  std::lock_guard lock(pending().mutex);
  auto& cells = pending().cells;
  cell->pending = nullptr;
  cells.erase(std::remove(cells.begin(), cells.end(), cell), cells.end());
}

NodeRef value_of(const std::shared_ptr<Cell>& cell) {
  if (cell->shared) return slice_of(value_of(cell->shared), cell->offset, cell->shape);
  return cell->pending ? cell->pending : cell->committed;
}

}  // namespace weft::graph
