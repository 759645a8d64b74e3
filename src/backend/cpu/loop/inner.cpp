#include "backend/cpu/loop/inner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "backend/cpu/run_writer.hpp"

namespace weft::cpu {
namespace {

using kernel::StepKind;

constexpr std::size_t kFarStreams = 3;  // with fewer sources the hardware's prefetching is better
constexpr Extent kFarBytes = 1 << 20;   // smaller kernels find their operands in the L2 cache

class InnerWriter {
 public:
  InnerWriter(const LoopNodes& nodes, int phase, const std::set<int>& needed, const std::vector<int>& reductions,
              InstructionMaker& make, LoopProgram::Code& code, TileRegisters& registers)
      : nodes_(nodes),
        number_(phase),
        order_(needed.begin(), needed.end()),
        reductions_(reductions),
        make_(make),
        code_(code),
        phase_(code.phases[static_cast<std::size_t>(phase)]),
        registers_(registers) {}

  void write() {
    for (int i = 0; i < nodes_.count(); ++i)  // values that several phases compute have a place in each
      if (!nodes_[i].outer && !make_.kept.contains(i)) make_.forget_value(i);
    order_nodes();
    sort_stores();
    for (const int reduction : reduced_first_) write_reduction(reduction);
    for (std::size_t i = 0; i < order_.size(); ++i) {
      write_node(i);
      if (const auto found = reduced_after_.find(order_[i]); found != reduced_after_.end())
        for (const int reduction : found->second) write_reduction(reduction);
      release(order_[i], i);
    }
    for (const StoreNode* store : late_) write_store(*store);
    note_registers();
    phase_.far = is_far();
  }

 private:
  void order_nodes() {
    // Values that vary along one axis never need values that vary along both. They go first, so that the rest joins to chains.
    std::stable_partition(order_.begin(), order_.end(), [&](int index) {
      const LoopNode& node = nodes_[index];
      return !node.slow || !node.fast;
    });
    for (std::size_t i = 0; i < order_.size(); ++i) {
      position_[order_[i]] = i;
      for (const int arg : nodes_[order_[i]].args) last_use_[arg] = i;
    }
    // A reduction runs right after its value is made.
    for (int i = 0; i < nodes_.count(); ++i) {
      if (nodes_[i].kind != StepKind::reduce || nodes_[i].phase != number_ + 1 || comes_with_squares(i)) continue;
      const int arg = nodes_[i].args[0];
      last_use_.try_emplace(arg, 0);
      if (position_.contains(arg))
        reduced_after_[arg].push_back(i);
      else
        reduced_first_.push_back(i);
    }
  }

  /// The op writes the first store of a value directly if its place is plain; other stores come at the end.
  void sort_stores() {
    for (const StoreNode& store : nodes_.stores)
      if (!store.outer && store.phase == number_)
        stored_bytes_ += code_.outer * code_.inner * static_cast<Extent>(size_bytes(nodes_[store.value].type));
    for (const StoreNode& store : nodes_.stores) {
      if (store.outer || store.phase != number_) continue;
      if (takes_directly(store))
        direct_[store.value] = &store;
      else
        late_.push_back(&store), last_use_[store.value] = order_.size();
    }
  }

  bool takes_directly(const StoreNode& store) const {
    const LoopNode& node = nodes_[store.value];
    const Access& to = store.access;
    const bool plain = to.plain_slow() && to.plain_fast() && to.uses_fast() && Access::stride(to.fast) == 1 &&
                       (to.uses_slow() || (code_.columns ? code_.inner : code_.outer) == 1 || !node.slow);
    const bool shape = node.fast == to.uses_fast() && node.slow == to.uses_slow();
    // A transposing load would write its columns far apart; in a register they are close.
    const bool turns = node.kind == StepKind::load && node.access.plain_slow() && node.access.slow_stride() == 1;
    return plain && shape && !turns && !is_packed(node.type) && (!streams(store) || can_stream(node)) &&
           may_write_early(store);
  }

  /// Whether the instruction itself can bypass the caches: gathers of whole rows, and of words of a row, and reversed rows.
  bool can_stream(const LoopNode& node) const {
    if (node.kind == StepKind::load)
      return !code_.columns && node.fast && node.access.is_reversed() && size_bytes(node.type) == 4;
    if (node.kind != StepKind::gather || !node.fast || !node.access.plain_slow()) return false;
    if (nodes_[node.args[0]].fast)
      return size_bytes(node.type) == 4 && node.access.separable && node.access.fast.empty() && node.axis_stride == 1;
    return node.access.plain_fast() && Access::stride(node.access.fast) == 1;
  }

  /// Whether the output may be written when its value is made: later reads must still see an input that it overwrites.
  bool may_write_early(const StoreNode& store) const {
    const auto found = position_.find(store.value);
    if (found == position_.end() || nodes_.is_memory(store.value) || make_.kept.contains(store.value) ||
        direct_.contains(store.value))
      return false;
    const auto overwritten = [&](const LoopNode& read) {
      return nodes_.overlaps(store.output, read.kind == StepKind::accumulator ? -1 : read.operand);
    };
    for (std::size_t i = found->second + 1; i < order_.size(); ++i) {
      const LoopNode& later = nodes_[order_[i]];
      const bool reads =
          later.kind == StepKind::load || later.kind == StepKind::gather || later.kind == StepKind::accumulator;
      if (reads && overwritten(later)) return false;
      for (const int arg : later.args)
        if (nodes_.is_memory(arg) && overwritten(nodes_[arg])) return false;
    }
    return true;
  }

  /// Whether the store bypasses the caches; not if the lines are there anyway, because it changes an input in place.
  bool streams(const StoreNode& store) const {
    bool in_place = store.output == nodes_.product_output;
    for (std::size_t i = 0; i < nodes_.kernel.inputs.size(); ++i)
      in_place = in_place || nodes_.overlaps(store.output, static_cast<int>(i));
    return stored_bytes_ > kStreamBytes && !in_place;
  }

  void note_memory(int index) {
    if (nodes_[index].outer || !nodes_.is_memory(index) || !memory_seen_.insert(index).second) return;
    phase_.inner_memory.push_back(make_.value_of(index));
  }

  void release(int index, std::size_t now) {
    const auto it = held_.find(index);
    if (it == held_.end()) return;
    if (const auto last = last_use_.find(index); last != last_use_.end() && last->second > now) return;
    free_.push_back(it->second);
    held_.erase(it);
  }

  /// Whether a sum is made together with squared differences from its mean.
  bool comes_with_squares(int sum) const {
    return std::any_of(nodes_.nodes.begin(), nodes_.nodes.end(),
                       [&](const LoopNode& node) { return node.squares_around == sum; });
  }

  /// The op by which a chain collects values.
  static std::optional<ChainOp> fold_of(scalar::Reduction reduction) {
    switch (reduction) {
      case scalar::Reduction::sum: return ChainOp{scalar::Op::add};
      case scalar::Reduction::prod: return ChainOp{scalar::Op::mul};
      case scalar::Reduction::max: return ChainOp{scalar::Op::max};
      case scalar::Reduction::min: return ChainOp{scalar::Op::min};
      default: return std::nullopt;
    }
  }

  void write_reduction(int index) {
    const LoopNode& node = nodes_[index];
    const int arg = node.args[0];
    note_memory(arg);
    LoopInstruction made;
    made.action = Action::reduce;
    made.slow = made.fast = true;
    made.out = reductions_[static_cast<std::size_t>(index)];
    made.args[made.arg_count++] = make_.source_of(arg);
    if (node.squares_around >= 0) {
      const auto t = static_cast<std::size_t>(nodes_[arg].type);
      made.moments = (code_.columns ? tile_table().moments_slow : tile_table().moments_fast)[t];
      made.sum = reductions_[static_cast<std::size_t>(node.squares_around)];
      made.name = make_.keep("squares around the mean of");
      phase_.inner.push_back(std::move(made));
      return;
    }
    const auto& functions = code_.columns ? tile_table().reduce_slow : tile_table().reduce_fast;
    made.reduce = functions[static_cast<std::size_t>(node.reduction)][static_cast<std::size_t>(nodes_[arg].type)];
    made.name = make_.keep(fmt::format("reduce {}", scalar::name_of(node.reduction)));
    const LoopNode& value = nodes_[arg];
    if (value.type == DType::f32 && value.fast && (value.slow || (!code_.columns && code_.outer == 1))) {
      made.in_chain = fold_of(node.reduction);
      made.slow = value.slow;
    }
    phase_.inner.push_back(std::move(made));
  }

  void write_node(std::size_t i) {
    const int index = order_[i];
    const LoopNode& node = nodes_[index];
    if (nodes_.is_memory(index)) return note_memory(index);
    if (node.kind == StepKind::constant) return;
    for (const int arg : node.args) note_memory(arg);
    LoopInstruction made = make_.instruction_of(index);
    // A map may overwrite an operand of the same shape and size: each vector is read before it is written.
    const auto release_args = [&] {
      for (const int arg : node.args) release(arg, i);
    };
    bool in_place = node.kind == StepKind::map;
    for (const int arg : node.args) {
      const LoopNode& from = nodes_[arg];
      in_place = in_place && (!held_.contains(arg) || (from.slow == node.slow && from.fast == node.fast &&
                                                       size_bytes(from.type) == size_bytes(node.type)));
    }
    if (in_place) release_args();
    place_result(index, made.out);
    if (const auto found = direct_.find(index); found != direct_.end() && streams(*found->second))
      made.streams = code_.streams = true;
    if (!in_place) release_args();
    phase_.inner.push_back(std::move(made));
  }

  /// An output that is written in place, or a register.
  void place_result(int index, int made) {
    Value& value = code_.values[static_cast<std::size_t>(made)];
    if (const auto found = direct_.find(index); found != direct_.end()) {
      value.place = Place::output;
      value.operand = found->second->output;
      value.access = found->second->access;
      phase_.inner_memory.push_back(made);
    } else if (value.place == Place::tile) {
      if (free_.empty()) free_.push_back(registers_.count++);
      held_[index] = free_.back();
      free_.pop_back();
      registers_.values.emplace_back(made, held_[index]);
      registers_.bytes = std::max(registers_.bytes, code_.tile * static_cast<Extent>(size_bytes(nodes_[index].type)));
    }
  }

  void write_store(const StoreNode& store) {
    note_memory(store.value);
    const LoopNode& node = nodes_[store.value];
    LoopInstruction made;
    made.action = Action::store;
    // In a single row it runs as the op that makes the value does, so that the two join to a chain.
    made.slow = node.slow || code_.columns || code_.outer > 1;
    made.fast = true;
    made.operand = store.output;
    made.access = make_.keep(store.access);
    made.args[made.arg_count++] = make_.source_of(store.value);
    made.out_bytes = made.args[0].bytes;
    const auto t = static_cast<std::size_t>(node.type);
    const Access& to = store.access;
    if (is_packed(node.type)) made.packed_bits = element(node.type).bits;
    const bool plain = to.plain_slow() && to.plain_fast() && Access::stride(to.fast) == 1 && !is_packed(node.type);
    const bool stream = streams(store);
    if (plain) made.map = stream ? tile_table().stream[t] : tile_table().cast[t][t];
    if (plain && is_chain_type(node.type)) made.in_chain = kChainCopy;
    made.streams = plain && stream;
    code_.streams = code_.streams || made.streams;
    made.name = make_.keep(plain && stream ? "stream" : "store");
    phase_.inner.push_back(std::move(made));
  }

  void note_registers() {
    std::set<int> used;
    for (const LoopInstruction& in : phase_.inner) {
      for (int k = 0; k < in.arg_count; ++k) used.insert(in.args[k].value);
      if (in.action != Action::reduce && in.action != Action::store) used.insert(in.out);
    }
    for (const int v : used) {
      const Value& value = code_.values[static_cast<std::size_t>(v)];
      if (!value.outer && (value.place == Place::tile || value.place == Place::kept))
        phase_.inner_registers.push_back(v);
    }
  }

  bool is_far() const {
    std::size_t streams = 0;
    Extent bytes = 0;
    for (const int v : phase_.inner_memory) {
      const Value& value = code_.values[static_cast<std::size_t>(v)];
      if (value.place != Place::memory || !value.fast) continue;
      ++streams;
      bytes += (value.slow ? code_.outer : 1) * code_.inner * static_cast<Extent>(size_bytes(value.type));
    }
    return !code_.columns && streams >= kFarStreams && bytes >= kFarBytes;
  }

  const LoopNodes& nodes_;
  const int number_;
  std::vector<int> order_;  // of the nodes that are computed
  const std::vector<int>& reductions_;
  InstructionMaker& make_;
  LoopProgram::Code& code_;
  Phase& phase_;
  TileRegisters& registers_;
  std::map<int, std::size_t> last_use_, position_;  // in the order
  std::map<int, std::vector<int>> reduced_after_;
  std::vector<int> reduced_first_;
  std::vector<const StoreNode*> late_;
  std::map<int, const StoreNode*> direct_;
  Extent stored_bytes_ = 0;
  std::set<int> memory_seen_;
  std::vector<int> free_;
  std::map<int, int> held_;  // node -> register
};

}  // namespace

void write_inner(const LoopNodes& nodes, int phase, const std::set<int>& needed, const std::vector<int>& reductions,
                 InstructionMaker& make, LoopProgram::Code& code, TileRegisters& registers) {
  InnerWriter(nodes, phase, needed, reductions, make, code, registers).write();
}

}  // namespace weft::cpu
