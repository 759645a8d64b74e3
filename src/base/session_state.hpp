// The state of one session, in parts: each folder keeps its part here, and sees no other folder's.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

namespace weft {

/// The state behind a Session. A thread works in one session at a time: the initial one, until it enters another. Thread
/// safety: any thread may call any function. Parts guard themselves.
class SessionState : public std::enable_shared_from_this<SessionState> {
 public:
  /// One for each folder that keeps a part; parts are destroyed in reverse order.
  enum class Slot : std::uint8_t { threads, device, graph, runtime, count };
  struct Part {
    virtual ~Part() = default;
    /// Called when the session's owner has gone: drops references to values, so that the last value frees the state.
    virtual void close() {}
  };

  /// `threads`: size of the session's pool of threads; 0: the default of `thread_count()`.
  static std::shared_ptr<SessionState> make(int threads = 0);
  /// The initial state of the process: never destroyed, because tensors in globals of the user's program are released later.
  static SessionState& initial();
  /// The state in which this thread works.
  static SessionState& current() {
    SessionState* state = current_;
    return state ? *state : initial();
  }

  /// The part of class P, made from this state on first use.
  template <class P>
  P& part() {
    Part* part = slots_[static_cast<std::size_t>(P::kSlot)].load(std::memory_order_acquire);
    if (!part)
      part = &fill(P::kSlot, [](SessionState& state) -> std::unique_ptr<Part> { return std::make_unique<P>(state); });
    return static_cast<P&>(*part);
  }

  /// Makes `state` the current one of this thread (null: the initial one) and returns the previous one.
  static SessionState* enter(SessionState* state) { return std::exchange(current_, state); }

  int threads() const { return threads_; }
  void close();

  ~SessionState();
  SessionState(const SessionState&) = delete;

  /// Makes a state, which outlives the scope, the current one of this thread. Scopes of a thread end in reverse order.
  class Scope {
   public:
    explicit Scope(SessionState& state) : before_(enter(&state)) {}
    ~Scope() { enter(before_); }
    Scope(const Scope&) = delete;

   private:
    SessionState* before_;
  };

 private:
  explicit SessionState(int threads) : threads_(threads) {}
  Part& fill(Slot slot, std::unique_ptr<Part> (*make)(SessionState&));

  static inline constinit thread_local SessionState* current_ = nullptr;

  int threads_;
  std::recursive_mutex filling_;
  std::array<std::atomic<Part*>, static_cast<std::size_t>(Slot::count)> slots_ = {};
};

}  // namespace weft
