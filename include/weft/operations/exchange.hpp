// Calls: requests, answers, deadlines and aborts of the operations of a registry.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "weft/operations/envelope.hpp"
#include "weft/operations/registry.hpp"

namespace weft::operations {

/// What happens to a nested call when its parent is aborted. `abort_dependents`: it is aborted too, with all calls that it
/// made. `continue_running`: it may finish, with the calls that it has made; new calls are refused as ABORTED.
enum class OnAbort : std::uint8_t { abort_dependents, continue_running };

struct CallOptions {
  std::optional<Identity> identity = {};  ///< the caller; unset: only open operations can be called
  std::optional<Clock::time_point> deadline =
      {};                       ///< TIMEOUT after it; a nested call has its parent's if that is earlier
  std::string request_id = {};  ///< empty: a new one
  /// What the caller itself calls the request, if it says so. A handler that passes the call on passes this too, so that a
  /// mutation runs once wherever it runs. Nested calls do not have it.
  std::string client_request_id = {};
  /// The names of the exchanges that the call has passed, the first one first. Errors: LOOP at an exchange that is among them.
  std::vector<std::string> via = {};
  /// The caller's connection, by a name that the transport gives it: what the call leaves for its caller, such as tensors under
  /// handles, ends with the connection. Empty: it is kept for as long as the caller's identity may keep it.
  std::string session = {};
  OnAbort on_abort = OnAbort::abort_dependents;  ///< for a nested call
  std::size_t buffer = 64;                       ///< answers that may wait for a subscriber before the handler waits
};

namespace detail {
class ExchangeState;
struct CallState;
}  // namespace detail

/// A running call, for its handler. Valid while the handler runs, on its thread and on threads that it waits for.
class Context {
 public:
  const Value& input() const;
  /// A member of the input. Errors: UsageError if there is none.
  const Value& input(std::string_view name) const { return input()[name]; }
  /// The caller's identity, or null if it has none.
  const Identity* identity() const;
  const std::string& request_id() const;
  /// As CallOptions has them; `via` ends with this exchange.
  const std::string& client_request_id() const;
  const std::vector<std::string>& via() const;
  /// The session of the call, or of the call that made it.
  const std::string& session() const;
  std::optional<Clock::time_point> deadline() const;
  /// Tells the handler to stop: the call was aborted or its deadline has passed. Later answers are dropped.
  std::stop_token stop() const;
  /// Does nothing, or throws OperationError ABORTED or TIMEOUT if the handler should stop.
  void check() const;

  /// Sends an answer of a subscription. Waits while the subscriber's buffer is full. Errors: as `check`; UsageError in an
  /// operation that is not a subscription.
  void emit(Value data);

  /// Calls another operation from this one, with the handler's authority, within its reach, and no longer than this call.
  /// Errors: OperationError; UsageError for a subscription.
  Value call(std::string_view id, Value input, const CallOptions& options = {});

 private:
  friend class detail::ExchangeState;
  Context(detail::ExchangeState& exchange, std::shared_ptr<detail::CallState> state, const Handler& handler)
      : exchange_(exchange), state_(std::move(state)), handler_(handler) {}
  detail::ExchangeState& exchange_;
  std::shared_ptr<detail::CallState> state_;
  const Handler& handler_;
};

/// A call that was started. Thread safety: any thread may call any function.
class PendingCall {
 public:
  const std::string& request_id() const;
  /// Waits for the answer. Errors: OperationError.
  Envelope get();
  /// Waits until `time`; returns nothing if there is no answer by then.
  std::optional<Envelope> get_until(Clock::time_point time);

 private:
  friend class Exchange;
  explicit PendingCall(std::shared_ptr<detail::CallState> state) : state_(std::move(state)) {}
  std::shared_ptr<detail::CallState> state_;
};

/// The answers of a subscription. Destroying it aborts the call. Thread safety: one thread at a time; `abort` from any.
class Subscription {
 public:
  const std::string& request_id() const;
  /// The next answer; nothing after the last one. Errors: OperationError once all earlier answers are taken.
  std::optional<Envelope> next();
  /// The same, but waits only until `time`. Sets `is_waiting` if there is no answer yet.
  std::optional<Envelope> next_until(Clock::time_point time, bool& is_waiting);
  void abort();

  Subscription(Subscription&&) noexcept = default;
  Subscription& operator=(Subscription&&) noexcept;
  ~Subscription();

 private:
  friend class Exchange;
  Subscription(std::shared_ptr<detail::ExchangeState> exchange, std::shared_ptr<detail::CallState> state)
      : exchange_(std::move(exchange)), state_(std::move(state)) {}
  std::shared_ptr<detail::ExchangeState> exchange_;
  std::shared_ptr<detail::CallState> state_;
};

struct ExchangeOptions {
  int threads_max = 256;             ///< threads for calls with deadlines, started calls and subscriptions
  std::size_t waiting_max = 1024;    ///< calls that may wait for a thread; more are OVERLOADED
  std::size_t pending_max = 10'000;  ///< calls that may be pending; more are OVERLOADED
  /// Calls of one identity that threads of the exchange run or hold in wait. More are OVERLOADED, so that one caller leaves
  /// room for the others.
  std::size_t calls_per_identity_max = 64;
};

/// Runs calls of a registry's operations. The steps: find the specification, find the handler, check access, validate the
/// input, run, wrap, normalise and validate the output (an output that does not fit its schema is a warning), publish.
///
/// Calls through an exchange come from outside, so internal operations are not found. Handlers work in the session in which the
/// exchange was made; the session must outlive the exchange. Thread safety: any thread may call any function. Destroying it
/// aborts all calls and waits for their handlers.
class Exchange {
 public:
  explicit Exchange(std::shared_ptr<Registry> registry, const ExchangeOptions& options = {});
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  Registry& registry() const;

  /// Calls a query or mutation and waits. Without a deadline it runs on this thread. For a subscription it returns the first
  /// answer. Errors: OperationError.
  Envelope call(std::string_view id, Value input, const CallOptions& options = {});
  /// Starts a call. Errors: OperationError OVERLOADED; `PendingCall::get` throws all others.
  PendingCall start(std::string_view id, Value input, const CallOptions& options = {});
  /// All answers of a subscription, or the one answer of another operation. Errors: as `start`.
  Subscription subscribe(std::string_view id, Value input, const CallOptions& options = {});

  /// Runs a call on this thread and gives its answers to `take`: all answers of a subscription, or the one answer of another
  /// operation. The handler waits while `take` does; `take` returns false once the caller has left, which aborts the call. An
  /// abort or a missed deadline tells the handler to stop, and this returns when it has. `admitted` is called once access and input
  /// are checked, before the handler; an OperationError that it throws ends the call. Errors: OperationError.
  void run(std::string_view id, Value input, const CallOptions& options, const std::function<bool(Envelope)>& take,
           const std::function<void()>& admitted = {});

  /// Aborts a pending call, and the calls that it made. With `by`, only if that identity (compared by its id) made the call.
  /// False if there is no such call.
  bool abort(std::string_view request_id, const Identity* by = nullptr);
  /// Aborts all pending calls of an identity.
  void abort_all_of(std::string_view identity);
  /// Number of pending calls.
  std::size_t pending() const;

  /// Reports every event, on the thread where it happens. The function must not throw. Returns a number for `forget`.
  std::size_t observe(std::function<void(const Event&)> observer);
  /// Removes an observer. It gets no event once this returns.
  void forget(std::size_t observer);

 private:
  std::shared_ptr<detail::ExchangeState> state_;
};

}  // namespace weft::operations
