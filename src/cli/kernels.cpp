// weft kernels: writes the kernels of a program of ops or of a model of ONNX as files. docs/kernels.md describes them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <memory>

#include "cli/commands.hpp"
#include "cli/eval_program.hpp"
#include "cli/output.hpp"
#include "cli/shader_languages.hpp"
#include "weft/device.hpp"
#include "weft/error.hpp"
#include "weft/kernels.hpp"
#include "weft/onnx.hpp"

namespace weft::cli {
namespace {

struct KernelsRequest {
  std::filesystem::path program, inputs, out;
  std::string target = "wgsl";
  KernelLimits limits;
};

int write_kernels(const KernelsRequest& request) {
  const KernelLanguage language = shader_language(request.target);
  const io::Arrays arrays = read_arrays(request.inputs);
  ExportedKernels done;
  if (request.program.extension() == ".onnx") {
    NamedTensors given;
    for (const auto& [name, array] : arrays) given[name] = input_tensor(name, array, kCpu, Device::Kind::webgpu);
    done = export_kernels(
        request.out, given, [&](const NamedTensors& inputs) { return onnx::load(request.program).run(inputs); },
        request.limits, language);
  } else {
    const EvalProgram program = EvalProgram::read(request.program);
    std::vector<std::string> names;
    for (const auto& [name, array] : arrays) names.push_back(name);
    done = export_kernels(
        request.out, program.inputs_from(arrays, kCpu, Device::Kind::webgpu),
        [&](const NamedTensors& inputs) { return program.apply(inputs, names, default_device()); }, request.limits,
        language);
  }
  put_foreign(fmt::format("{}: {} kernels in {}, {} dispatches over {} buffers of {:.1f} MB\n", request.out.string(),
                          done.kernels, language.name, done.dispatches, done.buffers,
                          static_cast<double>(done.buffer_bytes) / 1e6));
  return kOk;
}

}  // namespace

void set_up_kernels(CLI::App& app, Action& action) {
  auto request = std::make_shared<KernelsRequest>();
  KernelLimits& limits = request->limits;
  app.footer("The folder gets manifest.json, a file for each kernel, and data.bin; docs/kernels.md describes them.");
  app.add_option("program", request->program, "a program of ops, JSON as for weft eval, or a model, .onnx")->required();
  app.add_option("--inputs", request->inputs,
                 "arrays that it names, .npz or .safetensors: their types, shapes and values");
  app.add_option("--out", request->out, "a new folder")->required();
  app.add_option("--target", request->target, fmt::format("language: {}", fmt::join(shader_languages(), ", ")))
      ->capture_default_str();
  app.add_option("--storage-buffers", limits.storage_buffers, "buffers that one kernel may bind")
      ->capture_default_str();
  app.add_option("--workgroup-bytes", limits.workgroup_bytes, "workgroup memory of a kernel")->capture_default_str();
  app.add_option("--workgroup-threads", limits.workgroup_threads, "most threads of a workgroup")->capture_default_str();
  app.add_option("--binding-bytes", limits.binding_bytes, "most bytes of a buffer that a kernel sees")
      ->capture_default_str();
  app.add_option("--buffer-bytes", limits.buffer_bytes, "most bytes of a buffer")->capture_default_str();
  app.add_option("--subgroup-size", limits.subgroup_size, "threads of a subgroup; 0: kernels use none")
      ->capture_default_str();
  app.callback([&action, request] { action = [request] { return write_kernels(*request); }; });
}

}  // namespace weft::cli
