// The WebGPU of a browser as the table of functions of webgpu.h. Imports of the module, which the package implements over
// navigator.gpu, take plain numbers: structs are taken apart here, where the compiler knows their layout. Objects are numbers
// of a table in JavaScript. A promise is a number too; waiting for it suspends the module, and callbacks then run from here, so
// JavaScript never calls into code that waits.
#include <cstring>
#include <functional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backend/webgpu/library.hpp"
#include "weft/error.hpp"

namespace weft::webgpu {
namespace browser {
namespace {

using Object = std::uint32_t;  // 0: none
using Promise = std::uint32_t;

#define WEFT_IMPORT(name) __attribute__((import_module("webgpu"), import_name(#name)))
extern "C" {
WEFT_IMPORT(release) void js_release(Object object);
WEFT_IMPORT(canWait) std::uint32_t js_can_wait();  // whether the caller in JavaScript awaits this call
WEFT_IMPORT(wait) void js_wait(Promise promise);   // suspends the module
// What came of a promise that was waited for, and forgets it. The text has at most `bytes_max` bytes; its length is returned.
WEFT_IMPORT(outcome)
std::uint32_t js_outcome(Promise promise, std::uint32_t* status, Object* object, char* text, std::uint32_t bytes_max);

WEFT_IMPORT(requestAdapter) Promise js_request_adapter(std::uint32_t high_performance);
WEFT_IMPORT(adapterFeatures) std::uint32_t js_adapter_features(Object adapter);
WEFT_IMPORT(adapterLimit) double js_adapter_limit(Object adapter, const char* name, std::uint32_t bytes);
WEFT_IMPORT(adapterText)
std::uint32_t js_adapter_text(Object adapter, std::uint32_t which, char* text, std::uint32_t bytes_max);
WEFT_IMPORT(adapterNumber) std::uint32_t js_adapter_number(Object adapter, std::uint32_t which);
WEFT_IMPORT(requestDevice) Promise js_request_device(Object adapter, std::uint32_t features);
WEFT_IMPORT(deviceQueue) Object js_device_queue(Object device);
WEFT_IMPORT(deviceDestroy) void js_device_destroy(Object device);
// The next message: of the loss of the device (1), an error that no scope caught (2); 0: there is none.
WEFT_IMPORT(deviceMessage)
std::uint32_t js_device_message(Object device, char* text, std::uint32_t bytes_max, std::uint32_t* bytes);
WEFT_IMPORT(pushErrorScope) void js_push_error_scope(Object device, std::uint32_t filter);
WEFT_IMPORT(popErrorScope) Promise js_pop_error_scope(Object device);

WEFT_IMPORT(createBuffer)
Object js_create_buffer(Object device, const char* label, std::uint32_t label_bytes, std::uint32_t usage, double bytes,
                        std::uint32_t mapped);
WEFT_IMPORT(createShaderModule)
Object js_create_shader_module(Object device, const char* label, std::uint32_t label_bytes, const char* code,
                               std::uint32_t code_bytes);
WEFT_IMPORT(createBindGroupLayout)
Object js_create_bind_group_layout(Object device, const std::uint8_t* read_only, std::uint32_t count);
WEFT_IMPORT(createPipelineLayout)
Object js_create_pipeline_layout(Object device, Object group, std::uint32_t immediate_bytes);
WEFT_IMPORT(createComputePipeline)
Object js_create_compute_pipeline(Object device, const char* label, std::uint32_t label_bytes, Object layout,
                                  Object module);
WEFT_IMPORT(createBindGroup)
Object js_create_bind_group(Object device, Object layout, const Object* buffers, const double* offsets,
                            const double* sizes, std::uint32_t count);
WEFT_IMPORT(createQuerySet) Object js_create_query_set(Object device, std::uint32_t count);
WEFT_IMPORT(createCommandEncoder) Object js_create_command_encoder(Object device);

WEFT_IMPORT(bufferDestroy) void js_buffer_destroy(Object buffer);
WEFT_IMPORT(bufferMap) Promise js_buffer_map(Object buffer, std::uint32_t mode, double offset, double bytes);
WEFT_IMPORT(bufferRead) std::uint32_t js_buffer_read(Object buffer, double offset, std::uint32_t bytes, void* to);
WEFT_IMPORT(bufferWrite) void js_buffer_write(Object buffer, double offset, std::uint32_t bytes, const void* from);
WEFT_IMPORT(bufferUnmap) void js_buffer_unmap(Object buffer);

WEFT_IMPORT(beginComputePass)
Object js_begin_compute_pass(Object encoder, const char* label, std::uint32_t label_bytes, Object queries,
                             std::uint32_t begin, std::uint32_t end);
WEFT_IMPORT(copyBuffer)
void js_copy_buffer(Object encoder, Object from, double from_offset, Object to, double to_offset, double bytes);
WEFT_IMPORT(clearBuffer) void js_clear_buffer(Object encoder, Object buffer, double offset, double bytes);
WEFT_IMPORT(resolveQuerySet)
void js_resolve_query_set(Object encoder, Object queries, std::uint32_t first, std::uint32_t count, Object to,
                          double offset);
WEFT_IMPORT(finish) Object js_finish(Object encoder);
WEFT_IMPORT(setPipeline) void js_set_pipeline(Object pass, Object pipeline);
WEFT_IMPORT(setBindGroup) void js_set_bind_group(Object pass, Object group);
WEFT_IMPORT(setImmediates) void js_set_immediates(Object pass, const void* words, std::uint32_t bytes);
WEFT_IMPORT(dispatch) void js_dispatch(Object pass, std::uint32_t x, std::uint32_t y, std::uint32_t z);
WEFT_IMPORT(endPass) void js_end_pass(Object pass);
WEFT_IMPORT(submit) void js_submit(Object queue, Object commands);
WEFT_IMPORT(writeBuffer)
void js_write_buffer(Object queue, Object buffer, double offset, const void* from, std::uint32_t bytes);
WEFT_IMPORT(workDone) Promise js_work_done(Object queue);
}
#undef WEFT_IMPORT

constexpr WGPUFeatureName kFeatures[] = {WGPUFeatureName_ShaderF16, WGPUFeatureName_Subgroups,
                                         WGPUFeatureName_TimestampQuery};  // bit i of a set
constexpr std::uint32_t kTextMax = 16384;

template <class T>
Object number_of(T* object) {
  return static_cast<Object>(reinterpret_cast<std::uintptr_t>(object));
}
template <class T>
T object_of(Object number) {
  return reinterpret_cast<T>(static_cast<std::uintptr_t>(number));
}
template <class T>
void release(T* object) {
  js_release(number_of(object));
}
std::uint32_t length_of(WGPUStringView text) {
  if (!text.data) return 0;
  return static_cast<std::uint32_t>(text.length == WGPU_STRLEN ? std::strlen(text.data) : text.length);
}
WGPUStringView view(const std::string& text) { return {text.data(), text.size()}; }

struct Result {
  std::uint32_t status = 0;
  Object object = 0;
  std::string text;
};
using Then = std::function<void(const Result&)>;
std::unordered_map<Promise, Then>& pending() {
  static auto& map = *new std::unordered_map<Promise, Then>;
  return map;
}
WGPUFuture then(Promise promise, Then function) {
  pending().emplace(promise, std::move(function));
  return {promise};
}

// Functions that a device tells about its loss and its errors.
struct DeviceWatch {
  WGPUDeviceLostCallbackInfo lost;
  WGPUUncapturedErrorCallbackInfo error;
};
std::unordered_map<Object, DeviceWatch>& watches() {
  static auto& map = *new std::unordered_map<Object, DeviceWatch>;
  return map;
}
void tell_messages() {
  std::string text(kTextMax, '\0');
  for (const auto& [number, watch] : watches()) {
    const auto device = object_of<WGPUDevice>(number);
    std::uint32_t bytes = 0;
    while (const std::uint32_t kind = js_device_message(number, text.data(), kTextMax, &bytes)) {
      const WGPUStringView message{text.data(), bytes};
      if (kind == 1)
        watch.lost.callback(&device, WGPUDeviceLostReason_Unknown, message, watch.lost.userdata1, watch.lost.userdata2);
      else
        watch.error.callback(&device, WGPUErrorType_Unknown, message, watch.error.userdata1, watch.error.userdata2);
    }
  }
}

// Memory that stands for the mapped range of a buffer.
struct Mapping {
  std::vector<std::byte> bytes;
  double offset = 0;
  bool is_written = false;
};
std::unordered_map<Object, Mapping>& mappings() {
  static auto& map = *new std::unordered_map<Object, Mapping>;
  return map;
}

WGPUInstance create_instance(const WGPUInstanceDescriptor*) { return object_of<WGPUInstance>(1); }
WGPUBool has_instance_feature(WGPUInstanceFeatureName) { return WGPU_FALSE; }
void keep(WGPUInstance) {}
void process_events(WGPUInstance) { tell_messages(); }
WGPUWaitStatus wait_any(WGPUInstance, std::size_t count, WGPUFutureWaitInfo* infos, std::uint64_t) {
  for (std::size_t i = 0; i < count; ++i) {
    const auto promise = static_cast<Promise>(infos[i].future.id);
    const auto found = pending().find(promise);
    if (found == pending().end()) continue;
    if (!js_can_wait())
      throw UsageError(
          "webgpu: this call waits for the device, and its caller in JavaScript does not; use a function that returns "
          "a "
          "promise, such as evaluate, before it");
    js_wait(promise);
    Result result;
    result.text.resize(kTextMax);
    result.text.resize(js_outcome(promise, &result.status, &result.object, result.text.data(), kTextMax));
    const Then function = std::move(found->second);
    pending().erase(found);
    tell_messages();
    function(result);
    infos[i].completed = WGPU_TRUE;
  }
  return WGPUWaitStatus_Success;
}

WGPUFuture request_adapter(WGPUInstance, const WGPURequestAdapterOptions* options,
                           WGPURequestAdapterCallbackInfo info) {
  const bool fast = options && options->powerPreference == WGPUPowerPreference_HighPerformance;
  return then(js_request_adapter(fast), [info](const Result& result) {
    const auto status = result.object ? WGPURequestAdapterStatus_Success : WGPURequestAdapterStatus_Unavailable;
    info.callback(status, object_of<WGPUAdapter>(result.object), view(result.text), info.userdata1, info.userdata2);
  });
}

void get_features(WGPUAdapter adapter, WGPUSupportedFeatures* features) {
  const std::uint32_t set = js_adapter_features(number_of(adapter));
  auto* list = new WGPUFeatureName[std::size(kFeatures)];
  features->featureCount = 0;
  for (std::size_t i = 0; i < std::size(kFeatures); ++i)
    if (set >> i & 1) list[features->featureCount++] = kFeatures[i];
  features->features = list;
}
void free_features(WGPUSupportedFeatures features) { delete[] features.features; }

WGPUStatus get_info(WGPUAdapter adapter, WGPUAdapterInfo* info) {
  WGPUStringView* const texts[] = {&info->vendor, &info->architecture, &info->device, &info->description};
  for (std::uint32_t i = 0; i < std::size(texts); ++i) {
    auto* text = new char[kTextMax];
    *texts[i] = {text, js_adapter_text(number_of(adapter), i, text, kTextMax)};
  }
  info->backendType = WGPUBackendType_WebGPU;
  info->adapterType = js_adapter_number(number_of(adapter), 0) ? WGPUAdapterType_CPU : WGPUAdapterType_Unknown;
  info->subgroupMinSize = js_adapter_number(number_of(adapter), 1);
  info->subgroupMaxSize = js_adapter_number(number_of(adapter), 2);
  return WGPUStatus_Success;
}
void free_info(WGPUAdapterInfo info) {
  for (const WGPUStringView text : {info.vendor, info.architecture, info.device, info.description}) delete[] text.data;
}

WGPUStatus get_limits(WGPUAdapter adapter, WGPULimits* limits) {
  const auto limit = [&](auto& value, std::string_view name, auto unknown) {
    const double given = js_adapter_limit(number_of(adapter), name.data(), static_cast<std::uint32_t>(name.size()));
    value = given < 0 ? unknown : static_cast<std::decay_t<decltype(value)>>(given);
  };
  limit(limits->maxBufferSize, "maxBufferSize", std::uint64_t{0});
  limit(limits->maxStorageBufferBindingSize, "maxStorageBufferBindingSize", std::uint64_t{0});
  limit(limits->minStorageBufferOffsetAlignment, "minStorageBufferOffsetAlignment", 256u);
  limit(limits->maxStorageBuffersPerShaderStage, "maxStorageBuffersPerShaderStage", 0u);
  limit(limits->maxImmediateSize, "maxImmediateSize", WGPU_LIMIT_U32_UNDEFINED);
  limit(limits->maxComputeWorkgroupStorageSize, "maxComputeWorkgroupStorageSize", 0u);
  limit(limits->maxComputeInvocationsPerWorkgroup, "maxComputeInvocationsPerWorkgroup", 0u);
  limit(limits->maxComputeWorkgroupSizeX, "maxComputeWorkgroupSizeX", 0u);
  limit(limits->maxComputeWorkgroupSizeY, "maxComputeWorkgroupSizeY", 0u);
  limit(limits->maxComputeWorkgroupSizeZ, "maxComputeWorkgroupSizeZ", 0u);
  limit(limits->maxComputeWorkgroupsPerDimension, "maxComputeWorkgroupsPerDimension", 0u);
  return WGPUStatus_Success;
}

// The device has all limits of its adapter, as Weft asks for.
WGPUFuture request_device(WGPUAdapter adapter, const WGPUDeviceDescriptor* descriptor,
                          WGPURequestDeviceCallbackInfo info) {
  std::uint32_t set = 0;
  for (std::size_t i = 0; i < descriptor->requiredFeatureCount; ++i)
    for (std::size_t bit = 0; bit < std::size(kFeatures); ++bit)
      if (descriptor->requiredFeatures[i] == kFeatures[bit]) set |= 1u << bit;
  const DeviceWatch watch{descriptor->deviceLostCallbackInfo, descriptor->uncapturedErrorCallbackInfo};
  return then(js_request_device(number_of(adapter), set), [info, watch](const Result& result) {
    if (result.object) watches().emplace(result.object, watch);
    const auto status = result.object ? WGPURequestDeviceStatus_Success : WGPURequestDeviceStatus_Error;
    info.callback(status, object_of<WGPUDevice>(result.object), view(result.text), info.userdata1, info.userdata2);
  });
}
WGPUQueue get_queue(WGPUDevice device) { return object_of<WGPUQueue>(js_device_queue(number_of(device))); }
void destroy_device(WGPUDevice device) { js_device_destroy(number_of(device)); }
void release_device(WGPUDevice device) {
  watches().erase(number_of(device));
  js_release(number_of(device));
}
void push_error_scope(WGPUDevice device, WGPUErrorFilter filter) {
  js_push_error_scope(number_of(device), filter == WGPUErrorFilter_OutOfMemory ? 1
                                         : filter == WGPUErrorFilter_Internal  ? 2
                                                                               : 0);
}
WGPUFuture pop_error_scope(WGPUDevice device, WGPUPopErrorScopeCallbackInfo info) {
  return then(js_pop_error_scope(number_of(device)), [info](const Result& result) {
    constexpr WGPUErrorType kTypes[] = {WGPUErrorType_NoError, WGPUErrorType_Validation, WGPUErrorType_OutOfMemory,
                                        WGPUErrorType_Internal};
    const WGPUErrorType type = result.status < std::size(kTypes) ? kTypes[result.status] : WGPUErrorType_Unknown;
    info.callback(WGPUPopErrorScopeStatus_Success, type, view(result.text), info.userdata1, info.userdata2);
  });
}

WGPUBuffer create_buffer(WGPUDevice device, const WGPUBufferDescriptor* descriptor) {
  const Object buffer = js_create_buffer(number_of(device), descriptor->label.data, length_of(descriptor->label),
                                         static_cast<std::uint32_t>(descriptor->usage),
                                         static_cast<double>(descriptor->size), descriptor->mappedAtCreation);
  return object_of<WGPUBuffer>(buffer);
}
WGPUShaderModule create_shader_module(WGPUDevice device, const WGPUShaderModuleDescriptor* descriptor) {
  const auto* source = reinterpret_cast<const WGPUShaderSourceWGSL*>(descriptor->nextInChain);
  return object_of<WGPUShaderModule>(js_create_shader_module(number_of(device), descriptor->label.data,
                                                             length_of(descriptor->label), source->code.data,
                                                             length_of(source->code)));
}
WGPUBindGroupLayout create_bind_group_layout(WGPUDevice device, const WGPUBindGroupLayoutDescriptor* descriptor) {
  std::vector<std::uint8_t> read_only;
  for (std::size_t i = 0; i < descriptor->entryCount; ++i)
    read_only.push_back(descriptor->entries[i].buffer.type == WGPUBufferBindingType_ReadOnlyStorage);
  return object_of<WGPUBindGroupLayout>(
      js_create_bind_group_layout(number_of(device), read_only.data(), static_cast<std::uint32_t>(read_only.size())));
}
WGPUPipelineLayout create_pipeline_layout(WGPUDevice device, const WGPUPipelineLayoutDescriptor* descriptor) {
  return object_of<WGPUPipelineLayout>(js_create_pipeline_layout(
      number_of(device), number_of(descriptor->bindGroupLayouts[0]), descriptor->immediateSize));
}
WGPUComputePipeline create_compute_pipeline(WGPUDevice device, const WGPUComputePipelineDescriptor* descriptor) {
  return object_of<WGPUComputePipeline>(
      js_create_compute_pipeline(number_of(device), descriptor->label.data, length_of(descriptor->label),
                                 number_of(descriptor->layout), number_of(descriptor->compute.module)));
}
WGPUBindGroup create_bind_group(WGPUDevice device, const WGPUBindGroupDescriptor* descriptor) {
  std::vector<Object> buffers;
  std::vector<double> offsets, sizes;
  for (std::size_t i = 0; i < descriptor->entryCount; ++i) {
    const WGPUBindGroupEntry& entry = descriptor->entries[i];
    buffers.push_back(number_of(entry.buffer));
    offsets.push_back(static_cast<double>(entry.offset));
    sizes.push_back(static_cast<double>(entry.size));
  }
  return object_of<WGPUBindGroup>(js_create_bind_group(number_of(device), number_of(descriptor->layout), buffers.data(),
                                                       offsets.data(), sizes.data(),
                                                       static_cast<std::uint32_t>(buffers.size())));
}
WGPUQuerySet create_query_set(WGPUDevice device, const WGPUQuerySetDescriptor* descriptor) {
  return object_of<WGPUQuerySet>(js_create_query_set(number_of(device), descriptor->count));
}
WGPUCommandEncoder create_command_encoder(WGPUDevice device, const WGPUCommandEncoderDescriptor*) {
  return object_of<WGPUCommandEncoder>(js_create_command_encoder(number_of(device)));
}

void destroy_buffer(WGPUBuffer buffer) {
  mappings().erase(number_of(buffer));
  js_buffer_destroy(number_of(buffer));
}
WGPUFuture map_buffer(WGPUBuffer buffer, WGPUMapMode mode, std::size_t offset, std::size_t bytes,
                      WGPUBufferMapCallbackInfo info) {
  const Promise promise = js_buffer_map(number_of(buffer), static_cast<std::uint32_t>(mode),
                                        static_cast<double>(offset), static_cast<double>(bytes));
  return then(promise, [info](const Result& result) {
    const auto status = result.status == 0 ? WGPUMapAsyncStatus_Success : WGPUMapAsyncStatus_Error;
    info.callback(status, view(result.text), info.userdata1, info.userdata2);
  });
}
void* mapped_range(WGPUBuffer buffer, std::size_t offset, std::size_t bytes) {
  Mapping& mapping = mappings()[number_of(buffer)];
  mapping.bytes.resize(bytes);
  mapping.offset = static_cast<double>(offset);
  mapping.is_written = true;
  return mapping.bytes.data();
}
const void* const_mapped_range(WGPUBuffer buffer, std::size_t offset, std::size_t bytes) {
  Mapping& mapping = mappings()[number_of(buffer)];
  mapping.bytes.resize(bytes);
  mapping.is_written = false;
  const auto count = static_cast<std::uint32_t>(bytes);
  return js_buffer_read(number_of(buffer), static_cast<double>(offset), count, mapping.bytes.data())
             ? mapping.bytes.data()
             : nullptr;
}
void unmap_buffer(WGPUBuffer buffer) {
  if (const auto found = mappings().find(number_of(buffer)); found != mappings().end()) {
    const Mapping& mapping = found->second;
    if (mapping.is_written)
      js_buffer_write(number_of(buffer), mapping.offset, static_cast<std::uint32_t>(mapping.bytes.size()),
                      mapping.bytes.data());
    mappings().erase(found);
  }
  js_buffer_unmap(number_of(buffer));
}
void release_buffer(WGPUBuffer buffer) {
  mappings().erase(number_of(buffer));
  js_release(number_of(buffer));
}

WGPUComputePassEncoder begin_pass(WGPUCommandEncoder encoder, const WGPUComputePassDescriptor* descriptor) {
  const WGPUPassTimestampWrites* times = descriptor ? descriptor->timestampWrites : nullptr;
  const WGPUStringView label = descriptor ? descriptor->label : WGPUStringView{nullptr, 0};
  return object_of<WGPUComputePassEncoder>(
      js_begin_compute_pass(number_of(encoder), label.data, length_of(label), times ? number_of(times->querySet) : 0,
                            times ? times->beginningOfPassWriteIndex : 0, times ? times->endOfPassWriteIndex : 0));
}
void copy_buffer(WGPUCommandEncoder encoder, WGPUBuffer from, std::uint64_t from_offset, WGPUBuffer to,
                 std::uint64_t to_offset, std::uint64_t bytes) {
  js_copy_buffer(number_of(encoder), number_of(from), static_cast<double>(from_offset), number_of(to),
                 static_cast<double>(to_offset), static_cast<double>(bytes));
}
void clear_buffer(WGPUCommandEncoder encoder, WGPUBuffer buffer, std::uint64_t offset, std::uint64_t bytes) {
  js_clear_buffer(number_of(encoder), number_of(buffer), static_cast<double>(offset), static_cast<double>(bytes));
}
void resolve_query_set(WGPUCommandEncoder encoder, WGPUQuerySet queries, std::uint32_t first, std::uint32_t count,
                       WGPUBuffer to, std::uint64_t offset) {
  js_resolve_query_set(number_of(encoder), number_of(queries), first, count, number_of(to),
                       static_cast<double>(offset));
}
WGPUCommandBuffer finish(WGPUCommandEncoder encoder, const WGPUCommandBufferDescriptor*) {
  return object_of<WGPUCommandBuffer>(js_finish(number_of(encoder)));
}
void set_pipeline(WGPUComputePassEncoder pass, WGPUComputePipeline pipeline) {
  js_set_pipeline(number_of(pass), number_of(pipeline));
}
void set_bind_group(WGPUComputePassEncoder pass, std::uint32_t, WGPUBindGroup group, std::size_t,
                    const std::uint32_t*) {
  js_set_bind_group(number_of(pass), number_of(group));
}
void set_immediates(WGPUComputePassEncoder pass, std::uint32_t, const void* words, std::size_t bytes) {
  js_set_immediates(number_of(pass), words, static_cast<std::uint32_t>(bytes));
}
void dispatch(WGPUComputePassEncoder pass, std::uint32_t x, std::uint32_t y, std::uint32_t z) {
  js_dispatch(number_of(pass), x, y, z);
}
void end_pass(WGPUComputePassEncoder pass) { js_end_pass(number_of(pass)); }

void submit(WGPUQueue queue, std::size_t count, const WGPUCommandBuffer* commands) {
  for (std::size_t i = 0; i < count; ++i) js_submit(number_of(queue), number_of(commands[i]));
  tell_messages();
}
void write_buffer(WGPUQueue queue, WGPUBuffer buffer, std::uint64_t offset, const void* from, std::size_t bytes) {
  js_write_buffer(number_of(queue), number_of(buffer), static_cast<double>(offset), from,
                  static_cast<std::uint32_t>(bytes));
}
WGPUFuture work_done(WGPUQueue queue, WGPUQueueWorkDoneCallbackInfo info) {
  return then(js_work_done(number_of(queue)), [info](const Result& result) {
    const auto status = result.status == 0 ? WGPUQueueWorkDoneStatus_Success : WGPUQueueWorkDoneStatus_Error;
    info.callback(status, view(result.text), info.userdata1, info.userdata2);
  });
}

Library table() {
  Library api;
  api.path = "the browser";
  api.is_dawn = true;  // waits on futures, as Dawn does; structs of Dawn's are not looked at
  api.CreateInstance = create_instance;
  api.HasInstanceFeature = has_instance_feature;
  api.InstanceRelease = keep;
  api.InstanceRequestAdapter = request_adapter;
  api.InstanceWaitAny = wait_any;
  api.InstanceProcessEvents = process_events;
  api.AdapterGetInfo = get_info;
  api.AdapterInfoFreeMembers = free_info;
  api.AdapterGetLimits = get_limits;
  api.AdapterGetFeatures = get_features;
  api.SupportedFeaturesFreeMembers = free_features;
  api.AdapterRequestDevice = request_device;
  api.AdapterRelease = release;
  api.DeviceGetQueue = get_queue;
  api.DeviceDestroy = destroy_device;
  api.DeviceRelease = release_device;
  api.DevicePushErrorScope = push_error_scope;
  api.DevicePopErrorScope = pop_error_scope;
  api.DeviceCreateBuffer = create_buffer;
  api.DeviceCreateShaderModule = create_shader_module;
  api.DeviceCreateBindGroupLayout = create_bind_group_layout;
  api.DeviceCreatePipelineLayout = create_pipeline_layout;
  api.DeviceCreateComputePipeline = create_compute_pipeline;
  api.DeviceCreateBindGroup = create_bind_group;
  api.DeviceCreateQuerySet = create_query_set;
  api.DeviceCreateCommandEncoder = create_command_encoder;
  api.BufferDestroy = destroy_buffer;
  api.BufferRelease = release_buffer;
  api.BufferMapAsync = map_buffer;
  api.BufferGetMappedRange = mapped_range;
  api.BufferGetConstMappedRange = const_mapped_range;
  api.BufferUnmap = unmap_buffer;
  api.ShaderModuleRelease = release;
  api.BindGroupLayoutRelease = release;
  api.PipelineLayoutRelease = release;
  api.ComputePipelineRelease = release;
  api.BindGroupRelease = release;
  api.QuerySetRelease = release;
  api.CommandEncoderBeginComputePass = begin_pass;
  api.CommandEncoderCopyBufferToBuffer = copy_buffer;
  api.CommandEncoderClearBuffer = clear_buffer;
  api.CommandEncoderResolveQuerySet = resolve_query_set;
  api.CommandEncoderFinish = finish;
  api.CommandEncoderRelease = release;
  api.CommandBufferRelease = release;
  api.ComputePassEncoderSetPipeline = set_pipeline;
  api.ComputePassEncoderSetBindGroup = set_bind_group;
  api.ComputePassEncoderSetImmediates = set_immediates;
  api.ComputePassEncoderDispatchWorkgroups = dispatch;
  api.ComputePassEncoderEnd = end_pass;
  api.ComputePassEncoderRelease = release;
  api.QueueSubmit = submit;
  api.QueueWriteBuffer = write_buffer;
  api.QueueOnSubmittedWorkDone = work_done;
  api.QueueRelease = release;
  return api;
}

}  // namespace
}  // namespace browser

const Library& library() {
  static const Library loaded = browser::table();
  return loaded;
}

}  // namespace weft::webgpu
