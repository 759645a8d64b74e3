// weft eval: runs a small program of ops written as JSON, or a model of ONNX, on arrays from a file.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>

#include "cli/commands.hpp"
#include "cli/eval_program.hpp"
#include "cli/language_model.hpp"
#include "cli/output.hpp"
#include "io/safetensors.hpp"
#include "weft/compile.hpp"
#include "weft/device.hpp"
#include "weft/error.hpp"
#include "weft/onnx.hpp"

namespace weft::cli {
namespace {

namespace fs = std::filesystem;

struct EvalRequest {
  fs::path program, inputs, out;
  std::string device = "auto";
  int repeat = 0;
};

void write_arrays(const fs::path& path, const io::Arrays& arrays) {
  if (path.extension() != ".safetensors") return io::write_npz(path, arrays);
  std::vector<io::TensorView> views;
  for (const auto& [name, array] : arrays)
    views.push_back({name, std::string(io::safetensors_dtype(array.dtype)), array.shape, array.data});
  io::write_safetensors(path, views);
}

io::Array array_from(const Tensor& t) {
  io::Array array{t.dtype(), t.shape(),
                  std::vector<std::byte>(bytes_of(t.dtype(), static_cast<std::size_t>(t.numel())))};
  t.copy_to(array.data.data(), array.data.size());
  return array;
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
  const io::Arrays inputs = read_arrays(request.inputs);
  set_default_device(parse_device(request.device));
  const onnx::Model model = onnx::load(model_path(request.program));
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
    results.insert_or_assign(port.name, array_from(t));
  }
  write_arrays(request.out, results);
  return kOk;
}

int evaluate(const EvalRequest& request) {
  if (request.program.extension() == ".onnx") return evaluate_model(request);
  if (request.repeat > 0) throw UsageError("weft eval: --repeat is for models, .onnx");
  const EvalProgram program = EvalProgram::read(request.program);
  const io::Arrays arrays = read_arrays(request.inputs);
  set_default_device(parse_device(request.device));
  const Device device = default_device();
  std::vector<std::string> names;
  for (const auto& [name, array] : arrays) names.push_back(name);
  const NamedTensors results = program.apply(program.inputs_from(arrays, device, device.kind), names, device);
  std::vector<Tensor> tensors;
  for (const auto& [name, tensor] : results) tensors.push_back(tensor);
  eval(tensors);
  io::Arrays made;
  for (const auto& [name, tensor] : results) made.emplace(name, array_from(tensor));
  write_arrays(request.out, made);
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
