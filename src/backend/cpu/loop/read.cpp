// Turns the steps of a kernel into nodes: chooses the rectangle, makes casts explicit, places stores in phases.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "backend/cpu/loop/nodes.hpp"
#include "ops/evaluate.hpp"
#include "tensor/element.hpp"

namespace weft::cpu {
namespace {

using kernel::Level;
using kernel::StepKind;
using scalar::Op;

class NodeReader {
 public:
  explicit NodeReader(LoopNodes& nodes) : nodes_(nodes) {}
  void choose_rectangle(Extent columns);
  void read_steps();
  void place_stores();
  void choose_run();
  void choose_copies();

 private:
  int add(LoopNode node);
  int cast_to(int node, DType type);
  void map_step(const kernel::Step& step);
  void find_squares(LoopNode& node) const;
  void drop_unused();

  LoopNodes& nodes_;
  Extent rows_ = 1, columns_ = 1;  // of the rectangle of an elementwise kernel
  std::vector<int> node_of_step_;
  std::map<std::pair<int, DType>, int> casts_;
};

/// For reductions: rows, unless the loads run along the outer axis. For elementwise kernels: the widest row over which every
/// view is one stride, if it is long enough.
void NodeReader::choose_rectangle(Extent columns) {
  nodes_.flat = true;
  for (const kernel::Step& step : nodes_.kernel.steps)
    nodes_.flat = nodes_.flat && step.level == Level::outer && step.kind != StepKind::reduce;
  if (nodes_.flat) {
    const Extent size = nodes_.kernel.outer;
    Extent width = columns;
    if (width == 0) {
      std::set<Extent> candidates;
      const auto look = [&](const kernel::View& view) {
        const Access access = make_access(view, 1, size, false);
        if (access.fast.size() < 2 && Access::plain(access.fast)) return;
        Extent suffix = 1;
        for (std::size_t d = access.fast.size(); d-- > 1;)
          if ((suffix *= access.fast[d].extent) >= 16) candidates.insert(suffix);
      };
      const auto each_view = [&](auto visit) {
        for (const kernel::Step& step : nodes_.kernel.steps)
          if (step.kind == StepKind::load || step.kind == StepKind::gather || step.kind == StepKind::index)
            visit(step.view);
        for (const kernel::Store& store : nodes_.kernel.stores) visit(store.view);
      };
      if (size > 0) each_view(look);
      width = size;
      for (const Extent candidate : candidates) {
        if (size % candidate != 0) continue;
        bool separable = true;
        each_view([&](const kernel::View& view) {
          separable = separable && make_access(view, size / candidate, candidate, false).separable;
        });
        if (separable) {
          width = candidate;
          break;
        }
      }
    }
    columns_ = width;
    rows_ = width == 0 ? 0 : size / width;
    nodes_.outer = rows_;
    nodes_.inner = columns_;
    return;
  }
  nodes_.outer = nodes_.kernel.outer;
  nodes_.inner = nodes_.kernel.inner;
  int along_outer = 0, along_inner = 0;
  for (const kernel::Step& step : nodes_.kernel.steps) {
    if (step.level != Level::inner || (step.kind != StepKind::load && step.kind != StepKind::gather)) continue;
    const Access access = make_access(step.view, nodes_.kernel.outer, nodes_.kernel.inner, false);
    if (!access.separable || !access.uses_slow() || !access.uses_fast()) continue;  // a row or a column costs little
    const bool outer_unit = !access.slow.empty() && access.slow.back().stride == 1;
    const bool inner_unit = !access.fast.empty() && access.fast.back().stride == 1;
    along_outer += outer_unit && !inner_unit;
    along_inner += inner_unit;
  }
  nodes_.columns =
      nodes_.kernel.outer >= 4 && (along_outer > along_inner || (nodes_.kernel.inner < 8 && nodes_.kernel.outer >= 16));
}

int NodeReader::add(LoopNode node) {
  nodes_.nodes.push_back(std::move(node));
  return nodes_.count() - 1;
}

/// Sets axes and phase of a node that depends only on other nodes.
void inherit(LoopNode& node, const LoopNodes& nodes) {
  for (const int a : node.args) {
    const LoopNode& arg = nodes[a];
    node.slow |= arg.slow;
    node.fast |= arg.fast;
    node.outer &= arg.outer;
    node.phase = std::max(node.phase, arg.phase);
  }
}

int NodeReader::cast_to(int source, DType type) {
  const LoopNode& from = nodes_[source];
  if (from.type == type) return source;
  if (const auto found = casts_.find({source, type}); found != casts_.end()) return found->second;
  LoopNode node;
  if (from.kind == StepKind::constant) {
    node = from;
    node.type = type;
    node.value = rounded_to(type, scalar::apply(Op::cast, type, from.type, from.value));
  } else if (const DType step = cast_step(from.type, type); step != type) {
    return casts_[{source, type}] = cast_to(cast_to(source, step), type);
  } else {
    node.kind = StepKind::map;
    node.op = Op::cast;
    node.type = type;
    node.args = {source};
    inherit(node, nodes_);
  }
  return casts_[{source, type}] = add(node);
}

void NodeReader::map_step(const kernel::Step& step) {
  LoopNode node;
  node.kind = StepKind::map;
  node.op = step.op;
  node.type = step.type;
  for (const int operand : {step.a, step.b, step.c})
    if (operand >= 0) node.args.push_back(node_of_step_[static_cast<std::size_t>(operand)]);
  const auto type = [&](std::size_t i) { return nodes_[node.args[i]].type; };
  if (step.op == Op::cast) {
    node_of_step_.push_back(cast_to(node.args.at(0), step.type));
    return;
  }
  if (step.op == Op::select) {
    node.args = {cast_to(node.args.at(0), DType::boolean), cast_to(node.args.at(1), step.type),
                 cast_to(node.args.at(2), step.type)};
  } else {
    DType meet = step.type;
    if (is_comparison(step.op)) meet = promote(type(0), type(1));
    if (step.op == Op::logical_not || step.op == Op::logical_and || step.op == Op::logical_or) meet = DType::boolean;
    if (step.op == Op::is_nan) meet = type(0);
    for (int& arg : node.args) arg = cast_to(arg, meet);
  }
  inherit(node, nodes_);
  const int made = add(node);
  // Ops that give bools make bools, whatever type was requested.
  const bool gives_bool = is_comparison(step.op) || step.op == Op::is_nan || step.op == Op::logical_not ||
                          step.op == Op::logical_and || step.op == Op::logical_or;
  if (gives_bool && step.type != DType::boolean) {
    nodes_.nodes.back().type = DType::boolean;
    node_of_step_.push_back(cast_to(made, step.type));
    return;
  }
  node_of_step_.push_back(made);
}

/// The sum of (x - sum(x) / n)^2 becomes a reduction of x, in the pass that makes the sum.
void NodeReader::find_squares(LoopNode& node) const {
  const auto map_of = [&](int index, Op op) {
    const LoopNode& found = nodes_[index];
    return found.kind == StepKind::map && found.op == op ? &found : nullptr;
  };
  const LoopNode* const square = map_of(node.args[0], Op::mul);
  if (node.reduction != scalar::Reduction::sum || square == nullptr || square->args[0] != square->args[1] ||
      (square->type != DType::f32 && square->type != DType::f64))
    return;
  const LoopNode* const difference = map_of(square->args[0], Op::sub);
  if (difference == nullptr) return;
  const int x = difference->args[0];
  const LoopNode* const mean = map_of(difference->args[1], Op::div);
  const bool varies = nodes_[x].fast && (nodes_[x].slow || (!nodes_.columns && nodes_.outer == 1));
  if (mean == nullptr || !varies) return;
  const LoopNode &sum = nodes_[mean->args[0]], &count = nodes_[mean->args[1]];
  if (sum.kind != StepKind::reduce || sum.reduction != scalar::Reduction::sum || sum.args[0] != x ||
      sum.squares_around >= 0 || count.kind != StepKind::constant || count.value != static_cast<double>(nodes_.inner))
    return;
  node.args = {x};
  node.phase = nodes_[x].phase + 1;
  node.squares_around = mean->args[0];
}

/// Nodes that nothing needs become constants, which cost nothing.
void NodeReader::drop_unused() {
  std::vector<bool> needed(nodes_.nodes.size(), false);
  for (const StoreNode& store : nodes_.stores) needed[static_cast<std::size_t>(store.value)] = true;
  for (int i = nodes_.count(); i-- > 0;) {
    LoopNode& node = nodes_[i];
    if (!needed[static_cast<std::size_t>(i)]) {
      node = LoopNode{};
      continue;
    }
    for (const int arg : node.args) needed[static_cast<std::size_t>(arg)] = true;
    if (node.squares_around >= 0) needed[static_cast<std::size_t>(node.squares_around)] = true;
  }
}

void NodeReader::read_steps() {
  const auto access_of = [&](const kernel::View& view, Level level) {
    if (nodes_.flat) return make_access(view, rows_, columns_, false);
    return level == Level::inner ? make_access(view, nodes_.outer, nodes_.inner, nodes_.columns)
                                 : make_access(view, nodes_.outer, 1, nodes_.columns);
  };
  for (const kernel::Step& step : nodes_.kernel.steps) {
    if (step.kind == StepKind::map) {
      map_step(step);
      continue;
    }
    LoopNode node;
    node.kind = step.kind;
    node.type = step.type;
    node.operand = step.operand;
    node.value = step.kind == StepKind::constant ? rounded_to(step.type, step.value) : 0;
    node.axis_stride = step.axis_stride;
    node.axis_extent = step.axis_extent;
    switch (step.kind) {
      case StepKind::load:
      case StepKind::gather:
        node.type = nodes_.kernel.inputs.at(static_cast<std::size_t>(step.operand)).type;
        [[fallthrough]];
      case StepKind::index:
        if (step.kind == StepKind::gather)
          node.args = {cast_to(node_of_step_.at(static_cast<std::size_t>(step.a)), DType::i32)};
        inherit(node, nodes_);
        node.access = access_of(step.view, step.level);
        break;
      case StepKind::accumulator:
        node.type = nodes_.product_type;
        node.access = access_of({{rows_ * columns_}, {1}, 0, {}}, step.level);
        break;
      case StepKind::reduce: {
        node.reduction = step.reduction;
        node.args = {node_of_step_.at(static_cast<std::size_t>(step.a))};
        const LoopNode& arg = nodes_[node.args[0]];
        node.phase = arg.phase + 1;
        // Varies along the outer axis: accumulators are one for each of a block.
        (nodes_.columns ? node.fast : node.slow) = true;
        find_squares(node);
        const bool position =
            step.reduction == scalar::Reduction::argmax || step.reduction == scalar::Reduction::argmin;
        node.type = position ? DType::i32 : arg.type;
        break;
      }
      default: break;
    }
    if (step.kind != StepKind::reduce && step.kind != StepKind::constant) {
      node.slow |= node.access.uses_slow();
      node.fast |= node.access.uses_fast();
      node.outer = !(nodes_.columns ? node.slow : node.fast);
    }
    int made = add(node);
    if (step.kind != StepKind::constant && node.type != step.type) made = cast_to(made, step.type);
    node_of_step_.push_back(made);
  }
  for (const kernel::Store& store : nodes_.kernel.stores) {
    const int step = store.value;
    const Level level = nodes_.kernel.steps.at(static_cast<std::size_t>(step)).level;
    const DType type = nodes_.kernel.outputs.at(static_cast<std::size_t>(store.output)).type;
    // The product is already in the place of this store.
    if (store.output == nodes_.product_output &&
        nodes_.kernel.steps[static_cast<std::size_t>(step)].kind == StepKind::accumulator)
      continue;
    nodes_.stores.push_back({cast_to(node_of_step_[static_cast<std::size_t>(step)], type), store.output,
                             access_of(store.view, level), !nodes_.flat && level == Level::outer});
  }
  drop_unused();
  for (const LoopNode& node : nodes_.nodes) nodes_.phases = std::max(nodes_.phases, node.phase + 1);
}

/// Inner-level stores are in the phase that makes their value, or, if they overwrite an input, in the last phase that reads.
void NodeReader::place_stores() {
  int last_body = 0;
  for (StoreNode& store : nodes_.stores) {
    store.phase = nodes_[store.value].phase;
    if (!store.outer) last_body = std::max(last_body, store.phase);
  }
  for (const LoopNode& node : nodes_.nodes)
    if (node.kind == StepKind::reduce) last_body = std::max(last_body, node.phase - 1);
  for (StoreNode& store : nodes_.stores)
    for (const LoopNode& node : nodes_.nodes)
      if (!store.outer &&
          (node.kind == StepKind::load || node.kind == StepKind::gather || node.kind == StepKind::accumulator) &&
          nodes_.overlaps(store.output, node.kind == StepKind::accumulator ? -1 : node.operand))
        store.phase = last_body;
}

/// If the rows of some views are one stride apart only within runs, blocks stay within these runs. Then such views are read
/// and written in place, and are transposed by tiles. Reductions do the same with the elements of a row.
void NodeReader::choose_run() {
  nodes_.run = std::max<Extent>(nodes_.outer, 1);
  nodes_.fast_run = std::max<Extent>(nodes_.inner, 1);
  if (nodes_.part_by_part) return;
  constexpr Extent kRunMin = 8, kReducedRunMin = 64;
  const bool flat = nodes_.flat;
  const auto has_runs = [flat](const Access& access) {
    const std::vector<Access::Dim>& axis = flat ? access.slow : access.fast;
    return access.separable && axis.size() > 1 && axis.back().extent >= (flat ? kRunMin : kReducedRunMin) &&
           (flat || axis.back().stride == 1) &&
           std::none_of(axis.begin(), axis.end(), [](const Access::Dim& dim) { return dim.bounded(); });
  };
  const Extent least = flat ? kRunMin : kReducedRunMin;
  const auto run_of = [&](const Access& access) { return (flat ? access.slow : access.fast).back().extent; };
  Extent run = 0;
  std::vector<Access*> found;
  for (LoopNode& node : nodes_.nodes)
    if (node.kind == StepKind::load && has_runs(node.access)) found.push_back(&node.access);
  for (const Access* access : found) run = std::gcd(run, run_of(*access));
  for (StoreNode& store : nodes_.stores) {
    if (store.outer || !has_runs(store.access)) continue;
    const Extent joint = std::gcd(run, run_of(store.access));
    if (!flat && joint < least) continue;  // the loads matter more
    run = joint;
    found.push_back(&store.access);
  }
  if (run < least) return;
  (flat || nodes_.columns ? nodes_.run : nodes_.fast_run) = run;
  for (Access* access : found) (flat ? access->by_runs : access->fast_by_runs) = true;
}

/// Columns that several phases read are copied by the first one. In memory their rows lie far apart, often at a power of two,
/// where they would push each other out of the cache.
void NodeReader::choose_copies() {
  constexpr Extent kCopiedBytes = 1 << 20,
                   kCopiedBytesMax = 2 << 20;  // of a block, in the second cache and in the last
  constexpr Extent kColumnsMin = 32, kColumnsMax = 128;
  if (!nodes_.columns || nodes_.phases == 1) return;
  std::vector<LoopNode*> read_again;
  Extent bytes = 0;
  for (int i = 0; i < nodes_.count(); ++i) {
    LoopNode& node = nodes_[i];
    if (node.kind != StepKind::load || node.outer || !node.slow || !node.fast || !nodes_.is_memory(i) ||
        size_bytes(node.type) < 4)
      continue;
    const bool again = std::any_of(nodes_.nodes.begin(), nodes_.nodes.end(), [&](const LoopNode& user) {
      const int phase = user.kind == StepKind::reduce ? user.phase - 1 : user.phase;
      return phase > node.phase && std::find(user.args.begin(), user.args.end(), i) != user.args.end();
    });
    if (!again) continue;
    read_again.push_back(&node);
    bytes += nodes_.inner * static_cast<Extent>(size_bytes(node.type));
  }
  if (read_again.empty() || bytes * kColumnsMin > kCopiedBytesMax) return;
  nodes_.copied_columns = std::clamp(kCopiedBytes / bytes / kColumnsMin * kColumnsMin, kColumnsMin, kColumnsMax);
  for (LoopNode* node : read_again) node->copied = true;
}

}  // namespace

bool LoopNodes::overlaps(int output, int input) const {
  if (input < 0) return output == product_output;
  return overlap(kernel.outputs[static_cast<std::size_t>(output)], kernel.inputs[static_cast<std::size_t>(input)]);
}

bool LoopNodes::is_memory(int index) const {
  const LoopNode& node = (*this)[index];
  if ((node.kind != StepKind::load && node.kind != StepKind::accumulator) || node.copied) return false;
  if (!node.access.plain_slow() || !node.access.plain_fast() || is_packed(node.type)) return false;
  // A source that is stored unchanged while another store overwrites it needs a register.
  const int source = node.kind == StepKind::accumulator ? -1 : node.operand;
  for (const StoreNode& store : stores)
    if (store.value == index)
      for (const StoreNode& other : stores)
        if (&other != &store && overlaps(other.output, source)) return false;
  if (node.fast) return Access::stride(node.access.fast) == 1;
  return !node.slow || node.access.slow_stride() == 1;  // alone, a column is read as a row
}

LoopNodes read_nodes(const kernel::LoopKernel& kernel, Extent columns, DType product_type, int product_output) {
  LoopNodes nodes{kernel, product_type, product_output};
  NodeReader reader(nodes);
  reader.choose_rectangle(columns);
  nodes.part_by_part = nodes.flat && columns > 0;
  reader.read_steps();
  reader.choose_run();
  reader.choose_copies();
  reader.place_stores();
  return nodes;
}

}  // namespace weft::cpu
