// What a thread of its own makes piece by piece, for Python to iterate over.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

#include "base/session_state.hpp"
#include "handle.hpp"
#include "interrupt.hpp"

namespace weft::python {

/// Pieces, and a result at the end. The maker runs in the session of whoever starts it, and without the GIL. Destruction stops it.
template <class Piece, class Result>
class Produced {
 public:
  /// make(put, stop): calls put for each piece, and returns the result.
  template <class F>
  explicit Produced(F make)
      : thread_(
            [this, make = std::move(make), &session = SessionState::current()](const std::stop_token& stop) mutable {
              const SessionState::Scope scope(session);
              try {
                Result made = make([this](Piece piece) { change([&] { pieces_.push_back(std::move(piece)); }); }, stop);
                change([&] { result_ = std::move(made); });
              } catch (...) {
                change([&] { error_ = std::current_exception(); });
              }
              change([&] { has_ended_ = true; });
            }) {}
  ~Produced() {
    const nb::gil_scoped_release free;
    thread_.request_stop();
    thread_.join();
  }
  Produced(const Produced&) = delete;

  /// The next piece; nothing at the end. Needs no GIL. Errors: those of the maker, after its last piece.
  std::optional<Piece> next() {
    wait([&] { return !pieces_.empty(); });
    const std::lock_guard lock(mutex_);
    if (!pieces_.empty()) {
      Piece piece = std::move(pieces_.front());
      pieces_.pop_front();
      return piece;
    }
    if (error_) std::rethrow_exception(error_);
    return std::nullopt;
  }
  /// Waits for the end; pieces that were not taken stay. Needs no GIL.
  Result result() {
    wait([] { return false; });
    const std::lock_guard lock(mutex_);
    if (error_) std::rethrow_exception(error_);
    return *result_;
  }
  void stop() { thread_.request_stop(); }

 private:
  template <class F>
  void change(const F& function) {
    {
      const std::lock_guard lock(mutex_);
      function();
    }
    changed_.notify_all();
  }
  template <class F>
  void wait(const F& is_enough) {
    wait_for<std::chrono::steady_clock>(
        [&](std::chrono::steady_clock::time_point time) {
          std::unique_lock lock(mutex_);
          const bool is_there = changed_.wait_until(lock, time, [&] { return has_ended_ || is_enough(); });
          return is_there ? std::optional(true) : std::nullopt;
        },
        [&] { thread_.request_stop(); });
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Piece> pieces_;
  std::optional<Result> result_;
  std::exception_ptr error_;
  bool has_ended_ = false;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace weft::python
