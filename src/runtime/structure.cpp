#include "runtime/structure.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <unordered_map>

#include "runtime/devices.hpp"
#include "weft/ops.hpp"

namespace weft::runtime {

using graph::Kind;
using graph::Node;
using graph::NodeRef;

namespace {

// Maps node addresses to numbers. It is cleared without touching its slots.
class Numbers {
 public:
  void clear() {
    if (++stamp_ == 0) slots_.assign(slots_.size(), {}), stamp_ = 1;
    used_ = 0;
  }
  // The node's number, or -1.
  std::int64_t find(const Node* node) const {
    for (std::size_t i = first(node);; i = (i + 1) & (slots_.size() - 1)) {
      if (slots_[i].stamp != stamp_) return -1;
      if (slots_[i].node == node) return slots_[i].number;
    }
  }
  void add(const Node* node, std::uint32_t number) {
    if (++used_ * 2 > slots_.size()) grow();
    place({node, number, stamp_});
  }

 private:
  struct Slot {
    const Node* node = nullptr;
    std::uint32_t number = 0, stamp = 0;
  };
  std::size_t first(const Node* node) const {
    return static_cast<std::size_t>((node->id * 0x9e3779b97f4a7c15ull) >> 20) & (slots_.size() - 1);
  }
  void place(Slot slot) {
    std::size_t i = first(slot.node);
    while (slots_[i].stamp == stamp_) i = (i + 1) & (slots_.size() - 1);
    slots_[i] = slot;
  }
  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old)
      if (slot.stamp == stamp_) place(slot);
  }

  std::vector<Slot> slots_ = std::vector<Slot>(256);
  std::size_t used_ = 0;
  std::uint32_t stamp_ = 1;
};

// The constant that the node repeats everywhere, or null. Constants of packed types stay in the structure, because holes need
// whole bytes.
const Node* splat_of(const Node* node) {
  if (is_packed(node->type)) return nullptr;
  while (graph::is_view(node->kind) && node->kind != Kind::pad) node = node->inputs[0].get();
  return node->kind == Kind::constant ? node : nullptr;
}

// The node that is computed for a node: the part of a composite call.
const Node* source_of(const NodeRef& node) { return node->storage ? node.get() : graph::written_out(node.get()); }

bool is_value_leaf(const Node& node) { return node.kind == Kind::data || node.kind == Kind::input || node.storage; }

}  // namespace

void structure_of(std::span<const NodeRef> outputs, std::uint64_t settings, Structure& s) {
  s.key.clear(), s.nodes.clear(), s.leaves.clear(), s.is_leaf.clear(), s.holes.clear(), s.wide_concats.clear();
  thread_local Numbers numbers;
  thread_local std::vector<std::pair<const Node*, std::size_t>> stack;
  thread_local std::vector<char> views_leaf;  // for each node: whether it is a leaf, or views of one
  numbers.clear(), stack.clear(), views_leaf.clear();
  std::uint64_t hash = 0x243f6a8885a308d3ull;
  const auto put = [&](std::uint64_t value) {
    s.key.push_back(value);
    hash = (std::rotl(hash, 23) ^ value) * 0x9e3779b97f4a7c15ull;
  };
  put(settings);
  for (const NodeRef& output : outputs) {
    stack.emplace_back(source_of(output), 0);
    while (!stack.empty()) {
      auto& [node, next] = stack.back();
      if (next == 0 && numbers.find(node) >= 0) {
        stack.pop_back();
        continue;
      }
      // Another thread may compute the node at any time, so the check whether it is a leaf is made once.
      constexpr std::size_t kLeaf = std::numeric_limits<std::size_t>::max();
      if (next == 0 && is_value_leaf(*node)) next = kLeaf;
      const bool leaf = next == kLeaf;
      if (!leaf && next < node->inputs.size()) {
        const Node* input = source_of(node->inputs[next++]);
        if (numbers.find(input) < 0 && !splat_of(input)) stack.emplace_back(input, 0);
        continue;
      }
      const Node* n = node;
      stack.pop_back();
      if (numbers.find(n) >= 0) continue;
      numbers.add(n, static_cast<std::uint32_t>(s.nodes.size()));
      s.nodes.push_back(n);
      s.is_leaf.push_back(leaf);
      put(static_cast<std::uint64_t>(leaf ? Kind::data : n->kind) | static_cast<std::uint64_t>(n->packed) << 7 |
          static_cast<std::uint64_t>(n->type) << 8 | static_cast<std::uint64_t>(n->shape.size()) << 16 |
          static_cast<std::uint64_t>(n->device.kind) << 24 | static_cast<std::uint64_t>(n->device.index) << 32);
      for (Extent e : n->shape) put(static_cast<std::uint64_t>(e));
      if (leaf) {
        views_leaf.push_back(true);
        s.leaves.push_back(n);
        continue;
      }
      put(n->inputs.size());
      bool of_leaf = false;
      for (std::size_t i = 0; i < n->inputs.size(); ++i) {
        const Node* input = source_of(n->inputs[i]);
        if (const Node* constant = splat_of(input)) {
          put(~std::uint64_t{0} - static_cast<std::uint64_t>(input->type));
          put(input->shape.size());
          for (Extent e : input->shape) put(static_cast<std::uint64_t>(e));
          s.holes.push_back({n, static_cast<int>(i), false, std::bit_cast<std::uint64_t>(constant->value)});
          continue;
        }
        const auto number = static_cast<std::size_t>(numbers.find(input));
        put(number);
        of_leaf = views_leaf[number];
      }
      views_leaf.push_back(of_leaf && graph::is_view(n->kind));
      switch (n->kind) {
        // Numbers that distinguish assignments, or aliases of a value, are identity and not structure.
        case Kind::detach:
        case Kind::reshape: break;
        case Kind::constant: put(std::bit_cast<std::uint64_t>(n->value)); break;  // an output; others are holes
        case Kind::slice:
          for (std::size_t i = 0; i < n->ints.size(); i += 2) {
            put(static_cast<std::uint64_t>(n->ints[i + 1]));
            if (of_leaf)
              s.holes.push_back({n, static_cast<int>(i / 2), true, static_cast<std::uint64_t>(n->ints[i])});
            else
              put(static_cast<std::uint64_t>(n->ints[i]));
          }
          break;
        case Kind::concat:
          if (n->inputs.size() > kWideConcat) s.wide_concats.push_back(n);
          [[fallthrough]];
        default:
          for (Extent e : n->ints) put(static_cast<std::uint64_t>(e));
          put(std::bit_cast<std::uint64_t>(n->value));
          put(static_cast<std::uint64_t>(n->reduction));
          put(reinterpret_cast<std::uintptr_t>(n->expression.get()));  // interned, and kept alive together with the key
          put(reinterpret_cast<std::uintptr_t>(n->row));
          put(reinterpret_cast<std::uintptr_t>(n->op));
      }
    }
    put(~static_cast<std::uint64_t>(numbers.find(source_of(output))));
  }
  s.hash = hash;
}

namespace {

// Exponents with which a power becomes another operation that rounds differently.
bool changes_power(double value) { return value == 0 || value == 1 || value == 2 || value == -1; }

// Operations whose results a device may round differently from the compiler.
bool is_rounded_twice(scalar::Op op) {
  using enum scalar::Op;
  return (op >= rsqrt && op <= erf) || op == pow || op == atan2 || op == rem;
}

// How the expression of a map uses operands that are numbers.
struct Uses {
  bool power = false;    // raises to one of them
  bool rounded = false;  // rounds a function of numbers alone
};
Uses uses_of(const scalar::Expression& e, const std::vector<bool>& is_number) {
  Uses uses;
  std::vector<bool> numbers(e.code.size());
  const auto number = [&](int operand) { return operand < 0 || numbers[static_cast<std::size_t>(operand)]; };
  for (std::size_t i = 0; i < e.code.size(); ++i) {
    const scalar::Instruction& in = e.code[i];
    if (in.op == scalar::Op::input) {
      numbers[i] = is_number[static_cast<std::size_t>(in.slot)];
      continue;
    }
    numbers[i] = number(in.a) && number(in.b) && number(in.c);
    uses.rounded |= numbers[i] && in.op != scalar::Op::constant && is_rounded_twice(in.op);
    uses.power |= !numbers[i] && in.op == scalar::Op::pow && number(in.b);
  }
  return uses;
}

}  // namespace

std::vector<Filling> fillings_of(const Structure& structure) {
  // Nodes made only of numbers, in the order of the walk, which goes from inputs to readers.
  std::unordered_map<const Node*, bool> is_number;
  std::unordered_map<const Node*, Uses> uses;
  std::unordered_map<const Node*, std::vector<const Node*>> readers;
  for (std::size_t i = 0; i < structure.nodes.size(); ++i) {
    const Node* node = structure.nodes[i];
    if (structure.is_leaf[i]) continue;
    std::vector<bool> numbers;
    bool all = !node->inputs.empty();
    for (const NodeRef& each : node->inputs) {
      const Node* input = source_of(each);
      readers[input].push_back(node);
      const auto known = is_number.find(input);
      numbers.push_back((known != is_number.end() && known->second) || splat_of(input) != nullptr);
      all = all && numbers.back();
    }
    is_number[node] = all;
    if (node->expression) uses[node] = uses_of(*node->expression, numbers);
  }
  for (std::size_t i = structure.nodes.size(); i-- > 0;) {
    const Node* node = structure.nodes[i];
    if (!is_number[node]) continue;
    for (const Node* reader : readers[node]) {
      uses[node].power |= uses[reader].power;
      uses[node].rounded |= uses[reader].rounded;
    }
  }
  std::vector<Filling> result;
  for (const Structure::Hole& hole : structure.holes) {
    const Node& reader = *hole.reader;
    if (hole.is_start) {
      const bool fits = reader.inputs[0]->shape[hole.at] <= std::numeric_limits<std::int32_t>::max();
      result.push_back(fits && reader.shape.numel() > 0 ? Filling::either : Filling::value);
    } else if (uses[&reader].rounded) {
      result.push_back(Filling::operand);
    } else {
      const bool special = uses[&reader].power && changes_power(std::bit_cast<double>(hole.value));
      result.push_back(special ? Filling::value : Filling::either);
    }
  }
  return result;
}

namespace {

NodeRef element(const NodeRef& operand, std::size_t index, const Shape& shape) {
  const NodeRef one = graph::slice(operand, {static_cast<Extent>(index)}, {1}, {1});
  return graph::expand(graph::reshape(one, {}), shape);
}

// A slice whose starts along some axes come from operands: these axes are gathered.
NodeRef slice_at(const Node& slice, const NodeRef& x, const std::vector<std::pair<int, NodeRef>>& starts) {
  std::vector<Extent> fixed_starts, fixed_steps;
  Shape shape = slice.shape;
  for (std::size_t i = 0; i < slice.ints.size(); i += 2) {
    fixed_starts.push_back(slice.ints[i]);
    fixed_steps.push_back(slice.ints[i + 1]);
  }
  for (const auto& [axis, start] : starts) {
    fixed_starts[static_cast<std::size_t>(axis)] = 0;
    fixed_steps[static_cast<std::size_t>(axis)] = 1;
    shape[axis] = x->shape[axis];
  }
  NodeRef value = graph::slice(x, fixed_starts, fixed_steps, shape);
  for (const auto& [axis, start] : starts) {
    shape[axis] = slice.shape[axis];
    const auto step = static_cast<double>(slice.ints[static_cast<std::size_t>(2 * axis + 1)]);
    const Tensor place =
        Tensor(graph::iota(shape, axis, DType::i32, x->device)) * step + Tensor(graph::expand(start, shape));
    value = graph::gather(value, place.node(), axis);
  }
  return value;
}

}  // namespace

Blueprint blueprint_of(std::span<const NodeRef> outputs, const Structure& s, const std::vector<bool>& is_operand) {
  Blueprint result;
  std::unordered_map<const Node*, NodeRef> made;
  std::unordered_map<const Node*, bool> is_leaf;
  for (std::size_t i = 0; i < s.nodes.size(); ++i) is_leaf[s.nodes[i]] = s.is_leaf[i];

  const auto type_of = [](const Structure::Hole& hole) {
    return hole.is_start ? DType::i32 : hole.reader->inputs[static_cast<std::size_t>(hole.at)]->type;
  };
  for (std::size_t h = 0; h < s.holes.size(); ++h) {
    if (!is_operand[h]) continue;
    const DType type = type_of(s.holes[h]);
    auto at =
        std::find_if(result.operands.begin(), result.operands.end(), [&](const auto& o) { return o.type == type; });
    if (at == result.operands.end()) at = result.operands.insert(at, {type, {}, nullptr});
    at->holes.push_back(h);
  }
  const Device device = outputs.empty() ? kCpu : outputs[0]->device;  // a compiled function may have no results
  struct Filled {
    std::vector<std::pair<int, NodeRef>> inputs, starts;
  };
  std::unordered_map<const Node*, Filled> filled;
  for (Blueprint::Operand& operand : result.operands) {
    operand.node = graph::make_node({.kind = Kind::data,
                                     .type = operand.type,
                                     .shape = {static_cast<Extent>(operand.holes.size())},
                                     .device = device});
    for (std::size_t i = 0; i < operand.holes.size(); ++i) {
      const Structure::Hole& hole = s.holes[operand.holes[i]];
      if (hole.is_start)
        filled[hole.reader].starts.emplace_back(hole.at, element(operand.node, i, {}));
      else
        filled[hole.reader].inputs.emplace_back(
            hole.at, element(operand.node, i, hole.reader->inputs[static_cast<std::size_t>(hole.at)]->shape));
    }
  }

  // In the order in which the user made them, so that they run in that order.
  std::vector<const Node*> order = s.nodes;
  std::sort(order.begin(), order.end(), [](const Node* a, const Node* b) { return a->id < b->id; });
  for (const Node* node : order) {
    NodeRef& copy = made[node];
    if (is_leaf.at(node)) {
      const bool named = !node->name.empty() || node->kind == Kind::data;
      copy = graph::make_node({.kind = Kind::data,
                               .type = node->type,
                               .shape = node->shape,
                               .device = node->device,
                               .name = named ? node->name : std::string(graph::name_of(node->kind)),
                               .packed = node->packed},
                              node->where);
      copy->label = node->label;
      continue;
    }
    const auto holes = filled.find(node);
    graph::NodeFields fields = *node;
    for (std::size_t i = 0; i < fields.inputs.size(); ++i) {
      NodeRef& input = fields.inputs[i];
      const Node* source = source_of(input);
      const Node* constant = splat_of(source);
      input =
          constant ? graph::constant(constant->value, source->type, source->shape, source->device) : made.at(source);
    }
    if (holes != filled.end())
      for (const auto& [i, value] : holes->second.inputs) fields.inputs[static_cast<std::size_t>(i)] = value;
    if (holes != filled.end() && !holes->second.starts.empty())
      copy = slice_at(*node, fields.inputs[0], holes->second.starts);
    else
      copy = graph::make_node(std::move(fields), node->where);
    if (copy->label.empty()) copy->label = node->label;
  }
  for (const NodeRef& output : outputs) result.outputs.push_back(made.at(source_of(output)));
  for (const Node* leaf : s.leaves) result.leaves.push_back(made.at(leaf));
  return result;
}

std::vector<std::byte> operand_bytes(const Blueprint::Operand& operand, const Structure& structure) {
  std::vector<std::byte> bytes;
  for (const std::size_t h : operand.holes) {
    const Structure::Hole& hole = structure.holes[h];
    append_element(
        bytes, operand.type,
        hole.is_start ? static_cast<double>(static_cast<std::int64_t>(hole.value)) : std::bit_cast<double>(hole.value));
  }
  return bytes;
}

}  // namespace weft::runtime
