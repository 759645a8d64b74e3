#include "backend/webgpu/device.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "backend/webgpu/dawn.hpp"
#include "backend/webgpu/pipeline.hpp"
#include "backend/webgpu/staging.hpp"
#include "base/log.hpp"
#include "weft/error.hpp"

namespace weft::webgpu {
namespace {

constexpr std::size_t kRunsInFlightMax = 8;
constexpr std::uint64_t kWaitStepNs = 1'000'000'000;

using TogglesFunction = std::vector<const char*> (*)(WGPUDevice);
constexpr const char* kTogglesSymbol = "_ZN4dawn6native14GetTogglesUsedEP14WGPUDeviceImpl";

// Dawn asks for the size and right after for the bytes, on one thread, so the entry is kept between the two calls.
std::size_t load_blob(std::size_t key_size, const void* key, std::size_t value_size, void* value, void* cache, void*) {
  thread_local std::vector<std::byte> entry;
  if (!value) {
    entry = static_cast<BlobCache*>(cache)->load({static_cast<const char*>(key), key_size});
    return entry.size();
  }
  if (value_size != entry.size()) return 0;
  std::memcpy(value, entry.data(), value_size);
  entry = {};
  return value_size;
}

void store_blob(std::size_t key_size, const void* key, std::size_t value_size, const void* value, void* cache, void*) {
  static_cast<BlobCache*>(cache)->store({static_cast<const char*>(key), key_size},
                                        {static_cast<const char*>(value), value_size});
}

// Logs Dawn's messages about a device, for example about compiled shaders.
void take_messages(WGPUDevice device) {
  using Function = void (*)(WGPUDevice, dawn::LoggingCallbackInfo);
  const auto set = reinterpret_cast<Function>(dlsym(library().handle, "wgpuDeviceSetLoggingCallback"));
  if (!set) return;
  const auto callback = [](std::uint32_t level, WGPUStringView message, void*, void*) {
    log(static_cast<LogLevel>(std::clamp(level, 1u, 4u) - 1), "webgpu", to_string(message));
  };
  set(device, {nullptr, callback, nullptr, nullptr});
}

}  // namespace

struct Device::Faults {
  std::atomic<bool> any = false;
  std::mutex mutex;
  std::string lost;   // the reason; empty: not lost
  std::string error;  // the first uncaptured error
};

std::string cache_owner(const AdapterInfo& info) {
  std::error_code ignored;
  const std::filesystem::path file = library().path;
  return fmt::format("{}|{}|{}|{}|{}", std::filesystem::file_size(file, ignored),
                     std::filesystem::last_write_time(file, ignored).time_since_epoch().count(), info.name, info.driver,
                     info.backend);
}

bool default_validation() {
  if (const char* text = std::getenv("WEFT_WEBGPU_VALIDATE"); text && *text) return std::string_view(text) != "0";
#ifdef NDEBUG
  return false;
#else
  return true;
#endif
}

std::shared_ptr<Device> Device::open(int index, const DeviceOptions& options) {
  return open(Instance::shared(), index, options);
}

std::shared_ptr<Device> Device::open(std::shared_ptr<const Instance> instance, int index,
                                     const DeviceOptions& options) {
  std::vector<AdapterInfo> infos;
  for (const Instance::Adapter& adapter : instance->adapters()) infos.push_back(adapter.info);
  const Instance::Adapter& adapter = instance->adapters()[choose_adapter(infos, index)];
  return std::shared_ptr<Device>(new Device(std::move(instance), adapter, options));
}

Device::Device(std::shared_ptr<const Instance> instance, const Instance::Adapter& adapter, const DeviceOptions& options)
    : instance_(std::move(instance)),
      info_(adapter.info),
      options_(options),
      name_(fmt::format("webgpu:{} ({})", info_.index, info_.name)),
      faults_(std::make_unique<Faults>()),
      blob_cache_(std::make_unique<BlobCache>(options.cache_folder, cache_owner(info_))) {
  const Library& api = library();
  WGPUDeviceDescriptor descriptor{};
  descriptor.label = view_of("weft");
  descriptor.requiredFeatures = adapter.features.data();
  descriptor.requiredFeatureCount = adapter.features.size();
  descriptor.requiredLimits = &adapter.limits;
  descriptor.deviceLostCallbackInfo.mode = WGPUCallbackMode_AllowSpontaneous;
  descriptor.deviceLostCallbackInfo.userdata1 = faults_.get();
  descriptor.deviceLostCallbackInfo.callback = [](const WGPUDevice*, WGPUDeviceLostReason reason,
                                                  WGPUStringView message, void* user, void*) {
    auto* faults = static_cast<Faults*>(user);
    const std::lock_guard lock(faults->mutex);
    faults->lost = reason == WGPUDeviceLostReason_Destroyed ? "it was destroyed" : to_string(message);
    if (faults->lost.empty()) faults->lost = "the driver gave no reason";
    faults->any = true;
    log(LogLevel::error, "webgpu", "device lost: " + faults->lost);
  };
  descriptor.uncapturedErrorCallbackInfo.userdata1 = faults_.get();
  descriptor.uncapturedErrorCallbackInfo.callback = [](const WGPUDevice*, WGPUErrorType, WGPUStringView message,
                                                       void* user, void*) {
    auto* faults = static_cast<Faults*>(user);
    const std::lock_guard lock(faults->mutex);
    if (faults->error.empty()) faults->error = to_string(message);
    faults->any = true;
    log(LogLevel::error, "webgpu", to_string(message));
  };

  std::vector<const char*> enabled{"disable_workgroup_init"};
  std::vector<const char*> disabled{"timestamp_quantization"};  // otherwise every GPU time is a multiple of 65.5 us
  if (!options.validate) {
    enabled.push_back("skip_validation");
    disabled.push_back("enable_spirv_validation");
  }
  if (!options.robust) enabled.push_back("disable_robustness");
  dawn::Toggles toggles{
      {nullptr, dawn::kTogglesType}, enabled.size(), enabled.data(), disabled.size(), disabled.data()};
  dawn::Cache cache{{&toggles.chain, dawn::kCacheType},
                    view_of("weft"),
                    {nullptr, load_blob, blob_cache_.get(), nullptr},
                    {nullptr, store_blob, blob_cache_.get(), nullptr}};
  if (api.is_dawn) descriptor.nextInChain = &cache.chain;

  auto outcome = std::make_shared<Outcome>();
  WGPURequestDeviceCallbackInfo callback{};
  callback.mode = callback_mode();
  callback.userdata1 = Outcome::give(outcome);
  callback.callback = [](WGPURequestDeviceStatus, WGPUDevice device, WGPUStringView message, void* user, void*) {
    const auto given = Outcome::take(user);
    given->object = device;
    given->message = to_string(message);
    given->done = true;
  };
  instance_->wait({api.AdapterRequestDevice(adapter.handle.get(), &descriptor, callback), outcome}, nullptr,
                  UINT64_MAX);
  if (!outcome->object)
    throw DeviceError(fmt::format("{}: the device could not be opened: {}", name_, outcome->message));
  handle_ = DeviceHandle(static_cast<WGPUDevice>(outcome->object));
  if (api.is_dawn) take_messages(handle_.get());
  queue_ = QueueHandle(api.DeviceGetQueue(handle_.get()));
  pipelines_ = std::make_unique<PipelineCache>(*this);
  staging_ = std::make_unique<Staging>(*this);
}

Device::~Device() {
  const std::lock_guard lock(mutex_);
  // Not `wait`, which throws for a lost device. A device that hangs is not waited for.
  for (const Pending& run : in_flight_) instance_->wait(run, handle_.get(), kWaitStepNs);
  staging_.reset();
  pipelines_.reset();
  if (handle_) library().DeviceDestroy(handle_.get());
}

std::vector<std::string> Device::toggles() const {
  const auto toggles_used = reinterpret_cast<TogglesFunction>(dlsym(library().handle, kTogglesSymbol));
  if (!toggles_used) return {};
  const std::vector<const char*> names = toggles_used(handle_.get());
  return {names.begin(), names.end()};
}

void Device::check() const {
  if (!faults_->any) return;
  const std::lock_guard lock(faults_->mutex);
  if (!faults_->lost.empty())
    throw DeviceError(fmt::format("{}: the device was lost: {}\nopen the device again; what was on it is gone{}", name_,
                                  faults_->lost,
                                  faults_->error.empty() ? "" : "\nan error came first: " + faults_->error));
  throw DeviceError(fmt::format("{}: an earlier operation failed, so nothing on the device can be trusted: {}", name_,
                                faults_->error));
}

void Device::fail(const std::string& reason) {
  const std::lock_guard lock(faults_->mutex);
  if (faults_->error.empty()) faults_->error = reason;
  faults_->any = true;
}

void Device::destroy() {
  const std::lock_guard lock(mutex_);
  library().DeviceDestroy(handle_.get());
}

void Device::wait(const Pending& pending) {
  while (!instance_->wait(pending, handle_.get(), kWaitStepNs)) check();
}

Pending Device::work_done() {
  auto outcome = std::make_shared<Outcome>();
  WGPUQueueWorkDoneCallbackInfo callback{};
  callback.mode = callback_mode();
  callback.userdata1 = Outcome::give(outcome);
  callback.callback = [](WGPUQueueWorkDoneStatus status, WGPUStringView message, void* user, void*) {
    const auto given = Outcome::take(user);
    given->ok = status == WGPUQueueWorkDoneStatus_Success;
    given->message = to_string(message);
    given->done = true;
  };
  return {library().QueueOnSubmittedWorkDone(queue_.get(), callback), outcome};
}

void Device::synchronize() {
  const std::lock_guard lock(mutex_);
  check();
  const Pending all = work_done();
  wait(all);
  for (const Pending& run : in_flight_) wait(run);
  in_flight_.clear();
  check();
  if (!all.outcome->ok) throw DeviceError(fmt::format("{}: waiting for work failed: {}", name_, all.outcome->message));
}

void Device::limit_runs_in_flight() {
  in_flight_.push_back(work_done());
  while (in_flight_.size() > kRunsInFlightMax) {
    wait(in_flight_.front());
    in_flight_.pop_front();
  }
}

EncoderHandle Device::encoder() { return EncoderHandle(library().DeviceCreateCommandEncoder(handle_.get(), nullptr)); }

void Device::submit(EncoderHandle encoder) {
  const Library& api = library();
  const CommandBufferHandle commands(api.CommandEncoderFinish(encoder.get(), nullptr));
  // Submitting an invalid command buffer aborts the process in wgpu-native; Dawn reports it.
  check();
  const WGPUCommandBuffer list = commands.get();
  api.QueueSubmit(queue_.get(), 1, &list);
}

ErrorScope::ErrorScope(Device& device, WGPUErrorFilter filter) : device_(device) {
  library().DevicePushErrorScope(device_.handle(), filter);
}

ErrorScope::~ErrorScope() {
  if (open_) close();
}

Pending ErrorScope::close() {
  open_ = false;
  auto outcome = std::make_shared<Outcome>();
  WGPUPopErrorScopeCallbackInfo callback{};
  callback.mode = device_.callback_mode();
  callback.userdata1 = Outcome::give(outcome);
  callback.callback = [](WGPUPopErrorScopeStatus, WGPUErrorType type, WGPUStringView message, void* user, void*) {
    const auto given = Outcome::take(user);
    given->error = type;
    if (type != WGPUErrorType_NoError) given->message = to_string(message);
    given->done = true;
  };
  return {library().DevicePopErrorScope(device_.handle(), callback), outcome};
}

std::string ErrorScope::text() {
  const Pending pending = close();
  device_.wait(pending);
  return pending.outcome->message;
}

}  // namespace weft::webgpu
