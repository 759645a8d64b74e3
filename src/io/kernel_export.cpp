#include <fmt/format.h>

#include <bit>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "backend/webgpu/recorder.hpp"
#include "base/file.hpp"
#include "base/folder_in_making.hpp"
#include "base/quote.hpp"
#include "runtime/devices.hpp"
#include "weft/error.hpp"
#include "weft/kernels.hpp"
#include "weft/session.hpp"

namespace weft {
namespace {

namespace fs = std::filesystem;
using ManifestJson = nlohmann::ordered_json;

constexpr Device kRecorded{Device::Kind::webgpu, 0};

webgpu::AdapterInfo adapter_of(const KernelLimits& limits) {
  const auto check = [](std::uint64_t value, std::uint64_t least, std::uint64_t most, std::string_view name) {
    if (value < least || value > most)
      throw UsageError(fmt::format("export_kernels: {} is {}, and may be {} to {}", name, value, least, most));
  };
  check(limits.storage_buffers, 8, 64, "storage_buffers");
  check(limits.workgroup_bytes, 16 << 10, 1 << 20, "workgroup_bytes");
  check(limits.workgroup_threads, 128, 1024, "workgroup_threads");
  check(limits.binding_bytes, 1 << 20, std::uint64_t{1} << 40, "binding_bytes");
  check(limits.buffer_bytes, limits.binding_bytes, std::uint64_t{1} << 40, "buffer_bytes");
  check(limits.offset_alignment, 16, 256, "offset_alignment");
  check(limits.subgroup_size, 0, 128, "subgroup_size");
  if (!std::has_single_bit(limits.offset_alignment) || (limits.subgroup_size & (limits.subgroup_size - 1)) != 0)
    throw UsageError("export_kernels: offset_alignment and subgroup_size are powers of two");
  webgpu::AdapterInfo adapter;
  adapter.index = 0;
  adapter.name = "kernels as files";
  adapter.type = webgpu::AdapterType::discrete;
  adapter.subgroups = limits.subgroup_size > 0;
  adapter.subgroup_size_min = adapter.subgroup_size_max = limits.subgroup_size;
  adapter.limits.buffer_bytes = limits.buffer_bytes;
  adapter.limits.binding_bytes = limits.binding_bytes;
  adapter.limits.offset_alignment = limits.offset_alignment;
  adapter.limits.storage_buffers = limits.storage_buffers;
  adapter.limits.workgroup_bytes = limits.workgroup_bytes;
  adapter.limits.workgroup_invocations = limits.workgroup_threads;
  adapter.limits.workgroup_size_x = adapter.limits.workgroup_size_y = limits.workgroup_threads;
  adapter.limits.workgroup_size_z = 64;
  return adapter;
}

/// A tensor of the record: its buffer begins with its first element.
ManifestJson tensor_entry(const std::string& name, const Tensor& tensor) {
  ManifestJson shape = ManifestJson::array();
  for (const Extent extent : tensor.shape()) shape.push_back(extent);
  return {{"name", name},
          {"dtype", name_of(tensor.dtype())},
          {"shape", std::move(shape)},
          {"buffer", webgpu::Record::place_of(*runtime::buffer_of(*tensor.node()))}};
}

/// "add.gelu" as a part of a file's name.
std::string file_name(std::size_t number, std::string_view name, std::string_view extension) {
  std::string text = fmt::format("{:04}_", number);
  for (const char c : name.substr(0, 40)) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    text += is_plain ? c : '_';
  }
  return fmt::format("{}.{}", text, extension);
}

void check_is_new(const fs::path& folder) {
  std::error_code error;
  if (fs::exists(folder, error) && (!fs::is_directory(folder, error) || !fs::is_empty(folder, error)))
    throw UsageError(fmt::format("{} exists and is not an empty folder; choose another name", folder.string()));
}

ManifestJson kernels_entry(const fs::path& folder, const webgpu::Record& record, const KernelLanguage& language) {
  ManifestJson kernels = ManifestJson::array();
  for (const webgpu::RecordedShader& shader : record.shaders) {
    const std::string file = "kernels/" + file_name(kernels.size(), shader.name, language.extension);
    std::string text;
    try {
      text = language.translate ? language.translate(shader.text) : shader.text;
    } catch (Error& error) {
      error.add_context(fmt::format("writing the kernel {} as {}", quote(shader.name), language.name));
      throw;
    }
    write_file_atomically(folder / file, text);
    ManifestJson bindings = ManifestJson::array();
    for (std::size_t i = 0; i < shader.read_only.size(); ++i)
      bindings.push_back({{"group", 0}, {"binding", i}, {"access", shader.read_only[i] ? "read" : "read_write"}});
    kernels.push_back({{"name", shader.name},
                       {"file", file},
                       {"entry_point", language.entry_point},
                       {"workgroup_size", {shader.threads, 1, 1}},
                       {"workgroup_bytes", shader.shared_bytes},
                       {"bindings", std::move(bindings)}});
  }
  return kernels;
}

/// The steps in order; what the host writes goes to data.bin.
ManifestJson steps_entry(const fs::path& folder, const webgpu::Record& record) {
  ManifestJson steps = ManifestJson::array();
  write_file_atomically(folder / "data.bin", [&](AtomicFile& data) {
    for (const auto& step : record.steps) {
      if (const auto* write = std::get_if<webgpu::RecordedWrite>(&step)) {
        steps.push_back({{"write",
                          {{"buffer", write->memory},
                           {"offset", write->offset},
                           {"bytes", write->content.size()},
                           {"data_offset", data.bytes_written()}}}});
        data.write(write->content);
        continue;
      }
      const auto& run = std::get<webgpu::RecordedRun>(step);
      ManifestJson buffers = ManifestJson::array();
      for (const webgpu::RecordedRange& range : run.bindings)
        buffers.push_back({{"buffer", range.memory}, {"offset", range.offset}, {"bytes", range.bytes}});
      steps.push_back({{"dispatch",
                        {{"kernel", run.shader},
                         {"workgroups", {run.workgroups.x, run.workgroups.y, run.workgroups.z}},
                         {"buffers", std::move(buffers)}}}});
    }
  });
  return steps;
}

}  // namespace

ExportedKernels export_kernels(const fs::path& folder, const NamedTensors& inputs,
                               const std::function<NamedTensors(const NamedTensors&)>& function,
                               const KernelLimits& limits, const KernelLanguage& language) {
  const auto record = std::make_shared<webgpu::Record>();
  const webgpu::AdapterInfo adapter = adapter_of(limits);
  ManifestJson manifest{{"format", "weft.kernels"}, {"version", 1}, {"language", language.name}, {"data", "data.bin"}};
  manifest["inputs"] = manifest["outputs"] = ManifestJson::array();
  {
    struct Host {
      const std::string* name;
      const Tensor* tensor;
      std::vector<std::byte> elements;
    };
    std::vector<Host> given;  // read in the caller's session
    for (const auto& [name, tensor] : inputs) {
      if (!tensor.defined()) throw UsageError(fmt::format("export_kernels: the input {} has no value", quote(name)));
      Host host{&name, &tensor,
                std::vector<std::byte>(bytes_of(tensor.dtype(), static_cast<std::size_t>(tensor.numel())))};
      tensor.copy_to(host.elements.data(), host.elements.size());
      given.push_back(std::move(host));
    }
    const Session session({.threads = 1, .device = kRecorded});
    const auto entered = session.enter();
    runtime::use_backend(kRecorded, webgpu::make_recorder(adapter, record));
    NamedTensors copies;
    for (const Host& host : given) {
      const Tensor copy = tensor_from_bytes(host.elements.data(), host.tensor->shape(), host.tensor->dtype(), kRecorded)
                              .named(*host.name);
      copies.emplace(*host.name, copy);
      manifest["inputs"].push_back(tensor_entry(*host.name, copy));
    }
    const NamedTensors results = function(copies);
    if (results.empty())
      throw UsageError("export_kernels: the function returns nothing; return what its kernels compute");
    std::vector<Tensor> tensors;
    for (const auto& [name, tensor] : results) {
      if (!tensor.defined() || tensor.device() != kRecorded)
        throw UsageError(
            fmt::format("export_kernels: the result {} is not on the device that records; make it of tensors on the "
                        "default device",
                        quote(name)));
      tensors.push_back(tensor);
    }
    eval(tensors);
    for (Tensor& tensor : tensors)  // a constant is not computed, and has no buffer yet
      if (!tensor.node()->storage)
        tensor = tensor_from_bytes(runtime::constant_bytes(*tensor.node()).data(), tensor.shape(), tensor.dtype(),
                                   kRecorded);
    std::size_t at = 0;
    for (const auto& [name, tensor] : results) manifest["outputs"].push_back(tensor_entry(name, tensors[at++]));
  }
  check_is_new(folder);
  FolderInMaking making(folder);
  FolderInMaking(folder / "kernels").keep();
  ManifestJson buffers = ManifestJson::array();
  ExportedKernels done{.kernels = record->shaders.size(), .buffers = record->memories.size()};
  for (const webgpu::RecordedMemory& memory : record->memories) {
    buffers.push_back({{"bytes", memory.bytes}, {"label", memory.label}});
    done.buffer_bytes += memory.bytes;
  }
  manifest["buffers"] = std::move(buffers);
  manifest["kernels"] = kernels_entry(folder, *record, language);
  manifest["steps"] = steps_entry(folder, *record);
  for (const auto& step : record->steps) done.dispatches += std::holds_alternative<webgpu::RecordedRun>(step);
  write_file_atomically(folder / "manifest.json",
                        manifest.dump(1, ' ', false, ManifestJson::error_handler_t::replace) + "\n");
  making.keep();
  return done;
}

}  // namespace weft
