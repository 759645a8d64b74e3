// Threads that run calls, and a clock that ends them.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "weft/operations/envelope.hpp"

namespace weft {
class SessionState;
}

namespace weft::operations {

/// Runs functions on threads, as many as there is work for. Destroying it finishes what was taken.
class Workers {
 public:
  Workers(SessionState& session, int threads_max, std::size_t waiting_max);
  ~Workers();
  /// False if too many wait already.
  bool run(std::function<void()> work);

 private:
  void serve();
  SessionState& session_;
  const int threads_max_;
  const std::size_t waiting_max_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  std::vector<std::thread> threads_;
  std::size_t idle_ = 0;
  bool ending_ = false;
};

/// Calls functions at given times, on a thread of its own that begins with the first.
class Timer {
 public:
  ~Timer();
  /// Gives a number for `cancel`, not 0.
  std::uint64_t add(Clock::time_point time, std::function<void()> function);
  /// Removes an entry. One that runs or has run stays as it is.
  void cancel(std::uint64_t number);

 private:
  void serve();
  std::mutex mutex_;
  std::condition_variable changed_;
  using Key = std::pair<Clock::time_point, std::uint64_t>;
  std::map<Key, std::function<void()>> entries_;
  std::unordered_map<std::uint64_t, Clock::time_point> times_;
  std::uint64_t next_ = 1;
  std::thread thread_;
  bool ending_ = false;
};

}  // namespace weft::operations
