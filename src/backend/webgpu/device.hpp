// An open WebGPU device: its queue, its errors, and waiting for its work.
#pragma once

#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backend/webgpu/blob_cache.hpp"
#include "backend/webgpu/instance.hpp"
#include "base/cache_folder.hpp"

namespace weft::webgpu {

class PipelineCache;
class Staging;

/// WEFT_WEBGPU_VALIDATE=1 or 0; without it, true in debug builds.
bool default_validation();

struct DeviceOptions {
  /// Whether the library checks every call. Costs about 0.13 us per dispatch; without it a bug in Weft can go unnoticed.
  bool validate = default_validation();
  /// Whether shaders clamp indices into their buffers. Turn it off only for shaders that stay inside; tensor-core kernels then
  /// run twice as fast, others the same.
  bool robust = true;
  /// Folder for compiled pipelines; empty: they are not kept.
  std::filesystem::path cache_folder = default_cache_folder();
};

/// The owner of entries in the blob cache, which also depend on this version of the library and the driver.
std::string cache_owner(const AdapterInfo& info);

/// A device and its one queue. Operations of Weft on one device (on it, its buffers and its programs) are thread safe: each
/// holds `mutex()` and they run one after another. After a loss or an unexpected error every operation throws DeviceError with
/// the reason; open the device again to continue.
class Device : public std::enable_shared_from_this<Device> {
 public:
  /// Opens the adapter with this index, or the first real GPU for -1 (see choose_adapter).
  static std::shared_ptr<Device> open(int index = -1, const DeviceOptions& options = {});
  static std::shared_ptr<Device> open(std::shared_ptr<const Instance> instance, int index,
                                      const DeviceOptions& options = {});
  ~Device();

  const AdapterInfo& info() const { return info_; }
  const DeviceOptions& options() const { return options_; }
  /// "webgpu:0 (NVIDIA H200)", for messages.
  const std::string& name() const { return name_; }
  /// Names of Dawn's switches that are on; empty if the library cannot list them.
  std::vector<std::string> toggles() const;
  BlobCache& blob_cache() { return *blob_cache_; }

  /// Waits for all submitted work.
  void synchronize();
  /// Throws DeviceError if the device was lost or reported an uncaptured error.
  void check() const;
  /// Makes `check` throw from now on, with this reason.
  void fail(const std::string& reason);
  /// Destroys the device: all later operations throw.
  void destroy();

  // For buffers, pipelines and programs.
  WGPUDevice handle() const { return handle_.get(); }
  WGPUQueue queue() const { return queue_.get(); }
  std::recursive_mutex& mutex() { return mutex_; }
  PipelineCache& pipelines() { return *pipelines_; }
  Staging& staging() { return *staging_; }
  WGPUCallbackMode callback_mode() const { return instance_->callback_mode(); }
  /// Waits until the callback has run; throws DeviceError if the device is lost on the way.
  void wait(const Pending& pending);
  EncoderHandle encoder();
  void submit(EncoderHandle encoder);
  /// Called after each run of a program. Waits for an earlier run if too many are in flight, so that memory does not pile up if
  /// the host is faster than its GPU.
  void limit_runs_in_flight();

 private:
  struct Faults;

  Device(std::shared_ptr<const Instance> instance, const Instance::Adapter& adapter, const DeviceOptions& options);
  Pending work_done();

  std::shared_ptr<const Instance> instance_;
  AdapterInfo info_;
  DeviceOptions options_;
  std::string name_;
  std::recursive_mutex mutex_;
  std::unique_ptr<Faults> faults_;         // outlives the handle, whose callbacks write to it
  std::unique_ptr<BlobCache> blob_cache_;  // likewise
  DeviceHandle handle_;
  QueueHandle queue_;
  std::deque<Pending> in_flight_;
  std::unique_ptr<PipelineCache> pipelines_;
  std::unique_ptr<Staging> staging_;
};

/// Catches errors of one kind between its construction and `close`.
class ErrorScope {
 public:
  ErrorScope(Device& device, WGPUErrorFilter filter);
  ErrorScope(const ErrorScope&) = delete;
  ~ErrorScope();
  /// Ends the scope without waiting; scopes end in reverse order.
  Pending close();
  /// Ends the scope and returns the first error's text; empty if there was none.
  std::string text();

 private:
  Device& device_;
  bool open_ = true;
};

}  // namespace weft::webgpu
