#include "backend/cpu/loop/schedule.hpp"

#include <algorithm>
#include <set>

#include "backend/cpu/loop/inner.hpp"
#include "backend/cpu/loop/instructions.hpp"

namespace weft::cpu {
namespace {

using kernel::StepKind;

constexpr Extent kKeptBytes = 512 << 10;      // of values that later phases read again; larger ones are computed again
constexpr Extent kKeptColumnBytes = 4 << 20;  // the same beside copied columns

class Scheduler {
 public:
  Scheduler(const LoopNodes& nodes, LoopProgram::Code& code)
      : nodes_(nodes), code_(code), make_(nodes, code), reductions_(nodes.nodes.size(), -1) {}

  int run() {
    code_.phases.assign(static_cast<std::size_t>(nodes_.phases), {});
    choose_kept();
    for (int phase = 0; phase < nodes_.phases; ++phase) needed_.push_back(inner_needs(phase));
    choose_in_place();
    place_reductions();
    write_outer();
    TileRegisters registers;
    for (int phase = 0; phase < nodes_.phases; ++phase)
      write_inner(nodes_, phase, needed_[static_cast<std::size_t>(phase)], reductions_, make_, code_, registers);
    place_registers(registers);
    choose_next();
    for (const StoreNode& store : nodes_.stores)
      if (store.outer) write_outer_store(store);
    return registers.count;
  }

 private:
  /// The inner-level nodes that a phase computes.
  std::set<int> inner_needs(int phase) const {
    std::vector<int> open;
    for (const LoopNode& node : nodes_.nodes)
      if (node.kind == StepKind::reduce && node.phase == phase + 1) open.push_back(node.args[0]);
    for (const StoreNode& store : nodes_.stores)
      if (!store.outer && store.phase == phase) open.push_back(store.value);
    for (const int kept : make_.kept)
      if (nodes_[kept].phase == phase) open.push_back(kept);
    std::set<int> needed;
    while (!open.empty()) {
      const int index = open.back();
      open.pop_back();
      const LoopNode& node = nodes_[index];
      if (node.outer || needed.contains(index)) continue;
      if (node.phase < phase && make_.kept.contains(index)) continue;
      needed.insert(index);
      if (node.kind != StepKind::reduce) open.insert(open.end(), node.args.begin(), node.args.end());
    }
    return needed;
  }

  /// Whether a later phase reads the node itself, not only values made from it.
  bool is_read_later(int index) const {
    const int phase = nodes_[index].phase;
    for (const LoopNode& user : nodes_.nodes) {
      const int at = user.kind == StepKind::reduce ? user.phase - 1 : user.phase;
      if (at > phase && std::find(user.args.begin(), user.args.end(), index) != user.args.end()) return true;
    }
    return std::any_of(nodes_.stores.begin(), nodes_.stores.end(), [&](const StoreNode& store) {
      return !store.outer && store.value == index && store.phase > phase;
    });
  }

  /// Whether a chain makes the value again faster than it could be written and read: an op or two on operands in memory.
  bool is_cheap(int index) const {
    constexpr int kOpsMax = 2;
    int ops = 0;
    const auto visit = [&](const auto& self, int at) -> bool {
      const LoopNode& node = nodes_[at];
      if (node.outer || nodes_.is_memory(at) || node.kind == StepKind::constant) return true;
      if (!chain_op_of(nodes_, at) || is_elementary(node.op) || node.op == scalar::Op::div ||
          node.op == scalar::Op::sqrt || node.op == scalar::Op::rsqrt || ++ops > kOpsMax)
        return false;
      return std::all_of(node.args.begin(), node.args.end(), [&](int arg) { return self(self, arg); });
    };
    return chains_enabled() && visit(visit, index);
  }

  /// Chooses the values to keep for later phases, unless the inner axis is divided between tasks.
  void choose_kept() {
    if (nodes_.phases == 1 || code_.splits > 1) return;
    std::set<int> wanted;
    for (int phase = 1; phase < nodes_.phases; ++phase)
      for (const int index : inner_needs(phase)) {
        const LoopNode& node = nodes_[index];
        if (node.phase < phase && !nodes_.is_memory(index) && node.kind != StepKind::constant && is_read_later(index) &&
            !is_cheap(index))
          wanted.insert(index);
      }
    Extent bytes = 0;
    for (const int index : wanted)
      bytes += std::max<Extent>(code_.inner, 1) * code_.block * static_cast<Extent>(size_bytes(nodes_[index].type));
    if (bytes <= (nodes_.copied_columns > 0 ? kKeptColumnBytes : kKeptBytes)) make_.kept = std::move(wanted);
  }

  /// A kept value may take the place of the columns that it is made from, if nothing else reads these any more: half as many bytes
  /// then have to stay in the cache.
  void choose_in_place() {
    for (const int value : make_.kept) {
      const LoopNode& node = nodes_[value];
      if (node.kind != StepKind::map) continue;
      const std::set<int>& mine = needed_[static_cast<std::size_t>(node.phase)];
      std::set<int> sources;
      std::vector<int> open{value};
      while (!open.empty()) {
        const int index = open.back();
        open.pop_back();
        if (!sources.insert(index).second || (make_.kept.contains(index) && index != value)) continue;
        for (const int arg : nodes_[index].args)
          if (!nodes_[arg].outer) open.push_back(arg);
      }
      for (const int columns : sources) {
        const LoopNode& from = nodes_[columns];
        if (!from.copied || !make_.kept.contains(columns) || from.type != node.type || from.slow != node.slow ||
            from.fast != node.fast || is_read_elsewhere(columns, node.phase, sources, mine))
          continue;
        make_.in_place_of[value] = columns;
        break;
      }
      if (!make_.in_place_of.empty()) return;  // one is enough for a softmax
    }
  }
  /// Whether anything but `sources`, in this phase or a later one, reads the node.
  bool is_read_elsewhere(int index, int phase, const std::set<int>& sources, const std::set<int>& mine) const {
    const auto reads = [&](const LoopNode& user) {
      return std::find(user.args.begin(), user.args.end(), index) != user.args.end();
    };
    for (const int user : mine)
      if (reads(nodes_[user]) && !sources.contains(user)) return true;
    for (int later = phase + 1; later < nodes_.phases; ++later)
      for (const int user : needed_[static_cast<std::size_t>(later)])
        if (reads(nodes_[user])) return true;
    for (const LoopNode& user : nodes_.nodes)
      if (user.kind == StepKind::reduce && user.phase > phase && reads(user)) return true;
    return std::any_of(nodes_.stores.begin(), nodes_.stores.end(), [&](const StoreNode& store) {
      return !store.outer && store.value == index && store.phase >= phase;
    });
  }

  void place_reductions() {
    for (int i = 0; i < nodes_.count(); ++i) {
      const LoopNode& node = nodes_[i];
      if (node.kind != StepKind::reduce) continue;
      ReductionInfo info;
      info.reduction = node.reduction;
      info.from = nodes_[node.args[0]].type;
      info.value = make_.value_of(i);
      info.phase = node.phase - 1;
      info.is_squares = node.squares_around >= 0;
      info.accumulators = code_.frame_bytes;
      info.positions = info.accumulators + (code_.block * 8 + 63) / 64 * 64;
      info.partials = info.positions;  // extremes with positions are not parts of chains
      code_.frame_bytes = info.positions + (code_.block * 8 + 63) / 64 * 64;
      int& index = reductions_[static_cast<std::size_t>(i)];
      index = static_cast<int>(code_.reductions.size());
      code_.phases[static_cast<std::size_t>(info.phase)].reductions.push_back(index);
      code_.reductions.push_back(info);
    }
  }

  /// Outer-level code: everything that phases and stores need, at the first phase where it can be computed.
  void write_outer() {
    std::vector<int> open;
    for (const std::set<int>& needed : needed_)
      for (const int index : needed) open.insert(open.end(), nodes_[index].args.begin(), nodes_[index].args.end());
    for (const StoreNode& store : nodes_.stores) open.push_back(store.value);
    for (const LoopNode& node : nodes_.nodes)
      if (node.kind == StepKind::reduce) open.push_back(node.args[0]);
    std::set<int> outer;
    while (!open.empty()) {
      const int index = open.back();
      open.pop_back();
      const LoopNode& node = nodes_[index];
      if (!node.outer || !outer.insert(index).second) continue;
      open.insert(open.end(), node.args.begin(), node.args.end());
    }
    for (const int index : outer) {
      const LoopNode& node = nodes_[index];
      Phase& phase = code_.phases[static_cast<std::size_t>(node.phase)];
      if (node.kind == StepKind::constant || node.kind == StepKind::reduce) continue;
      if (nodes_.is_memory(index))
        phase.outer_memory.push_back(make_.value_of(index));
      else
        phase.outer.push_back(make_.instruction_of(index));
    }
  }

  void place_registers(const TileRegisters& registers) {
    const Extent padded = (registers.bytes + 127) / 64 * 64;
    for (const auto& [value, reg] : registers.values)
      code_.values[static_cast<std::size_t>(value)].offset = code_.frame_bytes + reg * padded;
    code_.frame_bytes += registers.count * padded;
    for (std::size_t v = 0; v < code_.values.size(); ++v)
      if (code_.values[v].outer && code_.values[v].place == Place::kept)
        code_.outer_registers.push_back(static_cast<int>(v));
  }

  /// A reduction's later phases work on rows that its first one has read. The phase with the longest work asks for the rows that
  /// the next block reads, so that memory does not rest meanwhile.
  void choose_next() {
    if (code_.columns || code_.splits > 1 || nodes_.phases == 1) return;
    std::size_t longest = 0;
    Extent most = 0;
    for (std::size_t p = 0; p < code_.phases.size(); ++p) {
      Extent work = 0;
      for (const LoopInstruction& in : code_.phases[p].inner)
        if (in.action == Action::map && in.slow && in.fast)
          work += in.in_chain && is_elementary(in.in_chain->op) ? 10 : 1;
      if (work >= most) longest = p, most = work;
    }
    if (most == 0) return;
    for (const int v : code_.phases[0].inner_memory) {
      const Value& value = code_.values[static_cast<std::size_t>(v)];
      if (value.place == Place::memory && value.operand >= 0 && value.slow && value.fast && value.type == DType::f32 &&
          Access::stride(value.access.fast) == 1)
        code_.phases[longest].next.push_back(v);
    }
  }
  static bool is_elementary(scalar::Op op) {
    return op == scalar::Op::exp || op == scalar::Op::log || op == scalar::Op::tanh || op == scalar::Op::erf;
  }

  void write_outer_store(const StoreNode& store) {
    LoopInstruction made;
    made.action = Action::store;
    made.slow = !code_.columns;
    made.fast = code_.columns;
    made.operand = store.output;
    made.access = make_.keep(store.access);
    made.args[made.arg_count++] = make_.source_of(store.value);
    made.out_bytes = made.args[0].bytes;
    made.name = make_.keep("store");
    const auto& along = code_.columns ? store.access.fast : store.access.slow;
    const DType type = nodes_[store.value].type;
    const auto t = static_cast<std::size_t>(type);
    if (is_packed(type)) {
      made.packed_bits = element(type).bits;
    } else if (store.access.separable && Access::plain(along) && Access::stride(along) == 1) {
      made.map = tile_table().cast[t][t];
      if (is_chain_type(type)) made.in_chain = kChainCopy;
    }
    code_.last.inner.push_back(std::move(made));
  }

  const LoopNodes& nodes_;
  LoopProgram::Code& code_;
  InstructionMaker make_;
  std::vector<int> reductions_;        // indices by node
  std::vector<std::set<int>> needed_;  // inner-level nodes by phase
};

}  // namespace

int schedule(const LoopNodes& nodes, LoopProgram::Code& code) { return Scheduler(nodes, code).run(); }

}  // namespace weft::cpu
