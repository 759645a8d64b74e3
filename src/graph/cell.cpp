// State behind Variables.
#include <algorithm>
#include <atomic>
#include <mutex>

#include "graph/graph_state.hpp"
#include "graph/history.hpp"
#include "graph/trace_scope.hpp"

namespace weft::graph {
namespace {

GraphState& state_of(const Cell& cell) { return cell.session->part<GraphState>(); }

// A separate node that views of the parameter do not fold into. Gradients are identified by nodes, and the reshape of a reshape
// would bypass it.
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
  cell->session = SessionState::current().shared_from_this();
  cell->made_in_trace = TraceScope::current() != nullptr;
  return cell;
}

void make_known(const std::shared_ptr<Cell>& cell) {
  GraphState& state = state_of(*cell);
  std::lock_guard lock(state.cells_mutex);
  auto& known = state.known;
  // Removes forgotten cells whenever the list has doubled.
  if (known.size() >= state.sweep_at) {
    known.erase(std::remove_if(known.begin(), known.end(), [](const auto& weak) { return weak.expired(); }),
                known.end());
    state.sweep_at = std::max<std::size_t>(64, known.size() * 2);
  }
  known.push_back(cell);
}

std::vector<std::shared_ptr<Cell>> all_cells() {
  GraphState& state = GraphState::current();
  std::lock_guard lock(state.cells_mutex);
  std::vector<std::shared_ptr<Cell>> cells;
  for (const auto& weak : state.known)
    if (auto cell = weak.lock()) cells.push_back(std::move(cell));
  return cells;
}

std::vector<PendingUpdate> pending_updates() {
  GraphState& state = GraphState::current();
  std::vector<std::shared_ptr<Cell>> forgotten;  // released after the lock
  std::vector<PendingUpdate> updates;
  std::lock_guard lock(state.cells_mutex);
  // A cell that only this list still knows can never be read again.
  auto& cells = state.pending;
  const auto first = std::stable_partition(cells.begin(), cells.end(), [](const auto& c) { return c.use_count() > 1; });
  forgotten.assign(std::make_move_iterator(first), std::make_move_iterator(cells.end()));
  cells.erase(first, cells.end());
  updates.reserve(cells.size());
  for (const auto& cell : cells) updates.push_back({cell, cell->pending});
  return updates;
}

std::vector<std::shared_ptr<Cell>> pending_cells() {
  std::vector<std::shared_ptr<Cell>> cells;
  for (PendingUpdate& update : pending_updates()) cells.push_back(std::move(update.cell));
  return cells;
}

namespace {

void remove_pending(GraphState& state, const std::shared_ptr<Cell>& cell) {
  cell->pending = nullptr;
  state.pending.erase(std::remove(state.pending.begin(), state.pending.end(), cell), state.pending.end());
}

}  // namespace

namespace {

bool an_outlived_node_lives(GraphState& state) {
  std::lock_guard lock(state.cells_mutex);
  std::erase_if(state.outlived, [](const auto& node) { return node.expired(); });
  return !state.outlived.empty();
}

}  // namespace

void set_pending(const std::shared_ptr<Cell>& cell, NodeRef next) {
  if (cell->shared) {
    // A slice of shared state: the new whole joins the old parts around the new one.
    const NodeRef whole = value_of(cell->shared);
    const Extent n = cell->shape.numel(), total = whole->shape[0], end = cell->offset + n;
    std::vector<NodeRef> parts;
    append_range(whole, 0, cell->offset, parts);
    parts.push_back(reshape(next, {n}));
    append_range(whole, end, total, parts);
    return set_pending(cell->shared, concat(std::move(parts), 0));
  }
  GraphState& state = state_of(*cell);
  TraceScope* trace = TraceScope::current();
  NodeRef before;  // released after the lock
  if (!trace) {
    std::lock_guard lock(state.cells_mutex);
    if (next == cell->committed) {
      before = cell->pending;
      return remove_pending(state, cell);
    }
  }
  // A value that was read while it was pending still holds what it was made from, and what is made of that value holds it in
  // turn. So a loop that looks at its loss before the update would keep every turn. No gradient flows through an assignment.
  if (!trace && an_outlived_node_lives(state)) next = without_history(next);
  // Makes a separate node for every assignment: variables with equal values (two biases of zeros) need different nodes, since
  // gradients are identified by nodes.
  static std::atomic<Extent> assignments = 0;
  next = make_node({.kind = Kind::detach,
                    .type = next->type,
                    .shape = next->shape,
                    .device = next->device,
                    .inputs = {next},
                    .ints = {++assignments}});
  if (trace) return trace->assign(cell, std::move(next));
  std::lock_guard lock(state.cells_mutex);
  if (!cell->pending) state.pending.push_back(cell);
  before = std::exchange(cell->pending, std::move(next));
}

void clear_pending(const std::shared_ptr<Cell>& cell) {
  GraphState& state = state_of(*cell);
  NodeRef before;
  std::lock_guard lock(state.cells_mutex);
  before = cell->pending;
  remove_pending(state, cell);
}

void commit(const std::shared_ptr<Cell>& cell, const NodeRef& computed, NodeRef value) {
  GraphState& state = state_of(*cell);
  std::unique_lock lock(state.cells_mutex);
  state.released.wait(lock, [&] { return !cell->updating; });
  if (cell->pending != computed) return;
  remove_pending(state, cell);
  value->twin = computed;
  computed->twin = value;
  state.outlived.push_back(computed);
  cell->committed.swap(value);
  cell->assigned = false;
  lock.unlock();  // the old value is freed after it
}

void make_slice(const std::shared_ptr<Cell>& cell, const std::shared_ptr<Cell>& whole, Extent offset) {
  GraphState& state = state_of(*cell);
  NodeRef pending, committed;
  std::lock_guard lock(state.cells_mutex);
  pending = cell->pending;
  remove_pending(state, cell);
  committed = std::exchange(cell->committed, nullptr);
  cell->shared = whole;
  cell->offset = offset;
}

namespace {

NodeRef current_value(const std::shared_ptr<Cell>& cell) {
  if (cell->shared) return slice_of(value_of(cell->shared), cell->offset, cell->shape);
  if (TraceScope* trace = TraceScope::current()) return trace->value_of(cell);
  GraphState& state = state_of(*cell);
  std::unique_lock lock(state.cells_mutex);
  state.released.wait(lock, [&] { return !cell->updating; });
  return cell->pending ? cell->pending : cell->committed;
}

}  // namespace

NodeRef value_of(const std::shared_ptr<Cell>& cell) {
  NodeRef value = current_value(cell);
  if (value) value->requires_grad.store(cell->requires_grad, std::memory_order_relaxed);
  return value;
}

NodeRef twin_of(const Node& node) {
  {
    std::lock_guard lock(session_of(node).part<GraphState>().cells_mutex);
    if (NodeRef twin = node.twin.lock()) return twin;
  }
  if (!is_view(node.kind)) return nullptr;
  const NodeRef viewed = twin_of(*node.inputs[0]);
  if (!viewed) return nullptr;
  NodeFields fields = node;
  fields.inputs = {viewed};
  return find_node(fields);
}

Tensor& gradient_of(const std::shared_ptr<Cell>& cell) {
  TraceScope* trace = TraceScope::current();
  if (!trace) return cell->grad;
  TraceScope::Entry& entry = trace->entry(cell);
  if (!entry.has_grad) entry.grad = cell->grad, entry.has_grad = true;
  return entry.grad;
}

CellUpdate::CellUpdate(std::span<const std::shared_ptr<Cell>> cells) : cells_(cells) {
  if (cells_.empty()) return;
  GraphState& state = state_of(*cells_[0]);
  std::unique_lock lock(state.cells_mutex);
  state.released.wait(
      lock, [&] { return std::none_of(cells_.begin(), cells_.end(), [](const auto& c) { return c->updating; }); });
  for (const auto& cell : cells_) cell->updating = true;
}

CellUpdate::~CellUpdate() {
  if (cells_.empty()) return;
  GraphState& state = state_of(*cells_[0]);
  {
    std::lock_guard lock(state.cells_mutex);
    for (const auto& cell : cells_) cell->updating = false;
  }
  state.released.notify_all();
}

NodeRef committed_of(const Cell& cell) {
  std::lock_guard lock(state_of(cell).cells_mutex);
  return cell.committed;
}

void set_committed(Cell& cell, NodeRef value) {
  std::unique_lock lock(state_of(cell).cells_mutex);
  cell.committed.swap(value);
  lock.unlock();  // the old value is freed after it
}

namespace {

std::atomic<void (*)(std::uint64_t)> evaluator = nullptr;

}  // namespace

void set_evaluator(void (*evaluate_held)(std::uint64_t)) { evaluator = evaluate_held; }

void evaluate_if_much_waits(Cell& cell) {
  constexpr std::uint64_t kMuch = 256;  // nodes: plans of a few hundred are compiled in milliseconds
  const auto evaluate = evaluator.load();
  if (TraceScope::current() || !evaluate || cell.shared) return;
  GraphState& state = state_of(cell);
  std::uint64_t last = 0;
  {
    std::lock_guard lock(state.cells_mutex);
    const bool waits = std::exchange(cell.assigned, true) && cell.pending && !cell.pending->storage;
    if (!waits || state.table.made() - state.evaluated_up_to < kMuch) return;
    for (const auto& each : state.pending) last = std::max(last, each->pending->id);
  }
  evaluate(last);
}

void GraphState::close() {
  std::vector<std::shared_ptr<Cell>> cells;
  std::vector<std::pair<Device, Variable>> states;
  {
    std::lock_guard lock(cells_mutex);
    cells.swap(pending);
  }
  std::lock_guard lock(random_mutex);
  states.swap(generators);
}

}  // namespace weft::graph
