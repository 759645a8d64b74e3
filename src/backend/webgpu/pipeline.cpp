#include "backend/webgpu/pipeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <sstream>
#include <system_error>
#include <thread>

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

/// A shader on its way to a pipeline.
struct Job {
  const Shader* shader;
  WGPUPipelineLayout layout;
  std::shared_ptr<Pipeline> pipeline;
  std::string error;  // the compiler's message
};

void compile(Device& device, Job& job) {
  const Library& api = library();
  // Scopes belong to their thread, and each catches one kind of error.
  ErrorScope memory(device, WGPUErrorFilter_OutOfMemory);
  ErrorScope driver(device, WGPUErrorFilter_Internal);
  ErrorScope validation(device, WGPUErrorFilter_Validation);
  WGPUShaderSourceWGSL source{};
  source.chain.sType = WGPUSType_ShaderSourceWGSL;
  source.code = view_of(job.shader->text);
  WGPUShaderModuleDescriptor module_descriptor{};
  module_descriptor.nextInChain = &source.chain;
  module_descriptor.label = view_of(job.shader->name);
  const ShaderModuleHandle module(api.DeviceCreateShaderModule(device.handle(), &module_descriptor));
  // Without validation, a pipeline of a bad module would crash the library, so errors are read first.
  job.error = validation.text();
  if (job.error.empty()) {
    ErrorScope pipeline_validation(device, WGPUErrorFilter_Validation);
    WGPUComputePipelineDescriptor descriptor{};
    descriptor.label = view_of(job.shader->name);
    descriptor.layout = job.layout;
    descriptor.compute.module = module.get();
    descriptor.compute.entryPoint = view_of("main");
    job.pipeline->handle = PipelineHandle(api.DeviceCreateComputePipeline(device.handle(), &descriptor));
    job.error = pipeline_validation.text();
  }
  for (ErrorScope* scope : {&driver, &memory})
    if (const std::string text = scope->text(); job.error.empty()) job.error = text;
}

/// Dawn compiles asynchronous pipelines on two threads whatever the machine has (AsyncWorkerThreadPool in Dawn's
/// src/dawn/platform), and reads WGSL on the caller's. Its creation of modules and pipelines takes no lock of the device, so
/// threads of ours use the cores. wgpu-native has one stack of error scopes for all threads.
void compile_all(Device& device, std::vector<Job*> jobs) {
  constexpr unsigned kThreadsMax = 32;  // compilers take memory
  const std::size_t most = library().is_dawn ? std::clamp(std::thread::hardware_concurrency(), 1u, kThreadsMax) : 1;
  // Long texts first, so that no core is left alone with one at the end.
  std::stable_sort(jobs.begin(), jobs.end(),
                   [](const Job* a, const Job* b) { return a->shader->text.size() > b->shader->text.size(); });
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr failure;
  const auto work = [&] {
    try {
      for (std::size_t i; (i = next++) < jobs.size();) compile(device, *jobs[i]);
    } catch (...) {  // the device is lost
      next = jobs.size();
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> threads;
    try {
      for (std::size_t i = 1; i < std::min(most, jobs.size()); ++i) threads.emplace_back(work);
    } catch (const std::system_error&) {  // the system gives no more threads
    }
    work();
  }
  if (failure) std::rethrow_exception(failure);
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
  device_.check();
  std::vector<std::string> keys;
  std::unordered_map<std::string, Job> jobs;
  std::vector<Job*> order;  // of the shaders, so that the first bad one is reported
  for (const Shader& shader : shaders) {
    keys.push_back(key_of(shader));
    if (pipelines_.contains(keys.back()) || jobs.contains(keys.back())) continue;
    check_limits(shader);
    Layout& layout = layout_of(shader.read_only);
    Job& job = jobs[keys.back()];
    job.shader = &shader;
    job.layout = pipeline_layout_of(layout, shader.immediate_bytes);
    job.pipeline = std::make_shared<Pipeline>();
    job.pipeline->layout = layout.group.get();
    job.pipeline->read_only = shader.read_only;
    job.pipeline->immediate_bytes = shader.immediate_bytes;
    order.push_back(&job);
  }
  compile_all(device_, order);
  std::string failure;
  for (const Job* job : order)
    if (!job->error.empty() && failure.empty())
      failure = fmt::format("{}: shader \"{}\" does not compile: {}\n{}", device_.name(), job->shader->name, job->error,
                            numbered(job->shader->text));
  device_.check();
  for (auto& [key, job] : jobs)
    if (job.error.empty()) pipelines_.emplace(key, std::move(job.pipeline));
  if (!failure.empty()) throw InternalError(failure);
  std::vector<PipelinePtr> result;
  for (const std::string& key : keys) result.push_back(pipelines_.at(key));
  return result;
}

}  // namespace weft::webgpu
