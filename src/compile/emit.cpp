#include "compile/emit.hpp"

#include <fmt/format.h>

#include "base/hash.hpp"
#include "graph/op.hpp"

namespace weft::compiler {

using graph::Kind;
using graph::Node;
using kernel::Level;
using kernel::Step;
using kernel::StepKind;

std::string title(const Node& node) {
  return fmt::format("{} {} {}{}",
                     !node.label.empty()  ? "\"" + node.label + "\""
                     : !node.name.empty() ? node.name
                                          : std::string(graph::name_of(node.kind)),
                     name_of(node.type), node.shape.to_string(),
                     node.within.op ? fmt::format(" of {}", node.within.op->name) : "");
}

namespace {

std::vector<Extent> key_of(const Access& access) {
  std::vector<Extent> key;
  auto put = [&](const Affine& a) {
    key.push_back(a.base);
    key.insert(key.end(), a.coefficients.begin(), a.coefficients.end());
  };
  for (const Affine& a : access.dims) put(a);
  for (const Mask& m : access.masks) {
    put(m.value);
    key.push_back(m.lo);
    key.push_back(m.hi);
  }
  return key;
}

std::uint64_t hash_of(const Step& s) {
  Hasher h;
  h.add(static_cast<std::uint64_t>(s.kind) | static_cast<std::uint64_t>(s.type) << 8 |
        static_cast<std::uint64_t>(s.level) << 16 | static_cast<std::uint64_t>(s.op) << 24 |
        static_cast<std::uint64_t>(s.reduction) << 40);
  h.add(static_cast<std::uint64_t>(s.a + 1) | static_cast<std::uint64_t>(s.b + 1) << 20 |
        static_cast<std::uint64_t>(s.c + 1) << 40);
  h.add(static_cast<std::uint64_t>(s.operand + 1));
  h.add_double(s.value);
  for (Extent e : s.view.extents) h.add(static_cast<std::uint64_t>(e));
  for (Extent e : s.view.strides) h.add(static_cast<std::uint64_t>(e));
  h.add(static_cast<std::uint64_t>(s.view.offset));
  return h.digest();
}

bool same_step(Step a, Step b) {
  if (std::bit_cast<std::uint64_t>(a.value) != std::bit_cast<std::uint64_t>(b.value)) return false;
  a.value = b.value = 0;  // NaN constants compare by bits
  return a == b;
}

}  // namespace

Level Emitter::level_of(const Access& access) const {
  auto reaches_inner = [&](const Affine& a) {
    for (std::size_t f = static_cast<std::size_t>(frame_.outer_rank); f < frame_.extents.size(); ++f)
      if (a.coefficients[f] != 0 && frame_.extents[f] != 1) return true;
    return false;
  };
  for (const Affine& a : access.dims)
    if (reaches_inner(a)) return Level::inner;
  for (const Mask& m : access.masks)
    if (reaches_inner(m.value)) return Level::inner;
  return Level::outer;
}

int Emitter::add(Step step) {
  auto& steps = built_.kernel.steps;
  if (step.kind == StepKind::map) {  // identities that are exact for every value
    auto constant_is = [&](int i, double value) {
      return i >= 0 && steps[static_cast<std::size_t>(i)].kind == StepKind::constant &&
             steps[static_cast<std::size_t>(i)].value == value;
    };
    if (step.op == scalar::Op::mul && constant_is(step.b, 1)) return step.a;
    if (step.op == scalar::Op::mul && constant_is(step.a, 1)) return step.b;
    if (step.op == scalar::Op::div && constant_is(step.b, 1)) return step.a;
    if (step.op == scalar::Op::cast && steps[static_cast<std::size_t>(step.a)].type == step.type) return step.a;
  }
  const std::uint64_t hash = hash_of(step);
  for (std::size_t i = 0; i < steps.size(); ++i)
    if (hashes_[i] == hash && same_step(steps[i], step)) return static_cast<int>(i);
  steps.push_back(std::move(step));
  hashes_.push_back(hash);
  return static_cast<int>(steps.size()) - 1;
}

int Emitter::input_operand(const Node* owner) {
  auto [it, is_new] = operands_.try_emplace(owner, static_cast<int>(built_.inputs.size()));
  if (is_new) {
    built_.inputs.push_back(owner);
    built_.kernel.inputs.push_back({.type = owner->type, .count = owner->shape.numel()});
  }
  return it->second;
}

kernel::View Emitter::view_of(const Access& access, const Place& place, Level level, const Node* blame) const {
  const int rank = level == Level::outer ? frame_.outer_rank : static_cast<int>(frame_.extents.size());
  auto view = to_view(access, place.strides, frame_.extents, rank);
  if (!view) throw MustMaterialize{blame};
  view->offset += place.offset;
  return *view;
}

int Emitter::emit(const Node* node, const Access& access) {
  if (node->shape.numel() == 0) return add({.kind = StepKind::constant, .type = node->type});
  if (is_leaf(*node)) return emit_load(node, access, context_.place(node));
  if (node->kind == Kind::reshape && in_memory(node->inputs[0].get())) {
    // In contiguous memory the linear index is the address, whatever the extents.
    const Node* base = node->inputs[0].get();
    Place place = context_.place(base);
    if (place.strides == contiguous_strides(base->shape)) {
      const Access linear{{linear_of(access.dims, contiguous_strides(node->shape), frame_.extents.size())},
                          access.masks};
      place.strides = {1};
      return emit_load(base, linear, place);
    }
  }
  if (node->kind == Kind::pad && !access.masks.empty()) {
    try {
      return emit(node->inputs[0].get(), through_view(*node, access, frame_.extents));
    } catch (MustMaterialize& blocked) {
      // No bounds describe the masks of these two pads together, so the inner one goes to memory.
      if (in_memory(blocked.node)) throw MustMaterialize{node};
      throw;
    }
  }
  if (graph::is_view(node->kind)) return emit(node->inputs[0].get(), through_view(*node, access, frame_.extents));
  const bool inlined = context_.inlined && context_.inlined->contains(node);
  const bool member = context_.members && context_.members->contains(node);
  auto unmasked = [&] {
    if (!access.masks.empty()) throw MustMaterialize{node};
  };
  auto key = std::pair(node, key_of(access));
  if (auto it = memo_.find(key); it != memo_.end()) return it->second;
  if (member && !inlined) {
    auto [it, is_new] = access_of_member_.try_emplace(node, key.second);
    if (!is_new && it->second != key.second) recomputes_ = true;
  }
  int result;
  if (node->kind == Kind::constant) {
    unmasked();
    result = add({.kind = StepKind::constant, .type = node->type, .value = node->value});
  } else if (node->kind == Kind::iota) {
    unmasked();
    Access coordinate{{access.dims[static_cast<std::size_t>(node->ints[0])]}, {}};
    const Level level = level_of(coordinate);
    Place unit{nullptr, 0, {1}};
    result = add(
        {.kind = StepKind::index, .type = node->type, .level = level, .view = view_of(coordinate, unit, level, node)});
  } else if (!member && !inlined) {
    result = emit_load(node, access, context_.place(node));
  } else {
    unmasked();
    switch (node->kind) {
      case Kind::map: result = emit_map(node, access); break;
      case Kind::reduce: result = emit_reduce(node, access); break;
      case Kind::gather: result = emit_gather(node, access); break;
      case Kind::call:
      case Kind::matmul: {
        if (node != context_.product) throw MustMaterialize{node};
        const Affine linear = linear_of(access.dims, contiguous_strides(node->shape), frame_.extents.size());
        if (linear.base != 0 || !(linear == frame_linear(frame_.extents, 0, static_cast<int>(frame_.extents.size())))) {
          // Extents of 1 may have any coefficient.
          Affine expected = frame_linear(frame_.extents, 0, static_cast<int>(frame_.extents.size())), actual = linear;
          for (std::size_t f = 0; f < frame_.extents.size(); ++f)
            if (frame_.extents[f] == 1) expected.coefficients[f] = actual.coefficients[f] = 0;
          if (!(expected == actual)) throw MustMaterialize{node};
        }
        result = add({.kind = StepKind::accumulator, .type = node->type});
        break;
      }
      default: throw MustMaterialize{node};
    }
  }
  memo_.emplace(std::move(key), result);
  return result;
}

bool Emitter::in_memory(const Node* node) const {
  if (is_leaf(*node)) return true;
  if (graph::is_view(node->kind) || node->kind == Kind::constant || node->kind == Kind::iota) return false;
  return !(context_.members && context_.members->contains(node)) &&
         !(context_.inlined && context_.inlined->contains(node));
}

int Emitter::emit_load(const Node* node, const Access& access, const Place& place) {
  const Level level = level_of(access);
  kernel::View view = view_of(access, place, level, node);
  return add({.kind = StepKind::load,
              .type = node->type,
              .level = level,
              .operand = input_operand(place.owner),
              .view = std::move(view)});
}

int Emitter::emit_map(const Node* node, const Access& access) {
  std::vector<int> values;
  for (const auto& instruction : node->expression->code) {
    if (instruction.op == scalar::Op::input) {
      values.push_back(emit(node->inputs[static_cast<std::size_t>(instruction.slot)].get(), access));
      continue;
    }
    if (instruction.op == scalar::Op::constant) {
      values.push_back(add({.kind = StepKind::constant, .type = instruction.type, .value = instruction.value}));
      continue;
    }
    Step step{.kind = StepKind::map, .type = instruction.type, .op = instruction.op};
    auto operand = [&](int i) { return i < 0 ? -1 : values[static_cast<std::size_t>(i)]; };
    step.a = operand(instruction.a);
    step.b = operand(instruction.b);
    step.c = operand(instruction.c);
    for (int i : {step.a, step.b, step.c})
      if (i >= 0 && built_.kernel.steps[static_cast<std::size_t>(i)].level == Level::inner) step.level = Level::inner;
    values.push_back(add(std::move(step)));
  }
  return values.back();
}

int Emitter::emit_reduce(const Node* node, const Access& access) {
  if (level_of(access) == Level::inner) throw MustMaterialize{node};
  const Node* x = node->inputs[0].get();
  Extent count = 1;
  for (Extent a : node->ints) count *= x->shape[static_cast<int>(a)];
  if (count != frame_.inner()) throw MustMaterialize{node};
  Shape reduced;
  for (Extent a : node->ints) reduced.push_back(x->shape[static_cast<int>(a)]);
  const int rank = static_cast<int>(frame_.extents.size());
  const std::vector<Affine> positions =
      count == 0 ? std::vector<Affine>(reduced.size(), Affine{0, std::vector<Extent>(frame_.extents.size(), 0)})
                 : split_linear(frame_linear(frame_.extents, frame_.outer_rank, rank), reduced, frame_.extents, node);
  Access inner;
  std::size_t kept = 0, at = 0;
  for (int d = 0; d < x->shape.rank(); ++d) {
    const bool is_reduced = at < node->ints.size() && node->ints[at] == d;
    inner.dims.push_back(is_reduced ? positions[at++] : access.dims[kept++]);
  }
  int value = emit(x, inner);
  // A value that is constant along the reduced axes is still reduced over them.
  if (built_.kernel.steps[static_cast<std::size_t>(value)].level == Level::outer) value = raised(value);
  return add(
      {.kind = StepKind::reduce, .type = node->type, .level = Level::outer, .reduction = node->reduction, .a = value});
}

// The outer-level value at inner level: select(i == i, value, value) with i the inner index, in a type that devices compute in.
int Emitter::raised(int value) {
  const DType type = built_.kernel.steps[static_cast<std::size_t>(value)].type;
  const DType computed = is_narrow(type) ? element(type).compute : type;
  const auto cast = [&](int from, DType to, Level level) {
    return add({.kind = StepKind::map, .type = to, .level = level, .op = scalar::Op::cast, .a = from});
  };
  if (computed != type) value = cast(value, computed, Level::outer);
  const int i =
      add({.kind = StepKind::index,
           .type = DType::i32,
           .level = Level::inner,
           .view = {.extents = {frame_.outer() * frame_.inner()}, .strides = {0}, .offset = 0, .bounds = {}}});
  const int same =
      add({.kind = StepKind::map, .type = DType::boolean, .level = Level::inner, .op = scalar::Op::eq, .a = i, .b = i});
  const int chosen = add({.kind = StepKind::map,
                          .type = computed,
                          .level = Level::inner,
                          .op = scalar::Op::select,
                          .a = same,
                          .b = value,
                          .c = value});
  return computed == type ? chosen : cast(chosen, type, Level::inner);
}

int Emitter::emit_gather(const Node* node, const Access& access) {
  const int axis = static_cast<int>(node->ints[0]);
  const Node* x = node->inputs[0].get();
  const int index = emit(node->inputs[1].get(), access);
  // The gathered axis is an additional frame axis while views of x are followed; its stride multiplies the index.
  std::vector<Extent> extents = frame_.extents;
  extents.push_back(x->shape[axis]);
  Access source = access;
  for (Affine& a : source.dims) a.coefficients.push_back(0);
  Affine& gathered = source.dims[static_cast<std::size_t>(axis)];
  gathered = Affine{0, std::vector<Extent>(extents.size(), 0)};
  gathered.coefficients.back() = 1;
  const Node* base = x;
  try {
    while (graph::is_view(base->kind) && !is_leaf(*base)) {
      source = through_view(*base, source, extents);
      base = base->inputs[0].get();
    }
  } catch (SplitFrame& split) {
    if (split.axis == static_cast<int>(frame_.extents.size())) throw MustMaterialize{x};
    throw;
  }
  if (!in_memory(base) || !source.masks.empty()) throw MustMaterialize{x};
  const Place place = context_.place(base);
  const Affine linear = linear_of(source.dims, place.strides, extents.size());
  Access static_part = source;
  for (Affine& a : static_part.dims) a.coefficients.pop_back();
  Step step{.kind = StepKind::gather, .type = node->type, .a = index, .operand = input_operand(place.owner)};
  step.level = level_of(static_part);
  if (built_.kernel.steps[static_cast<std::size_t>(index)].level == Level::inner) step.level = Level::inner;
  step.view = view_of(static_part, place, step.level, x);
  step.axis_stride = linear.coefficients.back();
  step.axis_extent = x->shape[axis];
  return add(std::move(step));
}

void Emitter::store(const Node* node, const Access& access) {
  int value = emit(node, access);
  const Level level = level_of(access);
  auto& steps = built_.kernel.steps;
  if (steps[static_cast<std::size_t>(value)].level == Level::inner && level == Level::outer)
    throw MustMaterialize{node};
  const Place place = context_.place(node);
  // A value of lower level than its access (a splat) is also stored through the access's view.
  kernel::View view = view_of(access, place, level, node);
  if (steps[static_cast<std::size_t>(value)].level == Level::outer && level == Level::inner) value = raised(value);
  int output = -1;
  for (std::size_t i = 0; i < built_.outputs.size(); ++i)
    if (built_.outputs[i] == place.owner) output = static_cast<int>(i);
  if (output < 0) {
    output = static_cast<int>(built_.outputs.size());
    built_.outputs.push_back(place.owner);
    built_.kernel.outputs.push_back({.type = place.owner->type, .count = place.owner->shape.numel()});
  }
  built_.kernel.stores.push_back({value, output, std::move(view)});
}

BuiltLoop Emitter::finish(std::string name) {
  kernel::LoopKernel& k = built_.kernel;
  k.name = std::move(name);
  k.outer = frame_.outer();
  k.inner = frame_.inner();
  // Removes steps that an identity made unused, and operands that only they read.
  std::vector<bool> used(k.steps.size(), false);
  for (const kernel::Store& store : k.stores) used[static_cast<std::size_t>(store.value)] = true;
  for (std::size_t i = k.steps.size(); i-- > 0;)
    if (used[i])
      for (int operand : {k.steps[i].a, k.steps[i].b, k.steps[i].c})
        if (operand >= 0) used[static_cast<std::size_t>(operand)] = true;
  std::vector<int> step_at(k.steps.size(), -1), operand_at(k.inputs.size(), -1);
  std::vector<Step> steps;
  std::vector<kernel::Operand> inputs;
  std::vector<const Node*> owners;
  steps.reserve(k.steps.size());
  inputs.reserve(k.inputs.size());
  owners.reserve(k.inputs.size());
  auto moved = [&](int i) { return i < 0 ? -1 : step_at[static_cast<std::size_t>(i)]; };
  for (std::size_t i = 0; i < k.steps.size(); ++i) {
    if (!used[i]) continue;
    Step step = std::move(k.steps[i]);
    step.a = moved(step.a);
    step.b = moved(step.b);
    step.c = moved(step.c);
    if (step.operand >= 0) {
      int& at = operand_at[static_cast<std::size_t>(step.operand)];
      if (at < 0) {
        at = static_cast<int>(inputs.size());
        inputs.push_back(k.inputs[static_cast<std::size_t>(step.operand)]);
        owners.push_back(built_.inputs[static_cast<std::size_t>(step.operand)]);
      }
      step.operand = at;
    }
    step_at[i] = static_cast<int>(steps.size());
    steps.push_back(std::move(step));
  }
  for (kernel::Store& store : k.stores) store.value = moved(store.value);
  k.steps = std::move(steps);
  k.inputs = std::move(inputs);
  built_.inputs = std::move(owners);
  return std::move(built_);
}

}  // namespace weft::compiler
