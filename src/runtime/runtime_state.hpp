// A session's part of the runtime: its devices, its plans, and the compiler's settings.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backend/contract.hpp"
#include "base/function_ref.hpp"
#include "base/session_state.hpp"
#include "runtime/plan_cache.hpp"
#include "weft/compile.hpp"
#include "weft/device.hpp"

namespace weft::runtime {

/// Buffers given back, by size, for the next request of that size. If they are too many, those that were given back longest ago
/// are freed: a program that turns to other sizes soon finds these here.
class BufferPool {
 public:
  backend::BufferPtr take(std::size_t bytes);
  void give(std::size_t bytes, backend::BufferPtr buffer);
  void clear();

  static constexpr std::size_t kBytesMax = std::size_t{512} << 20;

 private:
  struct Spare {
    std::size_t bytes;
    backend::BufferPtr buffer;
  };
  using Spares = std::list<Spare>;
  std::mutex mutex_;
  Spares spares_;  // in the order in which they were given back
  std::unordered_map<std::size_t, std::deque<Spares::iterator>> by_size_;
  std::size_t held_bytes_ = 0;
};

/// A device of a session. Buffers and programs share ownership, so it is freed after them.
struct DeviceEntry : std::enable_shared_from_this<DeviceEntry> {
  std::unique_ptr<backend::Backend> backend;
  BufferPool pool;
  std::atomic<std::uint64_t> used = 0;  // bytes of buffers in use, without those in the pool
};

class RuntimeState final : public SessionState::Part {
 public:
  static constexpr auto kSlot = SessionState::Slot::runtime;
  explicit RuntimeState(SessionState&);
  void close() override { plans.clear(); }
  static RuntimeState& current() { return SessionState::current().part<RuntimeState>(); }

  /// Opens the device on first use. Errors: DeviceError if there is no such device.
  DeviceEntry& device(Device device);
  /// Sets the backend of a device that is not open yet.
  void use(Device device, std::unique_ptr<backend::Backend> backend);

  PlanCache plans;
  CompileSettings settings;
  std::atomic<std::uint64_t> bytes_max = 0;  // on each device; 0: no limit

  /// Errors: DeviceMemoryError if `bytes` more would exceed the limit.
  void check_limit(const DeviceEntry& device, std::uint64_t bytes, FunctionRef<std::string()> label) const;

 private:
  std::mutex mutex_;
  std::map<std::pair<int, int>, std::shared_ptr<DeviceEntry>> devices_;
  std::array<std::atomic<DeviceEntry*>, 3> first_ = {};  // index 0 of each kind, found without the lock
};

}  // namespace weft::runtime
