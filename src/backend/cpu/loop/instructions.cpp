#include "backend/cpu/loop/instructions.hpp"

#include <fmt/format.h>

#include "tensor/element.hpp"
#include "weft/error.hpp"

namespace weft::cpu {

using kernel::StepKind;
using scalar::Op;

int InstructionMaker::value_of(int index) {
  int& slot = values_[index];
  if (slot >= 0) return slot;
  const LoopNode& node = nodes_[index];
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
    write_element(node.type, node.value, at);
  } else if (nodes_.is_memory(index)) {
    value.place = Place::memory;
    value.operand = node.kind == StepKind::accumulator ? -1 : node.operand;
    value.access = node.access;
  } else if (node.outer || kept.contains(index)) {
    value.place = Place::kept;
    if (const auto found = in_place_of.find(index); found != in_place_of.end()) {
      value.offset = code_.values[static_cast<std::size_t>(value_of(found->second))].offset;
      slot = static_cast<int>(code_.values.size());
      code_.values.push_back(std::move(value));
      return slot;
    }
    const Extent along_outer = (code_.columns ? node.fast : node.slow) ? code_.block : 1;
    const Extent along_inner = node.outer ? 1 : code_.inner;
    value.offset = code_.frame_bytes;
    code_.frame_bytes += (along_outer * along_inner * static_cast<Extent>(size_bytes(node.type)) + 127) / 64 * 64;
  }
  slot = static_cast<int>(code_.values.size());
  code_.values.push_back(std::move(value));
  return slot;
}

Source InstructionMaker::source_of(int index) {
  const LoopNode& node = nodes_[index];
  return {value_of(index), node.slow, node.fast, static_cast<Extent>(size_bytes(node.type))};
}
int InstructionMaker::keep(const Access& access) {
  code_.accesses.push_back(access);
  return static_cast<int>(code_.accesses.size()) - 1;
}
int InstructionMaker::keep(std::string name) {
  code_.names.push_back(std::move(name));
  return static_cast<int>(code_.names.size()) - 1;
}

LoopInstruction InstructionMaker::instruction_of(int index) {
  const TileTable& table = tile_table();
  const LoopNode& node = nodes_[index];
  LoopInstruction made;
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
  if ((node.kind == StepKind::load || node.kind == StepKind::gather) && is_packed(node.type))
    made.packed_bits = element(node.type).bits;
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
      const DType from = nodes_[node.args.at(node.op == Op::select && node.joined == Joined::none ? 1 : 0)].type;
      const auto t = static_cast<std::size_t>(from);
      const auto op = static_cast<std::size_t>(node.op);
      name = std::string(scalar::name_of(node.op));
      switch (node.joined) {
        case Joined::none:
          made.map = node.op == Op::cast ? table.cast[t][static_cast<std::size_t>(node.type)] : table.map[op][t];
          break;
        case Joined::mul_add:
          made.map = table.mul_add[t];
          name = "mul_add";
          break;
        case Joined::mul_sub:
          made.map = table.mul_sub[t];
          name = "mul_sub";
          break;
        case Joined::sub_mul:
          made.map = table.sub_mul[t];
          name = "sub_mul";
          break;
        case Joined::compare_select:
          made.map = table.compare_select[op][t];
          name += "_select";
          break;
      }
      if (made.map == nullptr)
        throw DTypeError(fmt::format("{}: the CPU has no {} of {}; cast the operands first", nodes_.kernel.name,
                                     scalar::name_of(node.op), weft::name_of(from)));
      made.in_chain = chain_op_of(nodes_, index);
      break;
    }
    case StepKind::constant:
    case StepKind::reduce: throw InternalError(nodes_.kernel.name + ": a step was scheduled twice");
  }
  made.name = keep(std::move(name));
  return made;
}

}  // namespace weft::cpu
