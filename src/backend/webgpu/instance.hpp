// The entry to WebGPU: finds the adapters and waits for asynchronous calls.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "backend/webgpu/adapter.hpp"
#include "backend/webgpu/library.hpp"

namespace weft::webgpu {

/// The result of an asynchronous call. Shared with the callback, which may run after the caller has stopped waiting.
struct Outcome {
  std::atomic<bool> done = false;
  bool ok = false;
  std::string message;
  void* object = nullptr;  // adapter, device or pipeline
  WGPUErrorType error = WGPUErrorType_NoError;

  /// userdata1 for a callback that ends in `take`.
  static void* give(const std::shared_ptr<Outcome>& outcome) { return new std::shared_ptr<Outcome>(outcome); }
  static std::shared_ptr<Outcome> take(void* userdata) {
    auto* owned = static_cast<std::shared_ptr<Outcome>*>(userdata);
    std::shared_ptr<Outcome> outcome = std::move(*owned);
    delete owned;
    return outcome;
  }
};

struct Pending {
  WGPUFuture future{};
  std::shared_ptr<Outcome> outcome;
};

/// One WebGPU instance with its adapters, real ones first. Thread safe after creation.
class Instance {
 public:
  struct Adapter {
    AdapterInfo info;
    AdapterHandle handle;
    WGPULimits limits{};
    std::vector<WGPUFeatureName> features;  // features that Weft requests from a device
  };

  static std::shared_ptr<const Instance> create();
  /// The instance of this process, created by the first call: that takes 60 to 100 ms on a machine with a GPU.
  static std::shared_ptr<const Instance> shared();

  const std::vector<Adapter>& adapters() const { return adapters_; }
  /// The mode of every callback that is waited for.
  WGPUCallbackMode callback_mode() const;
  /// Waits at most `timeout_ns`; true when the callback has run. `device` is what wgpu-native polls, else unused.
  bool wait(const Pending& pending, WGPUDevice device, std::uint64_t timeout_ns) const;

 private:
  Instance() = default;
  void find_adapters();

  InstanceHandle handle_;
  std::vector<Adapter> adapters_;
};

}  // namespace weft::webgpu
