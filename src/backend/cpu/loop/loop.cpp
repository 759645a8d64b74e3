// Compiles loop kernels to bytecode: types made explicit, pairs of ops joined, values placed, phases scheduled.
#include "backend/cpu/loop/loop.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include "backend/cpu/loop/code.hpp"
#include "weft/error.hpp"

namespace weft::cpu {
namespace {

using kernel::Level;
using kernel::StepKind;
using scalar::Op;

constexpr Extent kTileBytes = 4096;       // of one register of 4-byte values: several of them fill the nearest cache
constexpr Extent kChainRows = 4;          // times more rows in a tile where chains work on it
constexpr Extent kChainBlocks = 16;       // at least
constexpr Extent kPartRows = 64;          // of a product at most, for work on its parts
constexpr Extent kKeptBytes = 512 << 10;  // of values that later phases read again; beyond, they are computed again
constexpr Extent kTaskWork = 1 << 16;     // element-ops that are worth a task
constexpr Extent kTasksMax = 64;
constexpr Extent kStreamBytes = 24 << 20;  // outputs larger than this would only push others out of the caches
constexpr std::size_t kAheadStreams = 3;   // with fewer sources the hardware's own prefetching does better
constexpr Extent kAheadBytes = 1 << 20;    // smaller kernels find their operands in the second cache

/// A step with explicit types, or two of them joined.
struct Node {
  StepKind kind = StepKind::constant;
  DType type = DType::f32;
  Op op = Op::input;
  enum class Joined : std::uint8_t { none, mul_add, mul_sub, sub_mul, compare_select } joined = Joined::none;
  scalar::Reduction reduction = scalar::Reduction::sum;
  std::vector<int> args;
  int operand = -1;
  Access access;
  Extent axis_stride = 0, axis_extent = 0;
  double value = 0;
  bool slow = false, fast = false, outer = true;
  int phase = 0;
  int uses = 0;
};

struct StoreNode {
  int value;
  int output;
  Access access;
  bool outer;
  int phase = 0;
};

bool is_comparison(Op op) { return op >= Op::eq && op <= Op::ge; }

/// What a node is as a part of a chain of f32 work.
ChainOp chain_op(const Node& node) {
  switch (node.joined) {
    case Node::Joined::mul_add: return ChainOp::mul_add;
    case Node::Joined::mul_sub: return ChainOp::mul_sub;
    case Node::Joined::sub_mul: return ChainOp::sub_mul;
    case Node::Joined::compare_select:
      switch (node.op) {
        case Op::eq: return ChainOp::eq_select;
        case Op::ne: return ChainOp::ne_select;
        case Op::lt: return ChainOp::lt_select;
        case Op::le: return ChainOp::le_select;
        case Op::gt: return ChainOp::gt_select;
        default: return ChainOp::ge_select;
      }
    case Node::Joined::none: break;
  }
  switch (node.op) {
    case Op::neg: return ChainOp::neg;
    case Op::abs: return ChainOp::abs;
    case Op::floor: return ChainOp::floor;
    case Op::ceil: return ChainOp::ceil;
    case Op::round: return ChainOp::round;
    case Op::trunc: return ChainOp::trunc;
    case Op::sqrt: return ChainOp::sqrt;
    case Op::rsqrt: return ChainOp::rsqrt;
    case Op::exp: return ChainOp::exp;
    case Op::log: return ChainOp::log;
    case Op::tanh: return ChainOp::tanh;
    case Op::erf: return ChainOp::erf;
    case Op::add: return ChainOp::add;
    case Op::sub: return ChainOp::sub;
    case Op::mul: return ChainOp::mul;
    case Op::div: return ChainOp::div;
    case Op::min: return ChainOp::min;
    case Op::max: return ChainOp::max;
    case Op::copysign: return ChainOp::copysign;
    default: return ChainOp::none;
  }
}

class Compiler {
 public:
  Compiler(const kernel::LoopKernel& kernel, LoopProgram::Code& code, Extent columns, DType product_type,
           int product_output);
  void compile();

 private:
  int add(Node node);
  int cast_to(int node, DType type);
  void choose_rectangle(Extent columns);
  void read_steps();
  void map_step(const kernel::Step& step);
  void join_pairs();
  void place_stores();
  void schedule(Extent tile_elements);
  bool overlaps(int output, int input) const;
  bool is_memory(int node) const;
  int value_of(int node);
  Source source_of(int node);
  int keep(const Access& access);
  int keep(std::string name);
  Instruction instruction_of(int node);
  std::set<int> inner_needs(int phase) const;
  Extent parallel_work() const;
  void divide_into_tasks();

  const kernel::LoopKernel& kernel_;
  LoopProgram::Code& code_;
  DType product_type_;
  int product_output_;
  bool flat_ = false, part_by_part_ = false;
  Extent flat_rows_ = 1, flat_columns_ = 1;
  std::vector<Node> nodes_;
  std::vector<int> node_of_step_;
  std::vector<StoreNode> stores_;
  std::map<std::pair<int, DType>, int> casts_;
  std::vector<int> values_;  // of nodes; -1: none yet
  std::vector<int> reduction_index_;
  std::set<int> kept_;
  int phases_ = 1;
  bool single_chunk_ = true;
  int registers_max_ = 0;
};

Compiler::Compiler(const kernel::LoopKernel& kernel, LoopProgram::Code& code, Extent columns, DType product_type,
                   int product_output)
    : kernel_(kernel), code_(code), product_type_(product_type), product_output_(product_output) {
  code_.name = kernel.name;
  for (const kernel::Operand& o : kernel.inputs) code_.input_bytes.push_back(size_bytes(o.type));
  for (const kernel::Operand& o : kernel.outputs) code_.output_bytes.push_back(size_bytes(o.type));
  code_.product_bytes = size_bytes(product_type);
  choose_rectangle(columns);
  part_by_part_ = flat_ && columns > 0;
}

/// Reductions: rows unless the loads lie along the outer axis. Elementwise kernels: the widest row over which every view
/// is one stride, if there is such a row of decent length.
void Compiler::choose_rectangle(Extent columns) {
  flat_ = true;
  for (const kernel::Step& step : kernel_.steps)
    flat_ = flat_ && step.level == Level::outer && step.kind != StepKind::reduce;
  if (flat_) {
    const Extent size = kernel_.outer;
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
        for (const kernel::Step& step : kernel_.steps)
          if (step.kind == StepKind::load || step.kind == StepKind::gather || step.kind == StepKind::index)
            visit(step.view);
        for (const kernel::Store& store : kernel_.stores) visit(store.view);
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
    flat_columns_ = width;
    flat_rows_ = width == 0 ? 0 : size / width;
    code_.outer = flat_rows_;
    code_.inner = flat_columns_;
    return;
  }
  code_.outer = kernel_.outer;
  code_.inner = kernel_.inner;
  int along_outer = 0, along_inner = 0;
  for (const kernel::Step& step : kernel_.steps) {
    if (step.level != Level::inner || (step.kind != StepKind::load && step.kind != StepKind::gather)) continue;
    const Access access = make_access(step.view, kernel_.outer, kernel_.inner, false);
    if (!access.separable || !access.uses_slow() || !access.uses_fast()) continue;  // a row or a column costs little
    const bool outer_unit = !access.slow.empty() && access.slow.back().stride == 1;
    const bool inner_unit = !access.fast.empty() && access.fast.back().stride == 1;
    along_outer += outer_unit && !inner_unit;
    along_inner += inner_unit;
  }
  code_.columns = kernel_.outer >= 4 && (along_outer > along_inner || (kernel_.inner < 8 && kernel_.outer >= 16));
}

int Compiler::add(Node node) {
  nodes_.push_back(std::move(node));
  return static_cast<int>(nodes_.size()) - 1;
}

/// Axes and phase of a node that depends on others only.
void inherit(Node& node, const std::vector<Node>& nodes) {
  for (const int a : node.args) {
    const Node& arg = nodes[static_cast<std::size_t>(a)];
    node.slow |= arg.slow;
    node.fast |= arg.fast;
    node.outer &= arg.outer;
    node.phase = std::max(node.phase, arg.phase);
  }
}

/// The value a constant of type `from` has after a cast.
double constant_as(DType type, DType from, double value) {
  switch (type) {
    case DType::f64: return value;
    case DType::f32: return static_cast<float>(value);
    case DType::boolean: return value != 0;
    case DType::i32:
    case DType::u32: break;
  }
  if (is_float(from)) {
    const double low = type == DType::i32 ? -2147483648.0 : 0.0,
                 high = type == DType::i32 ? 2147483647.0 : 4294967295.0;
    return std::isnan(value) ? 0 : std::clamp(std::trunc(value), low, high);
  }
  const auto bits = static_cast<std::uint32_t>(static_cast<std::int64_t>(value));
  return type == DType::i32 ? static_cast<double>(static_cast<std::int32_t>(bits)) : bits;
}

int Compiler::cast_to(int source, DType type) {
  const Node& from = nodes_[static_cast<std::size_t>(source)];
  if (from.type == type) return source;
  if (const auto found = casts_.find({source, type}); found != casts_.end()) return found->second;
  Node node;
  if (from.kind == StepKind::constant) {
    node = from;
    node.type = type;
    node.value = constant_as(type, from.type, from.value);
  } else {
    node.kind = StepKind::map;
    node.op = Op::cast;
    node.type = type;
    node.args = {source};
    inherit(node, nodes_);
  }
  return casts_[{source, type}] = add(node);
}

void Compiler::map_step(const kernel::Step& step) {
  Node node;
  node.kind = StepKind::map;
  node.op = step.op;
  node.type = step.type;
  for (const int operand : {step.a, step.b, step.c})
    if (operand >= 0) node.args.push_back(node_of_step_[static_cast<std::size_t>(operand)]);
  const auto type = [&](std::size_t i) { return nodes_[static_cast<std::size_t>(node.args[i])].type; };
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
  // Ops that give bools make them whatever type was asked for.
  const bool gives_bool = is_comparison(step.op) || step.op == Op::is_nan || step.op == Op::logical_not ||
                          step.op == Op::logical_and || step.op == Op::logical_or;
  if (gives_bool && step.type != DType::boolean) {
    nodes_.back().type = DType::boolean;
    node_of_step_.push_back(cast_to(made, step.type));
    return;
  }
  node_of_step_.push_back(made);
}

void Compiler::read_steps() {
  const auto access_of = [&](const kernel::View& view, Level level) {
    if (flat_) return make_access(view, flat_rows_, flat_columns_, false);
    return level == Level::inner ? make_access(view, code_.outer, code_.inner, code_.columns)
                                 : make_access(view, code_.outer, 1, code_.columns);
  };
  for (const kernel::Step& step : kernel_.steps) {
    if (step.kind == StepKind::map) {
      map_step(step);
      continue;
    }
    Node node;
    node.kind = step.kind;
    node.type = step.type;
    node.operand = step.operand;
    node.value = step.kind == StepKind::constant ? constant_as(step.type, DType::f64, step.value) : 0;
    node.axis_stride = step.axis_stride;
    node.axis_extent = step.axis_extent;
    switch (step.kind) {
      case StepKind::load:
      case StepKind::gather:
        node.type = kernel_.inputs.at(static_cast<std::size_t>(step.operand)).type;
        [[fallthrough]];
      case StepKind::index:
        if (step.kind == StepKind::gather)
          node.args = {cast_to(node_of_step_.at(static_cast<std::size_t>(step.a)), DType::i32)};
        inherit(node, nodes_);
        node.access = access_of(step.view, step.level);
        break;
      case StepKind::accumulator:
        node.type = product_type_;
        node.access = access_of({{flat_rows_ * flat_columns_}, {1}, 0, {}}, step.level);
        break;
      case StepKind::reduce: {
        node.reduction = step.reduction;
        node.args = {node_of_step_.at(static_cast<std::size_t>(step.a))};
        const Node& arg = nodes_[static_cast<std::size_t>(node.args[0])];
        node.phase = arg.phase + 1;
        // Varies along the outer axis: accumulators are one for each of a block.
        (code_.columns ? node.fast : node.slow) = true;
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
      node.outer = !(code_.columns ? node.slow : node.fast);
    }
    int made = add(node);
    if (step.kind != StepKind::constant && node.type != step.type) made = cast_to(made, step.type);
    node_of_step_.push_back(made);
  }
  for (const kernel::Store& store : kernel_.stores) {
    const int step = store.value;
    const Level level = kernel_.steps.at(static_cast<std::size_t>(step)).level;
    const DType type = kernel_.outputs.at(static_cast<std::size_t>(store.output)).type;
    // The product itself lies where it is to be stored.
    if (store.output == product_output_ && kernel_.steps[static_cast<std::size_t>(step)].kind == StepKind::accumulator)
      continue;
    stores_.push_back({cast_to(node_of_step_[static_cast<std::size_t>(step)], type), store.output,
                       access_of(store.view, level), !flat_ && level == Level::outer});
  }
  for (const Node& node : nodes_) phases_ = std::max(phases_, node.phase + 1);
}

/// a * b + c and the like, and a comparison that only chooses, become one instruction.
void Compiler::join_pairs() {
  for (const Node& node : nodes_)
    for (const int a : node.args) ++nodes_[static_cast<std::size_t>(a)].uses;
  for (const StoreNode& store : stores_) ++nodes_[static_cast<std::size_t>(store.value)].uses;
  // Comparing twice costs less than a tile of truth values that two choices read.
  std::vector<int> conditions(nodes_.size(), 0);
  for (const Node& node : nodes_)
    if (node.kind == StepKind::map && node.op == Op::select) ++conditions[static_cast<std::size_t>(node.args[0])];
  for (Node& node : nodes_) {
    if (node.kind != StepKind::map || node.joined != Node::Joined::none || !is_float(node.type)) continue;
    const auto joins = [&](int index, auto wanted) {
      const Node& arg = nodes_[static_cast<std::size_t>(index)];
      return arg.kind == StepKind::map && arg.joined == Node::Joined::none &&
             (arg.uses == 1 || arg.uses == conditions[static_cast<std::size_t>(index)]) && arg.phase == node.phase &&
             arg.slow == node.slow && arg.fast == node.fast && wanted(arg);
    };
    const auto product = [](const Node& arg) { return arg.op == Op::mul; };
    const auto take = [&](int index, int other, Node::Joined joined) {
      const Node& arg = nodes_[static_cast<std::size_t>(index)];
      node.joined = joined;
      node.args = {arg.args[0], arg.args[1], other};
    };
    if (node.op == Op::add && node.args[0] != node.args[1]) {
      const int a = node.args[0], b = node.args[1];
      if (joins(a, product))
        take(a, b, Node::Joined::mul_add);
      else if (joins(b, product))
        take(b, a, Node::Joined::mul_add);
    } else if (node.op == Op::sub && node.args[0] != node.args[1]) {
      const int a = node.args[0], b = node.args[1];
      if (joins(a, product))
        take(a, b, Node::Joined::mul_sub);
      else if (joins(b, product))
        take(b, a, Node::Joined::sub_mul);
    } else if (node.op == Op::select) {
      const int condition = node.args[0];
      if (joins(condition, [&](const Node& arg) {
            return is_comparison(arg.op) && nodes_[static_cast<std::size_t>(arg.args[0])].type == node.type;
          })) {
        const Node& compare = nodes_[static_cast<std::size_t>(condition)];
        node.joined = Node::Joined::compare_select;
        node.op = compare.op;
        node.args = {compare.args[0], compare.args[1], node.args[1], node.args[2]};
      }
    }
  }
}

/// Whether the output's elements are also an input's (input -1: the product).
bool Compiler::overlaps(int output, int input) const {
  if (input < 0) return output == product_output_;
  return overlap(kernel_.outputs[static_cast<std::size_t>(output)], kernel_.inputs[static_cast<std::size_t>(input)]);
}

/// Loads that ops read where they lie: one stride on the slow axis, 1 (or 0) on the fast one.
bool Compiler::is_memory(int index) const {
  const Node& node = nodes_[static_cast<std::size_t>(index)];
  if (node.kind != StepKind::load && node.kind != StepKind::accumulator) return false;
  if (!node.access.plain_slow() || !node.access.plain_fast()) return false;
  // What is stored as it is, while another store overwrites it, needs a register.
  const int source = node.kind == StepKind::accumulator ? -1 : node.operand;
  for (const StoreNode& store : stores_)
    if (store.value == index)
      for (const StoreNode& other : stores_)
        if (&other != &store && overlaps(other.output, source)) return false;
  if (node.fast) return Access::stride(node.access.fast) == 1;
  return !node.slow || Access::stride(node.access.slow) == 1;  // alone, a column is read as a row
}

std::set<int> Compiler::inner_needs(int phase) const {
  std::vector<int> open;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    if (node.kind == StepKind::reduce && node.phase == phase + 1) open.push_back(node.args[0]);
  }
  for (const StoreNode& store : stores_)
    if (!store.outer && store.phase == phase) open.push_back(store.value);
  for (const int kept : kept_)
    if (nodes_[static_cast<std::size_t>(kept)].phase == phase) open.push_back(kept);
  std::set<int> needed;
  while (!open.empty()) {
    const int index = open.back();
    open.pop_back();
    const Node& node = nodes_[static_cast<std::size_t>(index)];
    if (node.outer || needed.contains(index)) continue;
    if (node.phase < phase && kept_.contains(index)) continue;
    needed.insert(index);
    if (node.kind != StepKind::reduce) open.insert(open.end(), node.args.begin(), node.args.end());
  }
  return needed;
}

/// Inner-level stores happen in the phase that makes their value; where they overwrite an input, in the last that reads.
void Compiler::place_stores() {
  int last_body = 0;
  for (StoreNode& store : stores_) {
    store.phase = nodes_[static_cast<std::size_t>(store.value)].phase;
    if (!store.outer) last_body = std::max(last_body, store.phase);
  }
  for (const Node& node : nodes_)
    if (node.kind == StepKind::reduce) last_body = std::max(last_body, node.phase - 1);
  for (StoreNode& store : stores_)
    for (const Node& node : nodes_)
      if (!store.outer &&
          (node.kind == StepKind::load || node.kind == StepKind::gather || node.kind == StepKind::accumulator) &&
          overlaps(store.output, node.kind == StepKind::accumulator ? -1 : node.operand))
        store.phase = last_body;
}

int Compiler::value_of(int index) {
  int& slot = values_[static_cast<std::size_t>(index)];
  if (slot >= 0) return slot;
  const Node& node = nodes_[static_cast<std::size_t>(index)];
  Value value;
  value.type = node.type;
  value.slow = node.slow;
  value.fast = node.fast;
  value.outer = node.outer;
  if (node.kind == StepKind::constant) {
    value.place = Place::constant;
    value.offset = static_cast<Extent>(code_.constants.size());
    code_.constants.resize(code_.constants.size() + 8);
    char* at = code_.constants.data() + value.offset;
    const auto put = [&](auto x) { std::memcpy(at, &x, sizeof x); };
    switch (node.type) {
      case DType::f32: put(static_cast<float>(node.value)); break;
      case DType::f64: put(node.value); break;
      case DType::i32: put(static_cast<std::int32_t>(static_cast<std::int64_t>(node.value))); break;
      case DType::u32: put(static_cast<std::uint32_t>(static_cast<std::int64_t>(node.value))); break;
      case DType::boolean: put(static_cast<std::uint8_t>(node.value != 0)); break;
    }
  } else if (is_memory(index)) {
    value.place = Place::memory;
    value.operand = node.kind == StepKind::accumulator ? -1 : node.operand;
    value.access = node.access;
  } else if (node.outer || kept_.contains(index)) {
    value.place = Place::kept;
    const Extent along_outer = (code_.columns ? node.fast : node.slow) ? code_.block : 1;
    const Extent along_inner = node.outer ? 1 : code_.inner;
    value.offset = code_.frame_bytes;
    code_.frame_bytes += (along_outer * along_inner * static_cast<Extent>(size_bytes(node.type)) + 127) / 64 * 64;
  }
  slot = static_cast<int>(code_.values.size());
  code_.values.push_back(std::move(value));
  return slot;
}

Source Compiler::source_of(int index) {
  const Node& node = nodes_[static_cast<std::size_t>(index)];
  return {value_of(index), node.slow, node.fast, static_cast<Extent>(size_bytes(node.type))};
}
int Compiler::keep(const Access& access) {
  code_.accesses.push_back(access);
  return static_cast<int>(code_.accesses.size()) - 1;
}
int Compiler::keep(std::string name) {
  code_.names.push_back(std::move(name));
  return static_cast<int>(code_.names.size()) - 1;
}

Instruction Compiler::instruction_of(int index) {
  const TileTable& table = tile_table();
  const Node& node = nodes_[static_cast<std::size_t>(index)];
  Instruction made;
  made.slow = node.slow;
  made.fast = node.fast;
  made.operand = node.kind == StepKind::accumulator ? -1 : node.operand;
  made.out_bytes = static_cast<Extent>(size_bytes(node.type));
  made.axis_stride = node.axis_stride;
  made.axis_extent = node.axis_extent;
  for (const int arg : node.args) made.args[made.arg_count++] = source_of(arg);
  made.out = value_of(index);
  std::string name;
  if (node.kind != StepKind::map) made.access = keep(node.access);
  switch (node.kind) {
    case StepKind::load:
    case StepKind::accumulator:
      made.action = Action::fetch;
      name = "load";
      break;
    case StepKind::index:
      made.action = Action::index;
      name = "index";
      break;
    case StepKind::gather:
      made.action = Action::gather;
      name = "gather";
      break;
    case StepKind::map: {
      const DType from = nodes_[static_cast<std::size_t>(
                                    node.args.at(node.op == Op::select && node.joined == Node::Joined::none ? 1 : 0))]
                             .type;
      const auto t = static_cast<std::size_t>(from);
      const auto op = static_cast<std::size_t>(node.op);
      name = std::string(scalar::name_of(node.op));
      switch (node.joined) {
        case Node::Joined::none:
          made.map = node.op == Op::cast ? table.cast[t][static_cast<std::size_t>(node.type)] : table.map[op][t];
          break;
        case Node::Joined::mul_add:
          made.map = table.mul_add[t];
          name = "mul_add";
          break;
        case Node::Joined::mul_sub:
          made.map = table.mul_sub[t];
          name = "mul_sub";
          break;
        case Node::Joined::sub_mul:
          made.map = table.sub_mul[t];
          name = "sub_mul";
          break;
        case Node::Joined::compare_select:
          made.map = table.compare_select[op][t];
          name += "_select";
          break;
      }
      if (made.map == nullptr)
        throw DTypeError(fmt::format("{}: the CPU has no {} of {}; cast the operands first", kernel_.name,
                                     scalar::name_of(node.op), weft::name_of(from)));
      bool floats = node.type == DType::f32;
      for (const int arg : node.args) floats = floats && nodes_[static_cast<std::size_t>(arg)].type == DType::f32;
      if (floats) made.in_chain = chain_op(node);
      break;
    }
    case StepKind::constant:
    case StepKind::reduce: throw InternalError(kernel_.name + ": a step was scheduled twice");
  }
  made.name = keep(std::move(name));
  return made;
}

/// Builds phases for tiles of about `tile_elements` values.
void Compiler::schedule(Extent tile_elements) {
  code_.values.clear();
  code_.accesses.clear();
  code_.names.clear();
  code_.reductions.clear();
  code_.constants.clear();
  code_.phases.assign(static_cast<std::size_t>(phases_), {});
  code_.last = {};
  code_.frame_bytes = 0;
  code_.streams = false;
  values_.assign(nodes_.size(), -1);
  reduction_index_.assign(nodes_.size(), -1);
  kept_.clear();
  registers_max_ = 0;

  // The tile.
  const Extent outer = std::max<Extent>(code_.outer, 1), inner = std::max<Extent>(code_.inner, 1);
  bool computes = false, transposes = false;
  for (const Node& node : nodes_)
    computes = computes || (!node.outer && node.kind != StepKind::load && node.kind != StepKind::constant);
  const auto turned = [&](const Access& access) {
    const Extent slow = access.slow.empty() ? 0 : access.slow.back().stride,
                 fast = access.fast.empty() ? 0 : access.fast.back().stride;
    transposes = transposes || (access.separable && slow == 1 && (fast > 1 || fast < 0));
  };
  for (const Node& node : nodes_)
    if (node.kind == StepKind::load) turned(node.access);
  for (const StoreNode& store : stores_) turned(store.access);
  if (code_.columns) {
    code_.block = std::min(outer, std::min<Extent>(128, tile_elements));
    // Kernels that only add up what lies in memory hold no tiles: they go down many rows at once.
    code_.chunk = std::min(inner, std::max<Extent>(1, (computes ? 4 : 16) * tile_elements / code_.block));
  } else if (transposes) {
    code_.chunk = std::min<Extent>(inner, 64);
    code_.block = std::min(outer, std::max<Extent>(1, tile_elements / code_.chunk));
  } else if (inner <= tile_elements) {
    code_.chunk = inner;
    code_.block = std::min(outer, std::max<Extent>(1, tile_elements / inner));
    // Chains hold few tiles: each may be larger, which costs fewer calls. Not so large that tasks become few.
    if (chains_enabled())
      code_.block = std::max(code_.block, std::min(kChainRows * tile_elements / inner, outer / kChainBlocks));
  } else {
    const Extent chunks = (inner + tile_elements - 1) / tile_elements;
    code_.chunk = std::min(inner, ((inner + chunks - 1) / chunks + 63) / 64 * 64);
    code_.block = 1;
  }
  code_.tile = code_.block * code_.chunk;
  if (part_by_part_) {
    // How wide the parts are is known when they are ready: narrow ones come with more rows at a time.
    code_.block = std::min(outer, kPartRows);
    code_.tile = std::max(code_.tile, tile_elements * (chains_enabled() ? kChainRows : 1));
  }

  // What is kept for later phases, unless the inner axis is divided between tasks.
  divide_into_tasks();
  if (phases_ > 1 && code_.splits == 1) {
    std::set<int> crossing;
    for (int phase = 1; phase < phases_; ++phase)
      for (const int index : inner_needs(phase)) {
        const Node& node = nodes_[static_cast<std::size_t>(index)];
        if (node.phase < phase && !is_memory(index) && node.kind != StepKind::constant) crossing.insert(index);
      }
    // Of a chain of crossing values only those matter that the later phase reads directly.
    std::set<int> wanted;
    for (const int index : crossing) {
      bool read_later = false;
      for (std::size_t user = 0; user < nodes_.size(); ++user) {
        const Node& node = nodes_[user];
        const int at = node.kind == StepKind::reduce ? node.phase - 1 : node.phase;
        if (at > nodes_[static_cast<std::size_t>(index)].phase &&
            std::find(node.args.begin(), node.args.end(), index) != node.args.end())
          read_later = true;
      }
      for (const StoreNode& store : stores_)
        read_later = read_later || (!store.outer && store.value == index &&
                                    store.phase > nodes_[static_cast<std::size_t>(index)].phase);
      if (read_later) wanted.insert(index);
    }
    Extent bytes = 0;
    for (const int index : wanted)
      bytes += inner * code_.block * static_cast<Extent>(size_bytes(nodes_[static_cast<std::size_t>(index)].type));
    if (bytes <= kKeptBytes) kept_ = wanted;
  }

  // Outer-level code: everything that phases and stores need, at the phase where it can be had.
  std::set<int> outer_needed;
  std::vector<std::set<int>> inner_needed;
  std::vector<int> open;
  for (int phase = 0; phase < phases_; ++phase) {
    inner_needed.push_back(inner_needs(phase));
    for (const int index : inner_needed.back())
      open.insert(open.end(), nodes_[static_cast<std::size_t>(index)].args.begin(),
                  nodes_[static_cast<std::size_t>(index)].args.end());
  }
  for (const StoreNode& store : stores_) open.push_back(store.value);
  for (const Node& node : nodes_)
    if (node.kind == StepKind::reduce) open.push_back(node.args[0]);
  while (!open.empty()) {
    const int index = open.back();
    open.pop_back();
    const Node& node = nodes_[static_cast<std::size_t>(index)];
    if (!node.outer || !outer_needed.insert(index).second) continue;
    open.insert(open.end(), node.args.begin(), node.args.end());
  }
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    if (node.kind != StepKind::reduce) continue;
    ReductionInfo info;
    info.reduction = node.reduction;
    info.from = nodes_[static_cast<std::size_t>(node.args[0])].type;
    info.value = value_of(static_cast<int>(i));
    info.phase = node.phase - 1;
    info.accumulators = code_.frame_bytes;
    info.positions = info.accumulators + (code_.block * 8 + 63) / 64 * 64;
    code_.frame_bytes = info.positions + (code_.block * 8 + 63) / 64 * 64;
    reduction_index_[i] = static_cast<int>(code_.reductions.size());
    code_.phases[static_cast<std::size_t>(info.phase)].reductions.push_back(reduction_index_[i]);
    code_.reductions.push_back(info);
  }
  for (const int index : outer_needed) {
    const Node& node = nodes_[static_cast<std::size_t>(index)];
    Phase& phase = code_.phases[static_cast<std::size_t>(node.phase)];
    if (node.kind == StepKind::constant || node.kind == StepKind::reduce) continue;
    if (is_memory(index))
      phase.outer_memory.push_back(value_of(index));
    else
      phase.outer.push_back(instruction_of(index));
  }

  // Inner-level code with registers by last use.
  Extent register_bytes = 0;
  std::vector<std::pair<int, int>> register_values;  // value, register
  int register_count = 0;
  for (int p = 0; p < phases_; ++p) {
    Phase& phase = code_.phases[static_cast<std::size_t>(p)];
    for (std::size_t i = 0; i < nodes_.size(); ++i)  // what several phases compute has a place in each
      if (!nodes_[i].outer && !kept_.contains(static_cast<int>(i))) values_[i] = -1;
    std::vector<int> order(inner_needed[static_cast<std::size_t>(p)].begin(),
                           inner_needed[static_cast<std::size_t>(p)].end());
    // What varies along one axis needs nothing that varies along both. It goes first, so that the rest joins to chains.
    std::stable_partition(order.begin(), order.end(), [&](int index) {
      const Node& node = nodes_[static_cast<std::size_t>(index)];
      return !node.slow || !node.fast;
    });
    std::map<int, std::size_t> last_use, position;
    for (std::size_t i = 0; i < order.size(); ++i) {
      position[order[i]] = i;
      for (const int arg : nodes_[static_cast<std::size_t>(order[i])].args) last_use[arg] = i;
    }
    for (std::size_t i = 0; i < nodes_.size(); ++i)
      if (nodes_[i].kind == StepKind::reduce && nodes_[i].phase == p + 1) last_use.try_emplace(nodes_[i].args[0], 0);
    // A reduction runs right after its value is made.
    std::map<int, std::vector<std::size_t>> reduced_after;
    std::vector<std::size_t> reduced_first;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i].kind != StepKind::reduce || nodes_[i].phase != p + 1) continue;
      if (position.contains(nodes_[i].args[0]))
        reduced_after[nodes_[i].args[0]].push_back(i);
      else
        reduced_first.push_back(i);
    }
    // Stores: the first store of a value takes it straight from the op where its place is plain.
    std::vector<const StoreNode*> late;
    std::map<int, const StoreNode*> direct;
    Extent stored_bytes = 0;
    for (const StoreNode& store : stores_)
      if (!store.outer && store.phase == p)
        stored_bytes += code_.outer * code_.inner *
                        static_cast<Extent>(size_bytes(nodes_[static_cast<std::size_t>(store.value)].type));
    // Past the caches, unless the lines are there anyway because the store changes an input in place.
    const auto streams = [&](const StoreNode& store) {
      bool in_place = store.output == product_output_;
      for (std::size_t i = 0; i < kernel_.inputs.size(); ++i)
        in_place = in_place || overlaps(store.output, static_cast<int>(i));
      return stored_bytes > kStreamBytes && !in_place;
    };
    for (const StoreNode& store : stores_) {
      if (store.outer || store.phase != p) continue;
      const bool stream = streams(store);
      const Node& node = nodes_[static_cast<std::size_t>(store.value)];
      const Access& to = store.access;
      const bool plain = to.plain_slow() && to.plain_fast() && to.uses_fast() && Access::stride(to.fast) == 1 &&
                         (to.uses_slow() || (code_.columns ? code_.inner : code_.outer) == 1 || !node.slow);
      const bool shape = node.fast == to.uses_fast() && node.slow == to.uses_slow();
      bool safe = position.contains(store.value) && !is_memory(store.value) && !kept_.contains(store.value) &&
                  !direct.contains(store.value);
      for (std::size_t i = safe ? position[store.value] + 1 : order.size(); i < order.size() && safe; ++i) {
        // Later reads of an input that this output overwrites must still see it.
        const Node& later = nodes_[static_cast<std::size_t>(order[i])];
        const bool reads =
            later.kind == StepKind::load || later.kind == StepKind::gather || later.kind == StepKind::accumulator;
        if (reads && overlaps(store.output, later.kind == StepKind::accumulator ? -1 : later.operand)) safe = false;
        for (const int arg : later.args) {
          const Node& from = nodes_[static_cast<std::size_t>(arg)];
          if (is_memory(arg) && overlaps(store.output, from.kind == StepKind::accumulator ? -1 : from.operand))
            safe = false;
        }
      }
      // A transposing load would write its columns far apart; in a register they are near.
      const bool turns =
          node.kind == StepKind::load && node.access.plain_slow() && Access::stride(node.access.slow) == 1;
      if (plain && shape && safe && !stream && !turns)
        direct[store.value] = &store;
      else
        late.push_back(&store), last_use[store.value] = order.size();
    }
    std::set<int> memory_seen;
    const auto note_memory = [&](int index) {
      if (nodes_[static_cast<std::size_t>(index)].outer || !is_memory(index) || !memory_seen.insert(index).second)
        return;
      phase.inner_memory.push_back(value_of(index));
    };
    std::vector<int> free;
    std::map<int, int> held;  // node -> register
    const auto release = [&](int index, std::size_t now) {
      const auto it = held.find(index);
      if (it == held.end() || (last_use.contains(index) && last_use[index] > now)) return;
      free.push_back(it->second);
      held.erase(it);
    };
    const auto emit_reduction = [&](std::size_t index) {
      const Node& node = nodes_[index];
      const int arg = node.args[0];
      note_memory(arg);
      Instruction made;
      made.action = Action::reduce;
      made.slow = made.fast = true;
      made.out = reduction_index_[index];
      made.args[made.arg_count++] = source_of(arg);
      const auto& functions = code_.columns ? tile_table().reduce_slow : tile_table().reduce_fast;
      made.reduce = functions[static_cast<std::size_t>(node.reduction)]
                             [static_cast<std::size_t>(nodes_[static_cast<std::size_t>(arg)].type)];
      made.name = keep(fmt::format("reduce {}", scalar::name_of(node.reduction)));
      phase.inner.push_back(std::move(made));
    };
    for (const std::size_t index : reduced_first) emit_reduction(index);
    for (std::size_t i = 0; i < order.size(); ++i) {
      const int index = order[i];
      const Node& node = nodes_[static_cast<std::size_t>(index)];
      const bool memory = is_memory(index);
      if (memory) note_memory(index);
      if (!memory && node.kind != StepKind::constant) {
        for (const int arg : node.args) note_memory(arg);
        Instruction made = instruction_of(index);
        Value& value = code_.values[static_cast<std::size_t>(made.out)];
        // A map may overwrite an operand of the same shape and size: each vector is read before it is written.
        const auto release_args = [&] {
          for (const int arg : node.args) release(arg, i);
        };
        bool in_place = node.kind == StepKind::map;
        for (const int arg : node.args) {
          const Node& from = nodes_[static_cast<std::size_t>(arg)];
          in_place = in_place && (!held.contains(arg) || (from.slow == node.slow && from.fast == node.fast &&
                                                          size_bytes(from.type) == size_bytes(node.type)));
        }
        if (in_place) release_args();
        if (const auto found = direct.find(index); found != direct.end()) {
          value.place = Place::output;
          value.operand = found->second->output;
          value.access = found->second->access;
          phase.inner_memory.push_back(made.out);
        } else if (value.place == Place::tile) {
          if (free.empty()) free.push_back(register_count++);
          held[index] = free.back();
          free.pop_back();
          register_values.emplace_back(made.out, held[index]);
          register_bytes = std::max(register_bytes, code_.tile * static_cast<Extent>(size_bytes(node.type)));
        }
        if (!in_place) release_args();
        phase.inner.push_back(std::move(made));
      }
      if (const auto found = reduced_after.find(index); found != reduced_after.end())
        for (const std::size_t reduction : found->second) emit_reduction(reduction);
      release(index, i);
    }
    registers_max_ = std::max(registers_max_, register_count);
    for (const StoreNode* store : late) {
      note_memory(store->value);
      const Node& node = nodes_[static_cast<std::size_t>(store->value)];
      Instruction made;
      made.action = Action::store;
      made.slow = made.fast = true;
      made.operand = store->output;
      made.access = keep(store->access);
      made.args[made.arg_count++] = source_of(store->value);
      made.out_bytes = made.args[0].bytes;
      const auto t = static_cast<std::size_t>(node.type);
      const Access& to = store->access;
      const bool plain = to.plain_slow() && to.plain_fast() && Access::stride(to.fast) == 1;
      const bool stream = streams(*store);
      if (plain) made.map = stream ? tile_table().stream[t] : tile_table().cast[t][t];
      if (plain && !stream && node.type == DType::f32) made.in_chain = ChainOp::copy;
      code_.streams = code_.streams || (plain && stream);
      made.name = keep(plain && stream ? "stream" : "store");
      phase.inner.push_back(std::move(made));
    }
    std::set<int> registers;
    for (const Instruction& in : phase.inner) {
      for (int k = 0; k < in.arg_count; ++k) registers.insert(in.args[k].value);
      if (in.action != Action::reduce && in.action != Action::store) registers.insert(in.out);
    }
    for (const int v : registers) {
      const Value& value = code_.values[static_cast<std::size_t>(v)];
      if (!value.outer && (value.place == Place::tile || value.place == Place::kept))
        phase.inner_registers.push_back(v);
    }
    Extent bytes = 0;
    for (const int v : phase.inner_memory) {
      const Value& value = code_.values[static_cast<std::size_t>(v)];
      if (value.place != Place::memory || !value.fast) continue;
      phase.ahead.push_back(v);
      bytes += (value.slow ? code_.outer : 1) * code_.inner * static_cast<Extent>(size_bytes(value.type));
    }
    if (code_.columns || phase.ahead.size() < kAheadStreams || bytes < kAheadBytes) phase.ahead.clear();
  }
  const Extent padded = (register_bytes + 127) / 64 * 64;
  for (const auto& [value, reg] : register_values)
    code_.values[static_cast<std::size_t>(value)].offset = code_.frame_bytes + reg * padded;
  code_.frame_bytes += register_count * padded;

  code_.outer_registers.clear();
  for (std::size_t v = 0; v < code_.values.size(); ++v)
    if (code_.values[v].outer && code_.values[v].place == Place::kept)
      code_.outer_registers.push_back(static_cast<int>(v));

  // Outer-level stores.
  for (const StoreNode& store : stores_) {
    if (!store.outer) continue;
    Instruction made;
    made.action = Action::store;
    made.slow = !code_.columns;
    made.fast = code_.columns;
    made.operand = store.output;
    made.access = keep(store.access);
    made.args[made.arg_count++] = source_of(store.value);
    made.out_bytes = made.args[0].bytes;
    made.name = keep("store");
    const auto& along = code_.columns ? store.access.fast : store.access.slow;
    const auto t = static_cast<std::size_t>(nodes_[static_cast<std::size_t>(store.value)].type);
    if (store.access.separable && Access::plain(along) && Access::stride(along) == 1) {
      made.map = tile_table().cast[t][t];
      if (t == static_cast<std::size_t>(DType::f32)) made.in_chain = ChainOp::copy;
    }
    code_.last.inner.push_back(std::move(made));
  }
}

/// Tasks of at least kTaskWork: ranges of blocks, or, where there are few blocks of long rows, parts of the inner axis.
void Compiler::divide_into_tasks() {
  const Extent outer = std::max<Extent>(code_.outer, 1), inner = std::max<Extent>(code_.inner, 1);
  const Extent blocks = (outer + code_.block - 1) / code_.block, chunks = (inner + code_.chunk - 1) / code_.chunk;
  const auto operations = static_cast<Extent>(std::count_if(
      nodes_.begin(), nodes_.end(), [](const Node& node) { return node.kind != StepKind::constant && !node.outer; }));
  const Extent tasks = std::clamp<Extent>(outer * inner * std::max<Extent>(operations, 1) / kTaskWork, 1, kTasksMax);
  code_.splits = blocks >= std::min<Extent>(tasks, 8) ? 1 : std::min(chunks, (tasks + blocks - 1) / blocks);
  code_.blocks_per_task = code_.splits > 1 ? 1 : (blocks + tasks - 1) / tasks;
}

void Compiler::compile() {
  read_steps();
  join_pairs();
  place_stores();
  Extent widest = 1;
  for (const Node& node : nodes_)
    if (!node.outer) widest = std::max(widest, static_cast<Extent>(size_bytes(node.type)));
  Extent elements = kTileBytes / std::max<Extent>(widest, 4);
  schedule(elements);
  while (registers_max_ * elements * widest > 8 * kTileBytes && elements > 256) schedule(elements /= 2);
  if (chains_enabled()) form_chains(code_);
}

std::unique_ptr<LoopProgram::Totals> make_totals(const LoopProgram::Code& code) {
  auto made = std::make_unique<LoopProgram::Totals>();
  const Extent chunks = (code.inner + code.chunk - 1) / code.chunk;
  made->part = (chunks + code.splits - 1) / code.splits * code.chunk;
  made->parts = (code.inner + made->part - 1) / made->part;
  std::size_t most = 0;
  for (std::size_t p = 0; p < code.phases.size(); ++p) {
    if (code.phases[p].inner.empty()) continue;
    made->phases.push_back(static_cast<int>(p));
    most = std::max(most, code.phases[p].reductions.size());
  }
  const auto outer = static_cast<std::size_t>(code.outer);
  made->totals.resize(code.reductions.size() * outer);
  made->total_positions.resize(made->totals.size());
  made->partial.resize(static_cast<std::size_t>(made->parts) * most * outer);
  made->partial_positions.resize(made->partial.size());
  return made;
}

}  // namespace

bool overlap(const kernel::Operand& x, const kernel::Operand& y) {
  const auto bytes = [](const kernel::Operand& o) { return static_cast<Extent>(size_bytes(o.type)); };
  return x.buffer == y.buffer && x.offset * bytes(x) < (y.offset + y.count) * bytes(y) &&
         y.offset * bytes(y) < (x.offset + x.count) * bytes(x);
}

std::shared_ptr<const LoopProgram::Code> compile_loop(const kernel::LoopKernel& kernel, Extent columns,
                                                      DType product_type, int product_output) {
  auto code = std::make_shared<LoopProgram::Code>();
  Compiler(kernel, *code, columns, product_type, product_output).compile();
  return code;
}

LoopProgram::LoopProgram(const kernel::LoopKernel& kernel, Extent columns, DType product_type, int product_output)
    : code_(shared_code(kernel, columns, product_type, product_output)),
      totals_(code_->splits > 1 && code_->outer > 0 ? make_totals(*code_) : nullptr) {}
LoopProgram::~LoopProgram() = default;
LoopProgram::LoopProgram(LoopProgram&&) noexcept = default;

std::string LoopProgram::to_string() const {
  const auto place = [&](int index) {
    const Value& value = code_->values[static_cast<std::size_t>(index)];
    switch (value.place) {
      case Place::constant: {
        const char* at = code_->constants.data() + value.offset;
        const auto get = [&](auto x) { return std::memcpy(&x, at, sizeof x), x; };
        switch (value.type) {
          case DType::f32: return fmt::format("{}", get(float{}));
          case DType::f64: return fmt::format("{}", get(double{}));
          case DType::i32: return fmt::format("{}", get(std::int32_t{}));
          case DType::u32: return fmt::format("{}u", get(std::uint32_t{}));
          case DType::boolean: return std::string(*at ? "true" : "false");
        }
        return std::string();
      }
      case Place::memory: return value.operand < 0 ? std::string("product") : fmt::format("in{}", value.operand);
      case Place::output: return fmt::format("out{}", value.operand);
      case Place::kept:
      case Place::tile: return fmt::format("{}{}", value.outer ? "o" : value.place == Place::kept ? "k" : "r", index);
    }
    return std::string();
  };
  std::string text = fmt::format("loop {} {}: {} x {}, tile {} x {}", code_->name, code_->columns ? "columns" : "rows",
                                 code_->outer, code_->inner, code_->block, code_->chunk);
  if (code_->splits > 1) text += fmt::format(", {} parts", code_->splits);
  text += '\n';
  const auto print = [&](const auto& self, const std::vector<Instruction>& list, const std::string& indent) -> void {
    for (const Instruction& in : list) {
      if (in.action == Action::chain) {
        text += indent + "chain\n";
        self(self, code_->chains[static_cast<std::size_t>(in.chain)].instructions, indent + "| ");
        continue;
      }
      std::string line = indent;
      if (in.action == Action::reduce)
        line += fmt::format("{} = ", place(code_->reductions[static_cast<std::size_t>(in.out)].value));
      else if (in.action == Action::store)
        line += fmt::format("out{} = ", in.operand);
      else
        line += fmt::format("{} = ", place(in.out));
      line += code_->names[static_cast<std::size_t>(in.name)];
      if (in.action == Action::fetch || in.action == Action::gather)
        line += in.operand < 0 ? " product" : fmt::format(" in{}", in.operand);
      for (int i = 0; i < in.arg_count; ++i) line += fmt::format("{} {}", i == 0 ? "" : ",", place(in.args[i].value));
      text += line + '\n';
    }
  };
  for (std::size_t p = 0; p < code_->phases.size(); ++p) {
    if (code_->phases.size() > 1) text += fmt::format(" phase {}\n", p);
    print(print, code_->phases[p].outer, "  ");
    print(print, code_->phases[p].inner, "    ");
  }
  print(print, code_->last.inner, "  ");
  return text;
}

}  // namespace weft::cpu
