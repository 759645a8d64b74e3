#include "backend/webgpu/pipeline.hpp"

#include <fmt/format.h>

#include <sstream>

#include "weft/error.hpp"

namespace weft::webgpu {
namespace {

std::string key_of(const Shader& shader) {
  std::string key;
  for (const bool read_only : shader.read_only) key += read_only ? 'r' : 'w';
  return fmt::format("{} {} {}", key, shader.immediate_bytes, shader.text);
}

std::string numbered(const std::string& text) {
  std::string result, line;
  std::istringstream lines(text);
  for (int number = 1; std::getline(lines, line); ++number) result += fmt::format("{:4} | {}\n", number, line);
  return result;
}

Pending create_async(Device& device, const WGPUComputePipelineDescriptor& descriptor) {
  const Library& api = library();
  auto outcome = std::make_shared<Outcome>();
  if (!api.is_dawn) {  // wgpu-native aborts on the asynchronous call
    ErrorScope scope(device, WGPUErrorFilter_Validation);
    outcome->object = api.DeviceCreateComputePipeline(device.handle(), &descriptor);
    outcome->message = scope.text();
    outcome->ok = outcome->object && outcome->message.empty();
    outcome->done = true;
    return {{}, outcome};
  }
  WGPUCreateComputePipelineAsyncCallbackInfo callback{};
  callback.mode = device.callback_mode();
  callback.userdata1 = Outcome::give(outcome);
  callback.callback = [](WGPUCreatePipelineAsyncStatus status, WGPUComputePipeline pipeline, WGPUStringView message,
                         void* user, void*) {
    const auto given = Outcome::take(user);
    given->object = pipeline;
    given->ok = status == WGPUCreatePipelineAsyncStatus_Success;
    given->message = to_string(message);
    given->done = true;
  };
  return {api.DeviceCreateComputePipelineAsync(device.handle(), &descriptor, callback), outcome};
}

}  // namespace

void PipelineCache::check_limits(const Shader& shader) const {
  const Limits& limits = device_.info().limits;
  if (shader.read_only.size() > limits.storage_buffers)
    throw DeviceError(fmt::format("{}: shader \"{}\" binds {} buffers, and this device takes at most {}",
                                  device_.name(), shader.name, shader.read_only.size(), limits.storage_buffers));
  if (shader.immediate_bytes > limits.immediate_bytes)
    throw DeviceError(fmt::format("{}: shader \"{}\" has {} bytes of immediates, and this device takes at most {}",
                                  device_.name(), shader.name, shader.immediate_bytes, limits.immediate_bytes));
}

PipelineCache::Layout& PipelineCache::layout_of(const std::vector<bool>& read_only) {
  const auto [position, is_new] = layouts_.try_emplace(read_only);
  if (!is_new) return position->second;
  std::vector<WGPUBindGroupLayoutEntry> entries(read_only.size());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    entries[i] = {};
    entries[i].binding = static_cast<std::uint32_t>(i);
    entries[i].visibility = WGPUShaderStage_Compute;
    entries[i].buffer.type = read_only[i] ? WGPUBufferBindingType_ReadOnlyStorage : WGPUBufferBindingType_Storage;
  }
  WGPUBindGroupLayoutDescriptor descriptor{};
  descriptor.label = view_of("");
  descriptor.entries = entries.data();
  descriptor.entryCount = entries.size();
  position->second.group = BindGroupLayoutHandle(library().DeviceCreateBindGroupLayout(device_.handle(), &descriptor));
  return position->second;
}

WGPUPipelineLayout PipelineCache::pipeline_layout_of(Layout& layout, std::uint32_t immediate_bytes) {
  PipelineLayoutHandle& handle = layout.pipelines[immediate_bytes];
  if (!handle) {
    const WGPUBindGroupLayout group = layout.group.get();
    WGPUPipelineLayoutDescriptor descriptor{};
    descriptor.label = view_of("");
    descriptor.bindGroupLayouts = &group;
    descriptor.bindGroupLayoutCount = 1;
    descriptor.immediateSize = immediate_bytes;
    handle = PipelineLayoutHandle(library().DeviceCreatePipelineLayout(device_.handle(), &descriptor));
  }
  return handle.get();
}

std::vector<PipelinePtr> PipelineCache::compile(std::span<const Shader> shaders) {
  struct Job {
    const Shader* shader;
    std::shared_ptr<Pipeline> pipeline;
    ShaderModuleHandle module;
    Pending creation;
    std::string error;
  };
  const Library& api = library();
  device_.check();
  std::vector<std::string> keys;
  std::unordered_map<std::string, Job> jobs;
  std::vector<Job*> order;  // of the shaders, so that the first bad one is reported
  for (const Shader& shader : shaders) {
    keys.push_back(key_of(shader));
    if (pipelines_.contains(keys.back()) || jobs.contains(keys.back())) continue;
    check_limits(shader);
    Job& job = jobs[keys.back()];
    order.push_back(&job);
    job.shader = &shader;
    WGPUShaderSourceWGSL source{};
    source.chain.sType = WGPUSType_ShaderSourceWGSL;
    source.code = view_of(shader.text);
    WGPUShaderModuleDescriptor module{};
    module.nextInChain = &source.chain;
    module.label = view_of(shader.name);
    ErrorScope scope(device_, WGPUErrorFilter_Validation);
    job.module = ShaderModuleHandle(api.DeviceCreateShaderModule(device_.handle(), &module));
    // Without validation, a pipeline of a bad module would crash the library, so errors are read first.
    job.error = scope.text();
    if (!job.error.empty()) continue;
    // Other threads compile the pipeline while this one reads the next shader.
    Layout& layout = layout_of(shader.read_only);
    job.pipeline = std::make_shared<Pipeline>();
    job.pipeline->layout = layout.group.get();
    job.pipeline->read_only = shader.read_only;
    job.pipeline->immediate_bytes = shader.immediate_bytes;
    WGPUComputePipelineDescriptor descriptor{};
    descriptor.label = view_of(shader.name);
    descriptor.layout = pipeline_layout_of(layout, shader.immediate_bytes);
    descriptor.compute.module = job.module.get();
    descriptor.compute.entryPoint = view_of("main");
    job.creation = create_async(device_, descriptor);
  }
  std::string failure;
  for (Job* job : order) {
    if (job->pipeline) {
      device_.wait(job->creation);
      const Outcome& outcome = *job->creation.outcome;
      job->pipeline->handle = PipelineHandle(static_cast<WGPUComputePipeline>(outcome.object));
      if (!outcome.ok) job->error = outcome.message;
    }
    if (!job->error.empty() && failure.empty())
      failure = fmt::format("{}: shader \"{}\" does not compile: {}\n{}", device_.name(), job->shader->name, job->error,
                            numbered(job->shader->text));
  }
  device_.check();
  if (!failure.empty()) throw InternalError(failure);

  for (auto& [key, job] : jobs) pipelines_.emplace(key, std::move(job.pipeline));
  std::vector<PipelinePtr> result;
  for (const std::string& key : keys) result.push_back(pipelines_.at(key));
  return result;
}

}  // namespace weft::webgpu
