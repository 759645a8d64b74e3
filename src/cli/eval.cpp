// weft eval: runs a small program of ops written as JSON, or a model of ONNX, on arrays from a file. docs/eval.md describes
// the format.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>
#include <set>

#include "base/quote.hpp"
#include "catalogue/op_values.hpp"
#include "cli/commands.hpp"
#include "cli/op_json.hpp"
#include "cli/output.hpp"
#include "io/npz.hpp"
#include "io/safetensors.hpp"
#include "ops/names.hpp"
#include "weft/compile.hpp"
#include "weft/device.hpp"
#include "weft/error.hpp"
#include "weft/grad.hpp"
#include "weft/onnx.hpp"

namespace weft::cli {
namespace {

namespace fs = std::filesystem;

// ---- The program as written -------------------------------------------------------------------------------------------

struct EvalStep {
  const graph::OpRow* op = nullptr;
  std::vector<Json> inputs;  // a name, a number, or null for an optional input left out
  Json attributes = Json::object();
  std::vector<std::string> outputs;
};
struct Gradient {
  std::string of, weight;  // weight: "" for ones
  std::vector<std::string> with_respect_to, outputs;
};
struct EvalProgram {
  std::vector<EvalStep> steps;
  std::vector<Gradient> gradients;
  std::vector<std::string> results;  // names to write
};

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

EvalStep step_of(const Json& json) {
  check_keys(json, "the step", {"op", "inputs", "attributes", "output", "outputs", "comment"});
  const Json& name = member(json, "the step", "op");
  if (!name.is_string()) throw UsageError("\"op\" is not a name");
  EvalStep step{.op = &graph::op_row(name.get<std::string>())};
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

Gradient gradient_of(const Json& json) {
  check_keys(json, "the gradient", {"of", "weight", "with_respect_to", "outputs", "output", "comment"});
  const auto of = names_in(member(json, "the gradient", "of"), "\"of\"");
  if (of.size() != 1) throw UsageError("\"of\" is not one name");
  Gradient gradient{.of = of[0]};
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
    for (const EvalStep& s : program.steps)
      program.results.insert(program.results.end(), s.outputs.begin(), s.outputs.end());
    for (const Gradient& g : program.gradients)
      program.results.insert(program.results.end(), g.outputs.begin(), g.outputs.end());
  }
  return program;
}

// ---- Its run ----------------------------------------------------------------------------------------------------------

// Builds values by name. The inputs of a step or gradient are built before it, in whatever order the program lists them.
class Runner {
 public:
  Runner(const EvalProgram& program, const io::Arrays& inputs, Device device)
      : program_(program), inputs_(inputs), device_(device), state_(program.steps.size() + program.gradients.size()) {
    for (std::size_t i = 0; i < state_.size(); ++i)
      for (const std::string& name : outputs_of(i)) {
        if (inputs_.contains(name))
          throw UsageError(fmt::format("{} names an output, and an array of --inputs", quote(name)));
        if (!maker_.emplace(name, i).second) throw UsageError(fmt::format("{} names two outputs", quote(name)));
      }
  }

  io::Arrays run() {
    // In the order of the program, which is also the order of random draws.
    for (std::size_t i = 0; i < state_.size(); ++i) make(i);
    std::vector<Tensor> tensors;
    for (const std::string& name : program_.results) tensors.push_back(value(name));
    eval(tensors);
    io::Arrays results;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const Tensor& t = tensors[i];
      io::Array array{t.dtype(), t.shape(),
                      std::vector<std::byte>(bytes_of(t.dtype(), static_cast<std::size_t>(t.numel())))};
      t.copy_to(array.data.data(), array.data.size());
      results.insert_or_assign(program_.results[i], std::move(array));
    }
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
    if (const auto array = inputs_.find(name); array != inputs_.end()) {
      try {
        const io::Array a = for_device(array->second);
        return values_[name] = tensor_from_bytes(a.data.data(), a.shape, a.dtype, device_).named(name);
      } catch (Error& error) {
        error.add_context(fmt::format("reading input {}", quote(name)));
        throw;
      }
    }
    const auto maker = maker_.find(name);
    if (maker == maker_.end()) {
      std::vector<std::string_view> known;
      for (const auto& [input, array] : inputs_) known.push_back(input);
      for (const auto& [output, i] : maker_) known.push_back(output);
      const std::string_view nearest = nearest_name(name, known);
      throw UsageError(fmt::format("{} is neither an array of --inputs nor an output of a step or gradient{}",
                                   quote(name),
                                   nearest.empty() ? "" : fmt::format("; did you mean {}?", quote(nearest))));
    }
    make(maker->second);  // of a result; what steps read is made before them
    return values_.at(name);
  }

  // NumPy makes i64 of whole numbers. GPUs have none, so there they become i32 where all values fit.
  io::Array for_device(const io::Array& array) const {
    if (array.dtype != DType::i64 || device_.kind != Device::Kind::webgpu) return array;
    std::vector<std::int32_t> narrow;
    for (const std::int64_t value : array.values<std::int64_t>()) {
      if (value != static_cast<std::int32_t>(value))
        throw DTypeError(
            fmt::format("{} is not an i32, and {} does not hold i64; compute on the CPU", value, device_.to_string()));
      narrow.push_back(static_cast<std::int32_t>(value));
    }
    return io::Array::of(array.shape, narrow);
  }

  // The names that entry `i` reads, in reading order.
  std::vector<std::string_view> names_read_by(std::size_t i) const {
    std::vector<std::string_view> names;
    if (i < program_.steps.size()) {
      for (const Json& input : program_.steps[i].inputs)
        if (input.is_string()) names.push_back(input.get_ref<const std::string&>());
      return names;
    }
    const Gradient& gradient = program_.gradients[i - program_.steps.size()];
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

  std::vector<Tensor> applied(const EvalStep& step) {
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

  std::vector<Tensor> differentiated(const Gradient& gradient) {
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
  const io::Arrays& inputs_;
  Device device_;
  std::vector<State> state_;  // of steps, then of gradients
  std::map<std::string, std::size_t, std::less<>> maker_;
  std::map<std::string, Tensor> values_;
};

struct EvalRequest {
  fs::path program, inputs, out;
  std::string device = "auto";
  int repeat = 0;
};

bool is_safetensors(const fs::path& path) { return path.extension() == ".safetensors"; }

io::Arrays read_arrays(const fs::path& path) {
  if (!is_safetensors(path)) return io::read_npz(path);
  const io::SafetensorsFile file = io::SafetensorsFile::open(path);
  io::Arrays arrays;
  for (const io::TensorView& tensor : file.tensors()) arrays.emplace(tensor.name, io::to_array(tensor, file.source()));
  return arrays;
}

void write_arrays(const fs::path& path, const io::Arrays& arrays) {
  if (!is_safetensors(path)) return io::write_npz(path, arrays);
  std::vector<io::TensorView> views;
  for (const auto& [name, array] : arrays)
    views.push_back({name, std::string(io::safetensors_dtype(array.dtype)), array.shape, array.data});
  io::write_safetensors(path, views);
}

// The time of one run of the compiled model, without loading and tracing.
void time_model(const onnx::Model& model, const NamedTensors& given, int repeats) {
  std::vector<Tensor> inputs;
  for (const onnx::Port& port : model.inputs()) inputs.push_back(given.at(port.name).to(model.device()));
  Compiled run([&](std::span<const Tensor> in) { return model(in); });
  std::vector<double> times;
  for (int i = 0; i <= repeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    eval(run(inputs));
    synchronize(model.device());
    times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  times.erase(times.begin());  // traces and compiles
  std::sort(times.begin(), times.end());
  put_foreign(fmt::format("{} runs: median {:.3f} ms, least {:.3f} ms\n", repeats, times[times.size() / 2], times[0]));
}

// A model of ONNX: its inputs and outputs by their names in the file.
int evaluate_model(const EvalRequest& request) {
  const io::Arrays inputs = request.inputs.empty() ? io::Arrays{} : read_arrays(request.inputs);
  set_default_device(parse_device(request.device));
  const onnx::Model model = onnx::load(request.program);
  NamedTensors given;
  for (const auto& [name, array] : inputs)
    given[name] = tensor_from_bytes(array.data.data(), array.shape, array.dtype, kCpu).named(name);
  io::Arrays results;
  const NamedTensors made = model.run(given);
  if (request.repeat > 0) time_model(model, given, request.repeat);
  for (const onnx::Port& port : model.outputs()) {
    // On devices without i64 and f64 results are narrower than the file declares.
    Tensor t = made.at(port.name).to(kCpu);
    if (port.type && t.dtype() != *port.type) t = cast(t, *port.type);
    io::Array array{t.dtype(), t.shape(),
                    std::vector<std::byte>(bytes_of(t.dtype(), static_cast<std::size_t>(t.numel())))};
    t.copy_to(array.data.data(), array.data.size());
    results.insert_or_assign(port.name, std::move(array));
  }
  write_arrays(request.out, results);
  return kOk;
}

int evaluate(const EvalRequest& request) {
  if (request.program.extension() == ".onnx") return evaluate_model(request);
  if (request.repeat > 0) throw UsageError("weft eval: --repeat is for models, .onnx");
  EvalProgram program;
  try {
    program = program_of(read_json_file(request.program));
  } catch (UsageError& error) {
    error.add_context(fmt::format("reading {}", request.program.string()));
    throw;
  }
  const io::Arrays inputs = request.inputs.empty() ? io::Arrays{} : read_arrays(request.inputs);
  set_default_device(parse_device(request.device));
  write_arrays(request.out, Runner(program, inputs, default_device()).run());
  return kOk;
}

}  // namespace

void set_up_eval(CLI::App& app, Action& action) {
  auto request = std::make_shared<EvalRequest>();
  app.footer(
      "The program: {\"steps\": [{\"op\": \"softmax\", \"inputs\": [\"x\"], \"attributes\": {\"axis\": -1}, "
      "\"output\": \"y\"}],\n"
      "\"gradients\": [{\"of\": \"y\", \"weight\": \"w\", \"with_respect_to\": [\"x\"], \"outputs\": [\"dx\"]}]}.\n"
      "docs/eval.md describes it; `weft ops list` lists the ops.");
  app.add_option("program", request->program, "the program, JSON, or a model, .onnx")->required();
  app.add_option("--inputs", request->inputs, "arrays that it names, .npz or .safetensors");
  app.add_option("--out", request->out, "file for the results, .npz or .safetensors")->required();
  app.add_option("--repeat", request->repeat, "times the compiled model with so many runs; for .onnx")
      ->check(CLI::Range(0, 100000));
  app.add_option("--device", request->device, "auto, cpu, webgpu or webgpu:INDEX")->capture_default_str();
  app.callback([&action, request] { action = [request] { return evaluate(*request); }; });
}

}  // namespace weft::cli
