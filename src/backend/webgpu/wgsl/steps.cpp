#include "backend/webgpu/wgsl/steps.hpp"

#include <fmt/format.h>

#include "tensor/element.hpp"
#include "weft/error.hpp"

namespace weft::webgpu {

using kernel::Level;
using kernel::Step;
using kernel::StepKind;

std::vector<int> operands_of(const Step& step) {
  std::vector<int> operands;
  for (int operand : {step.a, step.b, step.c})
    if (operand >= 0) operands.push_back(operand);
  return operands;
}

std::vector<bool> needed_steps(const kernel::LoopKernel& kernel, std::span<const int> wanted) {
  std::vector<bool> needed(kernel.steps.size(), false);
  for (const int step : wanted) needed[static_cast<std::size_t>(step)] = true;
  for (const kernel::Store& store : kernel.stores) needed[static_cast<std::size_t>(store.value)] = true;
  for (std::size_t s = kernel.steps.size(); s-- > 0;)
    if (needed[s])
      for (int operand : operands_of(kernel.steps[s])) needed[static_cast<std::size_t>(operand)] = true;
  return needed;
}

bool has_long_text(const kernel::LoopKernel& kernel, const std::vector<bool>& needed) {
  constexpr int kLong = 300, kFunction = 10;  // plain steps; those of a function such as exp
  int steps = 0;
  for (std::size_t s = 0; s < kernel.steps.size(); ++s)
    if (needed[s] && kernel.steps[s].kind == StepKind::map)
      steps += scalar::cost_of(kernel.steps[s].op) == scalar::Cost::function ? kFunction : 1;
  return steps > kLong;
}

StepWriter::StepWriter(const kernel::LoopKernel& kernel, Bindings& bindings, Helpers& helpers, Space outer, Space inner,
                       std::span<const int> wanted)
    : kernel_(kernel), bindings_(bindings), helpers_(helpers), outer_(std::move(outer)), inner_(std::move(inner)) {
  std::vector<int> inputs, outputs;
  const std::vector<bool> needed = needed_steps(kernel, wanted);
  std::vector<bool> read(kernel.inputs.size(), false);
  for (std::size_t s = 0; s < kernel.steps.size(); ++s)
    if (needed[s] && kernel.steps[s].operand >= 0) read[static_cast<std::size_t>(kernel.steps[s].operand)] = true;
  for (std::size_t i = 0; i < kernel.inputs.size(); ++i)
    inputs.push_back(read[i] ? bindings.add(kernel.inputs[i], false) : -1);
  for (const kernel::Operand& operand : kernel.outputs) outputs.push_back(bindings.add(operand, true));
  // Bindings start at multiples of 256 bytes, so the offset in the buffer gives the alignment.
  const auto is_vector = [&](const Index& index, const kernel::Operand& operand) {
    return operand.count > 0 && index.is_vector(operand.offset);
  };
  for (std::size_t s = 0; s < kernel.steps.size(); ++s) {
    const Step& step = kernel.steps[s];
    if (!needed[s] || (step.kind != StepKind::load && step.kind != StepKind::gather && step.kind != StepKind::index))
      continue;
    const int handle = step.kind == StepKind::index ? -1 : inputs[static_cast<std::size_t>(step.operand)];
    const Place& place =
        loads_.emplace(static_cast<int>(s), Place{handle, Index(step.view, space_of(step.level))}).first->second;
    if (handle < 0) continue;
    const bool moves_by_fours = step.kind != StepKind::gather || step.axis_stride % 4 == 0;
    if (moves_by_fours && is_vector(place.index, kernel.inputs[static_cast<std::size_t>(step.operand)])) {
      bindings.want_vectors(handle);
      ++vector_accesses_;
    }
  }
  for (std::size_t i = 0; i < kernel.stores.size(); ++i) {
    const kernel::Store& store = kernel.stores[i];
    const int handle = outputs[static_cast<std::size_t>(store.output)];
    const Level level = kernel.steps[static_cast<std::size_t>(store.value)].level;
    const Place& place =
        stores_.emplace(static_cast<int>(i), Place{handle, Index(store.view, space_of(level))}).first->second;
    if (is_vector(place.index, kernel.outputs[static_cast<std::size_t>(store.output)])) {
      bindings.want_vectors(handle);
      ++vector_accesses_;
    } else {
      bindings.forbid_vectors(handle);
    }
  }
}

const std::vector<std::string>& StepWriter::lanes_of(int step, const std::string& slot) const {
  const bool outer = kernel_.steps[static_cast<std::size_t>(step)].level == Level::outer;
  const auto found = values_.find({step, outer ? "" : slot});
  if (found == values_.end())
    throw InternalError(fmt::format("webgpu: kernel {}: step {} is used before it has a value", kernel_.name, step));
  return found->second;
}

Scalar StepWriter::value(int step, int lane, const std::string& slot) const {
  const Step& s = kernel_.steps[static_cast<std::size_t>(step)];
  const std::vector<std::string>& lanes = lanes_of(step, slot);
  Scalar scalar{lanes.size() == 1 ? lanes[0] : lanes[static_cast<std::size_t>(lane)], s.type, {}};
  if (s.kind == StepKind::constant) scalar.constant = s.value;
  return scalar;
}

void StepWriter::define(int step, std::vector<std::string> lanes, const std::string& slot) {
  const bool outer = kernel_.steps[static_cast<std::size_t>(step)].level == Level::outer;
  values_[{step, outer ? "" : slot}] = std::move(lanes);
}

void StepWriter::line(const std::string& text) {
  text_ += indent_;
  std::size_t from = 0;
  for (std::size_t at; (at = text.find(kInnerVariable, from)) != std::string::npos; from = at + 2)
    text_.append(text, from, at - from).append(inner_variable_);
  text_.append(text, from).append("\n");
}

void StepWriter::forget(const std::string& slot) {
  std::erase_if(values_, [&](const auto& entry) { return entry.first.second == slot; });
}

std::string StepWriter::element(const Step& s, const Place& place, int lane, const std::string& shift,
                                const std::string& shift_guard) {
  const kernel::Operand& operand = kernel_.inputs[static_cast<std::size_t>(s.operand)];
  const std::string zero = render_constant(rounded_to(s.type, rounded_to(operand.type, 0)), s.type, helpers_);
  std::string guard = place.index.guard(lane);
  if (!shift_guard.empty()) guard += (guard.empty() ? "" : " && ") + shift_guard;
  if (operand.count == 0 || guard == "false") return zero;
  const Extent base = bindings_.base(place.handle);
  std::string index = place.index.offset(base, lane) + shift;
  // An element outside is not read, even speculatively: the index is replaced by the operand's first.
  if (!guard.empty()) index = fmt::format("select({}u, {}, {})", base, index, guard);
  const std::string loaded =
      render_cast({render_unpacked(operand.type, bindings_.load(place.handle, index), helpers_), operand.type, {}},
                  s.type, helpers_);
  return guard.empty() ? loaded : fmt::format("select({}, {}, {})", zero, loaded, guard);
}

// A gather from an array in workgroup memory.
std::vector<std::string> StepWriter::pick(int step, const Step& s, const std::string& slot) const {
  const kernel::Operand& operand = kernel_.inputs[static_cast<std::size_t>(s.operand)];
  const std::string zero = render_constant(rounded_to(s.type, rounded_to(operand.type, 0)), s.type, helpers_);
  std::vector<std::string> values;
  for (int lane = 0; lane < (is_uniform(s.a, slot) ? 1 : lane_count(s.level)); ++lane) {
    const Scalar position = value(s.a, lane, slot);
    const std::string u = position.type == DType::u32
                              ? position.text
                              : fmt::format("bitcast<u32>({})", render_cast(position, DType::i32, helpers_));
    const std::string inside = fmt::format("{} < {}u", u, s.axis_extent);
    const std::string element = fmt::format("{}[select(0u, {}, {})]", staged_.at(step), u, inside);
    values.push_back(
        fmt::format("select({}, {}, {})", zero, render_cast({element, operand.type, {}}, s.type, helpers_), inside));
  }
  return values;
}

std::vector<std::string> StepWriter::load(int step, const Step& s, const std::string& slot) {
  if (staged_.contains(step)) return pick(step, s, slot);
  const Place& place = loads_.at(step);
  const kernel::Operand& operand = kernel_.inputs[static_cast<std::size_t>(s.operand)];
  const int lanes = lane_count(s.level);
  const bool gathers = s.kind == StepKind::gather;
  const bool uniform_gather = !gathers || is_uniform(s.a, slot);

  // The part of the offset from the gathered axis, and the condition that it is inside.
  const auto shift = [&](int lane) -> std::pair<std::string, std::string> {
    if (!gathers) return {"", ""};
    if (s.axis_extent == 0) return {"", "false"};
    const Scalar position = value(s.a, lane, slot);
    const std::string u = position.type == DType::u32
                              ? position.text
                              : fmt::format("bitcast<u32>({})", render_cast(position, DType::i32, helpers_));
    return {fmt::format(" + {} * {}u", u, static_cast<std::uint32_t>(s.axis_stride)),
            fmt::format("{} < {}u", u, s.axis_extent)};
  };

  const bool regular = place.index.lanes_are_regular() && uniform_gather;
  if (lanes == 1 || (regular && place.index.lane_stride() == 0)) {
    const auto [add, inside] = shift(0);
    return {element(s, place, 0, add, inside)};
  }
  const bool vector = regular && operand.count > 0 && place.index.is_vector(operand.offset) &&
                      bindings_.has_vectors(place.handle) && (!gathers || s.axis_stride % 4 == 0) &&
                      !(gathers && s.axis_extent == 0);
  std::vector<std::string> values;
  if (!vector) {
    for (int lane = 0; lane < lanes; ++lane) {
      const auto [add, inside] = shift(lane);
      values.push_back(element(s, place, lane, add, inside));
    }
    return values;
  }
  auto [add, inside] = shift(0);
  std::string guard = place.index.guard();
  if (!inside.empty()) guard += (guard.empty() ? "" : " && ") + inside;
  const Extent base = bindings_.base(place.handle);
  const std::string zero = render_constant(rounded_to(s.type, rounded_to(operand.type, 0)), s.type, helpers_);
  std::string index = place.index.offset(base) + add;
  if (!guard.empty()) index = fmt::format("select({}u, {}, {})", base, index, guard);
  const std::string name = fmt::format("q{}{}", step, slot);
  const bool halves = operand.type == DType::f16;
  line(fmt::format("let {} = {};", name,
                   halves ? bindings_.load_vec4f(place.handle, fmt::format("({}) >> 2u", index), helpers_)
                          : bindings_.load_vector(place.handle, index)));
  for (int lane = 0; lane < 4; ++lane) {
    const std::string unpacked =
        halves ? fmt::format("{}.{}", name, "xyzw"[lane])
               : render_unpacked(operand.type, bindings_.component(place.handle, name, lane), helpers_);
    std::string v = render_cast({unpacked, operand.type, {}}, s.type, helpers_);
    if (!guard.empty()) v = fmt::format("select({}, {}, {})", zero, v, guard);
    values.push_back(std::move(v));
  }
  return values;
}

void StepWriter::write(int step, const std::string& given_slot) {
  const Step& s = kernel_.steps[static_cast<std::size_t>(step)];
  const std::string slot = s.level == Level::outer ? "" : given_slot;
  if (values_.contains({step, slot})) return;
  for (int operand : operands_of(s)) write(operand, slot);

  std::vector<std::string> lanes;
  switch (s.kind) {
    case StepKind::constant: lanes = {render_constant(s.value, s.type, helpers_)}; break;
    case StepKind::load:
    case StepKind::gather: lanes = load(step, s, slot); break;
    case StepKind::index: {
      const Index& index = loads_.at(step).index;
      const bool same = lane_count(s.level) == 1 || (index.lanes_are_regular() && index.lane_stride() == 0);
      for (int lane = 0; lane < (same ? 1 : 4); ++lane) {
        std::string v =
            render_cast({fmt::format("bitcast<i32>({})", index.offset(0, lane)), DType::i32, {}}, s.type, helpers_);
        if (const std::string guard = index.guard(lane); !guard.empty())
          v = fmt::format("select({}, {}, {})", render_constant(0, s.type, helpers_), v, guard);
        lanes.push_back(std::move(v));
      }
      break;
    }
    case StepKind::map: {
      bool uniform = true;
      for (int operand : operands_of(s)) uniform = uniform && is_uniform(operand, slot);
      for (int lane = 0; lane < (uniform ? 1 : 4); ++lane) {
        const auto operand = [&](int o) { return o < 0 ? Scalar{} : value(o, lane, slot); };
        lanes.push_back(render_op(s.op, s.type, operand(s.a), operand(s.b), operand(s.c), helpers_));
      }
      break;
    }
    case StepKind::reduce:
    case StepKind::accumulator:
      throw InternalError(fmt::format("webgpu: kernel {}: step {} has no value here", kernel_.name, step));
  }
  for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
    const std::string name =
        fmt::format("v{}{}{}", step, slot, lanes.size() == 1 ? std::string() : std::string("_") + "xyzw"[lane]);
    line(fmt::format("let {} = {};", name, lanes[lane]));
    lanes[lane] = name;
  }
  values_[{step, slot}] = std::move(lanes);
}

void StepWriter::write_store(const kernel::Store& store, const std::string& given_slot) {
  const Step& s = kernel_.steps[static_cast<std::size_t>(store.value)];
  const std::string slot = s.level == Level::outer ? "" : given_slot;
  const kernel::Operand& operand = kernel_.outputs[static_cast<std::size_t>(store.output)];
  const Place& place = stores_.at(static_cast<int>(&store - kernel_.stores.data()));
  if (!bindings_.is_bound(place.handle)) return;
  write(store.value, slot);
  const Extent base = bindings_.base(place.handle);
  const auto in_lane = [&](int lane) { return render_cast(value(store.value, lane, slot), operand.type, helpers_); };
  const auto guarded = [&](const std::string& guard, const std::string& statement) {
    if (guard != "false") line(guard.empty() ? statement : fmt::format("if ({}) {{ {} }}", guard, statement));
  };
  const int lanes = lane_count(s.level);
  if (lanes == 4 && place.index.is_vector(operand.offset) && bindings_.has_vectors(place.handle)) {
    // Casts and loads leave values that their type holds.
    const bool are_rounded = s.type != operand.type || s.kind == StepKind::load || s.kind == StepKind::gather ||
                             (s.kind == StepKind::map && s.op == scalar::Op::cast);
    guarded(place.index.guard(),
            bindings_.store_values(place.handle, place.index.offset(base),
                                   {in_lane(0), in_lane(1), in_lane(2), in_lane(3)}, helpers_, are_rounded));
    return;
  }
  for (int lane = 0; lane < lanes; ++lane)
    guarded(place.index.guard(lane), bindings_.store(place.handle, place.index.offset(base, lane),
                                                     render_packed(operand.type, in_lane(lane), helpers_)));
}

}  // namespace weft::webgpu
