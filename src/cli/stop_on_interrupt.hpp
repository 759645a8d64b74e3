// Ctrl-C, SIGTERM and SIGHUP as a stop token, which also stops a long pass in the middle.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <thread>

#include "cli/interrupt.hpp"

namespace weft::cli {

/// While one lives, the first signal asks for a stop; the second has its usual effect. One at a time.
class StopOnInterrupt {
 public:
  explicit StopOnInterrupt(std::stop_source stop = {})
      : stop_(std::move(stop)), watch_([this](const std::stop_token& end) {
          // A signal handler may only set a flag, so a thread has to poll the flag.
          std::unique_lock lock(mutex_);
          while (!end.stop_requested() && signal() == 0)
            wake_.wait_for(lock, end, std::chrono::milliseconds(20), [] { return false; });
          if (signal() != 0) stop_.request_stop();
        }) {}
  std::stop_token token() const { return stop_.get_token(); }
  void request_stop() { stop_.request_stop(); }
  /// The signal that came, or 0.
  int signal() const { return scope_.signal(); }

 private:
  InterruptScope scope_;
  std::stop_source stop_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::jthread watch_;  // last: it uses the others
};

}  // namespace weft::cli
