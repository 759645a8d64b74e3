#include "cli/eval_program.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/quote.hpp"
#include "catalogue/op_values.hpp"
#include "cli/op_json.hpp"
#include "io/safetensors.hpp"
#include "ops/names.hpp"
#include "weft/error.hpp"
#include "weft/grad.hpp"

namespace weft::cli {
namespace {

// ---- The program as written

void check_keys(const Json& object, std::string_view what, std::initializer_list<std::string_view> known) {
  if (!object.is_object()) throw UsageError(fmt::format("{} is not an object {{...}}", what));
  for (const auto& [key, value] : object.items())
    if (std::find(known.begin(), known.end(), key) == known.end())
      throw UsageError(fmt::format("{}: unknown key {}; known are {}", what, quote(key), fmt::join(known, ", ")));
}

// A name, or a list of names.
std::vector<std::string> names_in(const Json& value, std::string_view what) {
  std::vector<std::string> names;
  const Json list = value.is_array() ? value : Json::array({value});
  for (const Json& name : list) {
    if (!name.is_string() || name.get_ref<const std::string&>().empty())
      throw UsageError(fmt::format("{} is not a name or a list of names", what));
    names.push_back(name.get<std::string>());
  }
  return names;
}

const Json& member(const Json& object, std::string_view what, std::string_view key) {
  const auto found = object.find(key);
  if (found == object.end()) throw UsageError(fmt::format("{}: {} is missing", what, quote(key)));
  return *found;
}

void check_operand(const Json& operand) {
  if (!operand.is_string() && !operand.is_number() && !operand.is_null())
    throw UsageError("an input is neither a name, nor a number, nor null (for an optional one left out)");
}

// A list in the op's order, or an object by the names of its inputs.
std::vector<Json> operands_in(const Json& inputs, const graph::OpRow& op) {
  std::vector<Json> operands;
  if (inputs.is_array()) {
    operands.assign(inputs.begin(), inputs.end());
  } else if (inputs.is_object()) {
    operands.resize(op.inputs.size());
    for (const auto& [name, value] : inputs.items()) {
      const auto found =
          std::find_if(op.inputs.begin(), op.inputs.end(), [&](const graph::InputSpec& i) { return i.name == name; });
      if (found == op.inputs.end()) {
        std::vector<std::string> known;
        for (const graph::InputSpec& input : op.inputs) known.push_back(input.name);
        throw UsageError(
            fmt::format("{}: unknown input {}; it takes {}", op.name, quote(name), fmt::join(known, ", ")));
      }
      if (found->repeated) throw UsageError(fmt::format("{}: give its inputs as a list", op.name));
      operands[static_cast<std::size_t>(found - op.inputs.begin())] = value;
    }
  } else if (inputs.is_string()) {
    operands.push_back(inputs);
  } else {
    throw UsageError("\"inputs\" is neither a list nor an object");
  }
  for (const Json& operand : operands) check_operand(operand);
  return operands;
}

EvalProgram::Step step_of(const Json& json) {
  check_keys(json, "the step", {"op", "inputs", "attributes", "output", "outputs", "comment"});
  const Json& name = member(json, "the step", "op");
  if (!name.is_string()) throw UsageError("\"op\" is not a name");
  EvalProgram::Step step{.op = &graph::op_row(name.get<std::string>())};
  if (json.contains("inputs")) step.inputs = operands_in(json["inputs"], *step.op);
  if (json.contains("attributes")) step.attributes = json["attributes"];
  if (json.contains("output") == json.contains("outputs"))
    throw UsageError(fmt::format("{}: give \"output\", the name of the result", step.op->name));
  step.outputs = names_in(json.contains("output") ? json["output"] : json["outputs"], "\"output\"");
  if (step.outputs.size() != 1 && !step.op->several_outputs)
    throw UsageError(
        fmt::format("{}: {} output names are given; it has one output", step.op->name, step.outputs.size()));
  return step;
}

EvalProgram::Gradient gradient_of(const Json& json) {
  check_keys(json, "the gradient", {"of", "weight", "with_respect_to", "outputs", "output", "comment"});
  const auto of = names_in(member(json, "the gradient", "of"), "\"of\"");
  if (of.size() != 1) throw UsageError("\"of\" is not one name");
  EvalProgram::Gradient gradient{.of = of[0]};
  if (json.contains("weight") && !json["weight"].is_null()) {
    const auto weight = names_in(json["weight"], "\"weight\"");
    if (weight.size() != 1) throw UsageError("\"weight\" is not one name");
    gradient.weight = weight[0];
  }
  gradient.with_respect_to = names_in(member(json, "the gradient", "with_respect_to"), "\"with_respect_to\"");
  if (gradient.with_respect_to.empty()) throw UsageError("\"with_respect_to\" names nothing");
  if (json.contains("output") && json.contains("outputs"))
    throw UsageError("both \"output\" and \"outputs\" are given");
  if (json.contains("outputs") || json.contains("output")) {
    gradient.outputs = names_in(json.contains("outputs") ? json["outputs"] : json["output"], "\"outputs\"");
  } else {
    for (const std::string& name : gradient.with_respect_to) gradient.outputs.push_back("grad_" + name);
  }
  if (gradient.outputs.size() != gradient.with_respect_to.size())
    throw UsageError(fmt::format("{} names in \"outputs\" for {} in \"with_respect_to\"; give one for each",
                                 gradient.outputs.size(), gradient.with_respect_to.size()));
  return gradient;
}

// Calls f(i, entry) for each entry of a list, and says in errors which one it was.
template <class F>
void for_each_entry(const Json& list, std::string_view what, F f) {
  if (!list.is_array()) throw UsageError(fmt::format("\"{}s\" is not a list", what));
  for (std::size_t i = 0; i < list.size(); ++i) {
    try {
      f(list[i]);
    } catch (Error& error) {
      error.add_context(fmt::format("reading {} {} of the program", what, i + 1));
      throw;
    }
  }
}

EvalProgram program_of(const Json& json) {
  check_keys(json, "the program", {"steps", "gradients", "outputs", "comment"});
  EvalProgram program;
  for_each_entry(member(json, "the program", "steps"), "step",
                 [&](const Json& j) { program.steps.push_back(step_of(j)); });
  if (json.contains("gradients"))
    for_each_entry(json["gradients"], "gradient", [&](const Json& j) { program.gradients.push_back(gradient_of(j)); });
  if (json.contains("outputs")) {
    program.results = names_in(json["outputs"], "\"outputs\" of the program");
  } else {
    for (const EvalProgram::Step& s : program.steps)
      program.results.insert(program.results.end(), s.outputs.begin(), s.outputs.end());
    for (const EvalProgram::Gradient& g : program.gradients)
      program.results.insert(program.results.end(), g.outputs.begin(), g.outputs.end());
  }
  return program;
}

// ---- Its run

// Builds values by name. The inputs of a step or gradient are built before it, in whatever order the program lists them.
class Runner {
 public:
  Runner(const EvalProgram& program, const NamedTensors& inputs, std::span<const std::string> unused, Device device)
      : program_(program),
        unused_(unused),
        device_(device),
        state_(program.steps.size() + program.gradients.size()),
        values_(inputs.begin(), inputs.end()) {
    for (std::size_t i = 0; i < state_.size(); ++i)
      for (const std::string& name : outputs_of(i)) {
        if (inputs.contains(name))
          throw UsageError(fmt::format("{} names an output, and an array of --inputs", quote(name)));
        if (!maker_.emplace(name, i).second) throw UsageError(fmt::format("{} names two outputs", quote(name)));
      }
  }

  NamedTensors run() {
    // In the order of the program, which is also the order of random draws.
    for (std::size_t i = 0; i < state_.size(); ++i) make(i);
    NamedTensors results;
    for (const std::string& name : program_.results) results.insert_or_assign(name, value(name));
    return results;
  }

 private:
  enum class State { waiting, begun, made };

  const std::vector<std::string>& outputs_of(std::size_t i) const {
    return i < program_.steps.size() ? program_.steps[i].outputs
                                     : program_.gradients[i - program_.steps.size()].outputs;
  }

  std::string title(std::size_t i) const {
    if (i < program_.steps.size())
      return fmt::format("step {} ({} -> {})", i + 1, program_.steps[i].op->name, quote(outputs_of(i)[0]));
    const std::size_t g = i - program_.steps.size();
    return fmt::format("gradient {} (of {})", g + 1, quote(program_.gradients[g].of));
  }

  const Tensor& value(const std::string& name) {
    if (const auto found = values_.find(name); found != values_.end()) return found->second;
    const auto maker = maker_.find(name);
    if (maker == maker_.end()) {
      std::vector<std::string_view> known(unused_.begin(), unused_.end());
      for (const auto& [input, tensor] : values_) known.push_back(input);
      for (const auto& [output, i] : maker_) known.push_back(output);
      const std::string_view nearest = nearest_name(name, known);
      throw UsageError(fmt::format("{} is neither an array of --inputs nor an output of a step or gradient{}",
                                   quote(name),
                                   nearest.empty() ? "" : fmt::format("; did you mean {}?", quote(nearest))));
    }
    make(maker->second);  // of a result; what steps read is made before them
    return values_.at(name);
  }

  // The names that entry `i` reads, in reading order.
  std::vector<std::string_view> names_read_by(std::size_t i) const {
    std::vector<std::string_view> names;
    if (i < program_.steps.size()) {
      for (const Json& input : program_.steps[i].inputs)
        if (input.is_string()) names.push_back(input.get_ref<const std::string&>());
      return names;
    }
    const EvalProgram::Gradient& gradient = program_.gradients[i - program_.steps.size()];
    names.push_back(gradient.of);
    if (!gradient.weight.empty()) names.push_back(gradient.weight);
    names.insert(names.end(), gradient.with_respect_to.begin(), gradient.with_respect_to.end());
    return names;
  }

  // Makes the inputs of entry `last`, then the entry. Keeps its own stack, because programs may be longer than the call stack.
  void make(std::size_t last) {
    struct Visit {
      std::size_t entry;
      std::vector<std::string_view> names;
      std::size_t next = 0;
    };
    std::vector<Visit> visits;
    const auto visit = [&](std::size_t i) {
      if (state_[i] == State::made) return;
      if (state_[i] == State::begun) throw UsageError(fmt::format("{} needs its own result", title(i)));
      state_[i] = State::begun;
      visits.push_back({i, names_read_by(i)});
    };
    visit(last);
    while (!visits.empty()) {
      Visit& top = visits.back();
      if (top.next < top.names.size()) {
        const auto maker = maker_.find(top.names[top.next++]);
        if (maker != maker_.end()) visit(maker->second);  // `top` may be gone now
        continue;
      }
      const std::size_t entry = top.entry;
      visits.pop_back();
      compute(entry);
    }
  }

  // Its inputs have been made.
  void compute(std::size_t i) {
    try {
      std::vector<Tensor> results = i < program_.steps.size()
                                        ? applied(program_.steps[i])
                                        : differentiated(program_.gradients[i - program_.steps.size()]);
      const std::vector<std::string>& names = outputs_of(i);
      if (results.size() != names.size())
        throw UsageError(fmt::format("{} output names are given for {} outputs", names.size(), results.size()));
      for (std::size_t k = 0; k < names.size(); ++k) values_[names[k]] = results[k];
    } catch (Error& error) {
      error.add_context(fmt::format("making {}", title(i)));
      throw;
    }
    state_[i] = State::made;
  }

  std::vector<Tensor> applied(const EvalProgram::Step& step) {
    std::vector<Tensor> inputs(step.inputs.size());
    std::optional<DType> common;
    for (std::size_t k = 0; k < inputs.size(); ++k)
      if (step.inputs[k].is_string()) {
        inputs[k] = value(step.inputs[k].get<std::string>());
        common = common ? promote(*common, inputs[k].dtype()) : inputs[k].dtype();
      }
    for (std::size_t k = 0; k < inputs.size(); ++k)
      if (step.inputs[k].is_number())
        inputs[k] = operations::number_operand(step.inputs[k].get<double>(), common, device_);
    return graph::apply(*step.op, std::move(inputs), attributes_from(*step.op, step.attributes));
  }

  std::vector<Tensor> differentiated(const EvalProgram::Gradient& gradient) {
    const Tensor of = value(gradient.of);
    const Tensor weight = gradient.weight.empty() ? ones_like(of) : value(gradient.weight);
    std::vector<Tensor> inputs;
    for (const std::string& name : gradient.with_respect_to) {
      inputs.push_back(value(name));
      if (!is_float(inputs.back().dtype()))
        throw DTypeError(fmt::format("{} is {}; there are gradients with respect to floats only", quote(name),
                                     name_of(inputs.back().dtype())));
    }
    return grad(of, inputs, weight);
  }

  const EvalProgram& program_;
  std::span<const std::string> unused_;
  Device device_;
  std::vector<State> state_;  // of steps, then of gradients
  std::map<std::string, std::size_t, std::less<>> maker_;
  std::map<std::string, Tensor> values_;  // of inputs, and what was made
};

// NumPy makes i64 of whole numbers. GPUs have none, so there they become i32 where all values fit.
io::Array for_gpu(const io::Array& array) {
  if (array.dtype != DType::i64) return array;
  std::vector<std::int32_t> narrow;
  for (const std::int64_t value : array.values<std::int64_t>()) {
    if (value != static_cast<std::int32_t>(value))
      throw DTypeError(fmt::format("{} is not an i32, and GPUs do not hold i64; compute on the CPU", value));
    narrow.push_back(static_cast<std::int32_t>(value));
  }
  return io::Array::of(array.shape, narrow);
}

}  // namespace

Tensor input_tensor(const std::string& name, const io::Array& array, Device device, Device::Kind computed_on) {
  try {
    const io::Array a = computed_on == Device::Kind::webgpu ? for_gpu(array) : array;
    return tensor_from_bytes(a.data.data(), a.shape, a.dtype, device).named(name);
  } catch (Error& error) {
    error.add_context(fmt::format("reading input {}", quote(name)));
    throw;
  }
}

EvalProgram EvalProgram::read(const std::filesystem::path& path) {
  try {
    return program_of(read_json_file(path));
  } catch (UsageError& error) {
    error.add_context(fmt::format("reading {}", path.string()));
    throw;
  }
}

NamedTensors EvalProgram::inputs_from(const io::Arrays& arrays, Device device, Device::Kind computed_on) const {
  std::set<std::string> names(results.begin(), results.end());
  for (const Step& step : steps) {
    names.insert(step.outputs.begin(), step.outputs.end());
    for (const Json& input : step.inputs)
      if (input.is_string()) names.insert(input.get<std::string>());
  }
  for (const Gradient& gradient : gradients) {
    names.insert({gradient.of, gradient.weight});
    names.insert(gradient.with_respect_to.begin(), gradient.with_respect_to.end());
    names.insert(gradient.outputs.begin(), gradient.outputs.end());
  }
  NamedTensors inputs;
  for (const auto& [name, array] : arrays) {
    if (names.contains(name)) inputs[name] = input_tensor(name, array, device, computed_on);
  }
  return inputs;
}

NamedTensors EvalProgram::apply(const NamedTensors& inputs, std::span<const std::string> unused, Device device) const {
  return Runner(*this, inputs, unused, device).run();
}

io::Arrays read_arrays(const std::filesystem::path& path) {
  if (path.empty()) return {};
  if (path.extension() != ".safetensors") return io::read_npz(path);
  const io::SafetensorsFile file = io::SafetensorsFile::open(path);
  io::Arrays arrays;
  for (const io::TensorView& tensor : file.tensors()) arrays.emplace(tensor.name, io::to_array(tensor, file.source()));
  return arrays;
}

}  // namespace weft::cli
