// Control flow where conditions are known, and sequences of tensors.
#include <fmt/format.h>

#include <algorithm>

#include "onnx/apply.hpp"

namespace weft::onnx {
namespace {

using A = Application;

template <class F>
Value changed(const Value& v, F f) {
  Value result{.tensor = {}, .known = {}, .trains = v.trains};
  if (v.tensor.defined()) result.tensor = f(v.tensor);
  if (v.known.defined()) result.known = f(v.known);
  return result;
}
// One value of several: on the device, and on the CPU where all are known.
template <class F>
Value joined(const Run& run, const std::vector<Value>& parts, F f) {
  Value result;
  bool known = true;
  for (const Value& v : parts) {
    known = known && v.known.defined();
    result.trains = result.trains || v.trains;
  }
  std::vector<Tensor> tensors;
  for (const Value& v : parts) tensors.push_back(known ? v.known : run.on_device(v));
  (known ? result.known : result.tensor) = f(tensors);
  if (known && result.trains) {
    tensors.clear();
    for (const Value& v : parts) tensors.push_back(run.on_device(v));
    result.tensor = f(tensors);
  }
  return result;
}
Value known_integer(Extent value) { return known_integers({value}, {}); }
Value known_bool(bool value) { return {.tensor = {}, .known = full({}, value, DType::boolean, kCpu)}; }
Value sequence(std::vector<Value> values) {
  return {.tensor = {}, .known = {}, .sequence = std::make_shared<const std::vector<Value>>(std::move(values))};
}

// The element of a value that decides; it must be known while the graph is built.
bool decided(A& a, const Value& v) {
  Tensor x = v.known;
  if (!x.defined())
    a.usage_error("its condition depends on an argument of a function being compiled, or on a tensor on a device");
  x = cast(x, DType::boolean);
  if (x.numel() != 1) a.usage_error("its condition has more than one element");
  return read_elements<bool>(x)[0];
}

void choose_branch(A& a) {
  const std::vector<Extent> condition = a.integers_of(0);
  if (condition.size() != 1) a.usage_error("its condition has more than one element");
  std::vector<Value> results =
      a.run().apply_graph(a.graph(condition[0] ? "then_branch" : "else_branch"), a.scope(), {});
  if (results.size() < a.output_count()) a.usage_error("the branch has fewer outputs than the node");
  for (std::size_t i = 0; i < a.output_count(); ++i) a.give_value(i, std::move(results[i]));
}

// The scan outputs of a loop without steps: empty tensors of the shapes that the body would give.
void give_empty_scans(A& a, const GraphProto& body, const std::vector<Value>& carried) {
  std::vector<Value> inputs{known_integer(0), known_bool(true)};
  inputs.insert(inputs.end(), carried.begin(), carried.end());
  std::vector<Value> outputs;
  try {
    outputs = a.run().apply_graph(body, a.scope(), std::move(inputs));
  } catch (const Error&) {
    a.usage_error("the loop makes no step, and its body does not tell the shapes of its scan outputs");
  }
  for (std::size_t s = carried.size(); s + 1 < outputs.size(); ++s)
    a.give_value(s, joined(a.run(), {outputs[1 + s]},
                           [](const std::vector<Tensor>& t) { return narrow(stack(t, 0), 0, 0, 0); }));
}

void loop(A& a) {
  const GraphProto& body = a.graph("body");
  const Extent most = a.has(0) ? a.integer_of(0) : INT64_MAX;
  bool goes_on = !a.has(1) || a.integer_of(1) != 0;
  std::vector<Value> carried;
  for (std::size_t i = 2; i < a.input_count(); ++i) carried.push_back(a.value(i));
  const std::size_t states = carried.size();
  if (body.outputs.size() < states + 1 || body.outputs.size() - 1 != a.output_count())
    a.usage_error("the outputs of its body do not fit");
  std::vector<std::vector<Value>> scans(body.outputs.size() - 1 - states);
  for (Extent i = 0; i < most && goes_on; ++i) {
    if (i == kMaxSteps) a.usage_error(fmt::format("it takes more than {} steps", kMaxSteps));
    std::vector<Value> inputs{known_integer(i), known_bool(goes_on)};
    inputs.insert(inputs.end(), carried.begin(), carried.end());
    std::vector<Value> outputs = a.run().apply_graph(body, a.scope(), std::move(inputs));
    for (std::size_t s = 0; s < states; ++s) carried[s] = outputs[1 + s];
    for (std::size_t s = 0; s < scans.size(); ++s) scans[s].push_back(outputs[1 + states + s]);
    if (!outputs[0].known.defined() && outputs[0].tensor.defined()) {
      // Not known beforehand, but it can be computed where no function is being compiled.
      a.run().settle(outputs[0].tensor);
      outputs[0].known = outputs[0].tensor.to(kCpu);
    }
    goes_on = decided(a, outputs[0]);
  }
  for (std::size_t s = 0; s < states; ++s) a.give_value(s, carried[s]);
  if (!scans.empty() && scans[0].empty()) return give_empty_scans(a, body, carried);
  for (std::size_t s = 0; s < scans.size(); ++s) {
    a.give_value(states + s, joined(a.run(), scans[s], [](const std::vector<Tensor>& t) { return stack(t, 0); }));
  }
}

void scan(A& a) {
  if (a.opset() < 9) a.usage_error("Scan of opset 8");
  const GraphProto& body = a.graph("body");
  const Extent inputs = a.integer("num_scan_inputs");
  if (inputs < 1 || inputs > static_cast<Extent>(a.input_count())) a.usage_error("num_scan_inputs does not fit");
  const std::size_t states = a.input_count() - static_cast<std::size_t>(inputs), outputs = a.output_count();
  if (body.outputs.size() != outputs || outputs < states) a.usage_error("the outputs of its body do not fit");
  const auto list = [&](std::string_view name, std::size_t count) {
    std::vector<Extent> values = a.integers(name, std::vector<Extent>(count, 0));
    if (values.size() != count) a.usage_error(fmt::format("{} does not have {} numbers", name, count));
    return values;
  };
  const auto in_axes = list("scan_input_axes", static_cast<std::size_t>(inputs));
  const auto in_directions = list("scan_input_directions", static_cast<std::size_t>(inputs));
  const auto out_axes = list("scan_output_axes", outputs - states);
  const auto out_directions = list("scan_output_directions", outputs - states);
  std::vector<Value> carried;
  for (std::size_t i = 0; i < states; ++i) carried.push_back(a.value(i));
  Extent steps = -1;
  for (Extent i = 0; i < inputs; ++i) {
    const std::size_t at = states + static_cast<std::size_t>(i);
    const Tensor& x = a[at];
    const Extent n = x.dim(a.axis(in_axes[static_cast<std::size_t>(i)], x.rank()));
    if (steps >= 0 && n != steps) a.shape_error("scan inputs differ in length");
    steps = n;
  }
  if (steps < 1 || steps > kMaxSteps) a.shape_error(fmt::format("{} steps; one to {} are possible", steps, kMaxSteps));
  std::vector<std::vector<Value>> made(outputs - states);
  for (Extent t = 0; t < steps; ++t) {
    std::vector<Value> given = carried;
    for (std::size_t i = 0; i < static_cast<std::size_t>(inputs); ++i) {
      const Extent at = in_directions[i] ? steps - 1 - t : t;
      given.push_back(
          changed(a.value(states + i), [&](const Tensor& x) { return select(x, a.axis(in_axes[i], x.rank()), at); }));
    }
    std::vector<Value> results = a.run().apply_graph(body, a.scope(), std::move(given));
    for (std::size_t i = 0; i < states; ++i) carried[i] = results[i];
    for (std::size_t i = 0; i < made.size(); ++i) made[i].push_back(results[states + i]);
  }
  for (std::size_t i = 0; i < states; ++i) a.give_value(i, carried[i]);
  for (std::size_t i = 0; i < made.size(); ++i) {
    if (out_directions[i]) std::reverse(made[i].begin(), made[i].end());
    a.give_value(states + i, joined(a.run(), made[i], [&](const std::vector<Tensor>& t) {
                   return stack(t, a.axis(out_axes[i], t[0].rank() + 1));
                 }));
  }
}

// ---- Sequences -------------------------------------------------------------------------------------------------------------

const std::vector<Value>& sequence_of(A& a, std::size_t i) {
  const Value& v = a.value(i);
  if (!v.sequence) a.usage_error(fmt::format("its input {} is not a sequence", i));
  return *v.sequence;
}
std::size_t place_in(A& a, std::size_t input, std::size_t size) {
  const Extent at = a.integer_of(input), n = static_cast<Extent>(size);
  if (at < -n || at >= n) a.usage_error(fmt::format("position {} is outside of a sequence of {}", at, n));
  return static_cast<std::size_t>(at < 0 ? at + n : at);
}
void construct_sequence(A& a) {
  std::vector<Value> values;
  for (std::size_t i = 0; i < a.input_count(); ++i) values.push_back(a.value(i));
  a.give_value(0, sequence(std::move(values)));
}
void empty_sequence(A& a) { a.give_value(0, sequence({})); }
void insert_in_sequence(A& a) {
  std::vector<Value> values = sequence_of(a, 0);
  const auto n = static_cast<Extent>(values.size());
  const Extent given = a.has(2) ? a.integer_of(2) : n, at = given < 0 ? given + n : given;
  if (at < 0 || at > n) a.usage_error(fmt::format("position {} is outside of a sequence of {}", given, n));
  values.insert(values.begin() + at, a.value(1));
  a.give_value(0, sequence(std::move(values)));
}
void erase_from_sequence(A& a) {
  std::vector<Value> values = sequence_of(a, 0);
  if (values.empty()) a.usage_error("the sequence is empty");
  const std::size_t at = a.has(1) ? place_in(a, 1, values.size()) : values.size() - 1;
  values.erase(values.begin() + static_cast<std::ptrdiff_t>(at));
  a.give_value(0, sequence(std::move(values)));
}
void element_of_sequence(A& a) {
  const std::vector<Value>& values = sequence_of(a, 0);
  a.give_value(0, values[place_in(a, 1, values.size())]);
}
void length_of_sequence(A& a) { a.give_value(0, known_integer(static_cast<Extent>(sequence_of(a, 0).size()))); }
void concat_sequence(A& a) {
  const std::vector<Value>& values = sequence_of(a, 0);
  if (values.empty()) a.usage_error("the sequence is empty");
  const Extent axis = a.integer("axis");
  const bool fresh = a.flag("new_axis", false);
  a.give_value(0, joined(a.run(), values, [&](const std::vector<Tensor>& t) {
                 return fresh ? stack(t, a.axis(axis, t[0].rank() + 1)) : concat(t, a.axis(axis, t[0].rank()));
               }));
}
void split_to_sequence(A& a) {
  const Value& v = a.value(0);
  const int axis = a.axis(a.integer("axis", 0), a[0].rank());
  const Extent n = a[0].dim(axis);
  std::vector<Extent> lengths = a.has(1) ? a.integers_of(1) : std::vector<Extent>{1};
  const bool drops = !a.has(1) && !a.flag("keepdims", true);
  if (lengths.size() == 1 && (!a.has(1) || a[1].rank() == 0)) {
    const Extent each = lengths[0];
    if (each < 1 || n / each > kMaxSteps) a.usage_error("the length of a part is out of range");
    lengths.clear();
    for (Extent at = 0; at < n; at += each) lengths.push_back(std::min(each, n - at));
  }
  std::vector<Value> values;
  Extent at = 0;
  for (const Extent length : lengths) {
    if (length < 0 || length > n - at) a.shape_error("the parts do not fit the axis");
    values.push_back(changed(v, [&](const Tensor& x) {
      const Tensor part = narrow(x, axis, at, length);
      return drops ? squeeze(part, axis) : part;
    }));
    at += length;
  }
  a.give_value(0, sequence(std::move(values)));
}
void optional_of(A& a) { a.give_value(0, a.value(0)); }
void has_element(A& a) { a.give_value(0, known_bool(a.has(0))); }

constexpr auto kValues = Operator::Mode::values;
constexpr Operator kControlOperators[] = {
    {"If", choose_branch, kValues},
    {"Loop", loop, kValues},
    {"Scan", scan, kValues},
    {"SequenceConstruct", construct_sequence, kValues},
    {"SequenceEmpty", empty_sequence, kValues},
    {"SequenceInsert", insert_in_sequence, kValues},
    {"SequenceErase", erase_from_sequence, kValues},
    {"SequenceAt", element_of_sequence, kValues},
    {"SequenceLength", length_of_sequence, kValues},
    {"ConcatFromSequence", concat_sequence, kValues},
    {"SplitToSequence", split_to_sequence, kValues},
    {"Optional", optional_of, kValues},
    {"OptionalGetElement", optional_of, kValues},
    {"OptionalHasElement", has_element, kValues},
};

}  // namespace

std::span<const Operator> control_operators() { return kControlOperators; }

}  // namespace weft::onnx
