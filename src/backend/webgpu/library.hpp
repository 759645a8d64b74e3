// The WebGPU library, loaded at run time: a table of the functions of webgpu.h that Weft calls.
#pragma once

#include <webgpu.h>

#include <string>
#include <string_view>

namespace weft::webgpu {

// clang-format off
#define WEFT_WEBGPU_FUNCTIONS(X)                                                                                      \
  X(CreateInstance) X(HasInstanceFeature) X(InstanceRelease) X(InstanceRequestAdapter) X(InstanceWaitAny)             \
  X(InstanceProcessEvents) X(AdapterGetInfo) X(AdapterInfoFreeMembers) X(AdapterGetLimits) X(AdapterGetFeatures)      \
  X(SupportedFeaturesFreeMembers) X(AdapterRequestDevice) X(AdapterRelease)                                           \
  X(DeviceGetQueue) X(DeviceDestroy) X(DeviceRelease) X(DevicePushErrorScope) X(DevicePopErrorScope)                  \
  X(DeviceCreateBuffer) X(DeviceCreateShaderModule) X(DeviceCreateBindGroupLayout) X(DeviceCreatePipelineLayout)      \
  X(DeviceCreateComputePipeline) X(DeviceCreateBindGroup) X(DeviceCreateQuerySet) X(DeviceCreateCommandEncoder)       \
  X(BufferDestroy) X(BufferRelease) X(BufferMapAsync) X(BufferGetMappedRange) X(BufferGetConstMappedRange)            \
  X(BufferUnmap) X(ShaderModuleRelease) X(BindGroupLayoutRelease) X(PipelineLayoutRelease)                            \
  X(ComputePipelineRelease) X(BindGroupRelease) X(QuerySetRelease)                                                    \
  X(CommandEncoderBeginComputePass) X(CommandEncoderCopyBufferToBuffer) X(CommandEncoderClearBuffer)                  \
  X(CommandEncoderResolveQuerySet) X(CommandEncoderFinish) X(CommandEncoderRelease) X(CommandBufferRelease)           \
  X(ComputePassEncoderSetPipeline) X(ComputePassEncoderSetBindGroup) X(ComputePassEncoderSetImmediates)               \
  X(ComputePassEncoderDispatchWorkgroups) X(ComputePassEncoderEnd) X(ComputePassEncoderRelease)                       \
  X(QueueSubmit) X(QueueWriteBuffer) X(QueueOnSubmittedWorkDone) X(QueueRelease)
// clang-format on

/// Function pointers without their prefix wgpu, and the kind of library.
struct Library {
#define WEFT_WEBGPU_MEMBER(name) WGPUProc##name name = nullptr;
  WEFT_WEBGPU_FUNCTIONS(WEFT_WEBGPU_MEMBER)
#undef WEFT_WEBGPU_MEMBER

  std::string path;      // the file that was loaded
  bool is_dawn = false;  // has Dawn's extensions and waits on futures; else callbacks are polled (wgpu-native)
  // wgpu-native only.
  WGPUBool (*DevicePoll)(WGPUDevice, WGPUBool wait, const void* submission) = nullptr;
  float (*QueueGetTimestampPeriod)(WGPUQueue) = nullptr;
  void* handle = nullptr;  // of dlopen; never closed, drivers keep threads in it
};

/// The library, loaded at the first call: from WEFT_WEBGPU_LIBRARY (a file), else from beside the program or ../lib/weft, else
/// by name, on the program's run path (the tree's .cache, for programs of the build tree) and in the system. Thread safe.
/// Throws a DeviceError that lists everything that was tried; the next call tries again.
const Library& library();

/// Text of a string view from the library.
inline std::string to_string(WGPUStringView view) {
  if (!view.data) return {};
  return view.length == WGPU_STRLEN ? std::string(view.data) : std::string(view.data, view.length);
}
inline WGPUStringView view_of(std::string_view text) { return {text.data(), text.size()}; }

/// Owns one reference to a WebGPU object.
template <class T, auto Release>
class Handle {
 public:
  Handle() = default;
  explicit Handle(T object) : object_(object) {}
  Handle(Handle&& other) noexcept : object_(other.release()) {}
  Handle& operator=(Handle&& other) noexcept {
    if (this != &other) {
      reset();
      object_ = other.release();
    }
    return *this;
  }
  ~Handle() { reset(); }
  T get() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }
  T release() {
    T object = object_;
    object_ = nullptr;
    return object;
  }
  void reset() {
    if (object_) (library().*Release)(object_);
    object_ = nullptr;
  }

 private:
  T object_ = nullptr;
};

using InstanceHandle = Handle<WGPUInstance, &Library::InstanceRelease>;
using AdapterHandle = Handle<WGPUAdapter, &Library::AdapterRelease>;
using DeviceHandle = Handle<WGPUDevice, &Library::DeviceRelease>;
using QueueHandle = Handle<WGPUQueue, &Library::QueueRelease>;
using BufferHandle = Handle<WGPUBuffer, &Library::BufferRelease>;
using ShaderModuleHandle = Handle<WGPUShaderModule, &Library::ShaderModuleRelease>;
using BindGroupLayoutHandle = Handle<WGPUBindGroupLayout, &Library::BindGroupLayoutRelease>;
using PipelineLayoutHandle = Handle<WGPUPipelineLayout, &Library::PipelineLayoutRelease>;
using PipelineHandle = Handle<WGPUComputePipeline, &Library::ComputePipelineRelease>;
using BindGroupHandle = Handle<WGPUBindGroup, &Library::BindGroupRelease>;
using QuerySetHandle = Handle<WGPUQuerySet, &Library::QuerySetRelease>;
using EncoderHandle = Handle<WGPUCommandEncoder, &Library::CommandEncoderRelease>;
using PassHandle = Handle<WGPUComputePassEncoder, &Library::ComputePassEncoderRelease>;
using CommandBufferHandle = Handle<WGPUCommandBuffer, &Library::CommandBufferRelease>;

}  // namespace weft::webgpu
