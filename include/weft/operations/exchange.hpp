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

/// What becomes of a call when the one that made it is aborted. `abort_dependents`: it is aborted too, and all that it
/// called. `continue_running`: it may finish, with the calls that it has made; new ones are refused as ABORTED.
enum class OnAbort : std::uint8_t { abort_dependents, continue_running };

struct CallOptions {
  std::optional<Identity> identity = {};  ///< who calls; nobody: open operations only
  std::optional<Clock::time_point> deadline =
      {};                       ///< TIMEOUT after it; of a nested call the parent's, if that is earlier
  std::string request_id = {};  ///< empty: a new one
  OnAbort on_abort = OnAbort::abort_dependents;  ///< of a nested call
  std::size_t buffer = 64;                       ///< answers that wait for a subscriber, before the handler waits
};

namespace detail {
class ExchangeState;
struct CallState;
}  // namespace detail

/// A call that runs, as its handler sees it. Valid while the handler runs, on its thread and those that it waits for.
class Context {
 public:
  const Value& input() const;
  /// A member of the input. Errors: UsageError where there is none.
  const Value& input(std::string_view name) const { return input()[name]; }
  /// Who called: null for a caller without an identity.
  const Identity* identity() const;
  const std::string& request_id() const;
  std::optional<Clock::time_point> deadline() const;
  /// Asks the handler to stop: the call was aborted or its deadline has passed. What it answers later is dropped.
  std::stop_token stop() const;
  /// Errors: OperationError ABORTED or TIMEOUT once the call was asked to stop.
  void check() const;

  /// An answer of a subscription. Waits while as many answers as fit wait for the subscriber.
  /// Errors: as `check`; UsageError in an operation that is not a subscription.
  void emit(Value data);

  /// Calls another operation for this one: with the handler's authority, within its reach, and no longer than this call.
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

/// A call that was started. Thread safety: all of it.
class PendingCall {
 public:
  const std::string& request_id() const;
  /// Waits for the answer. Errors: OperationError.
  Envelope get();
  /// Waits until a time; nothing if there is no answer yet.
  std::optional<Envelope> get_until(Clock::time_point time);

 private:
  friend class Exchange;
  explicit PendingCall(std::shared_ptr<detail::CallState> state) : state_(std::move(state)) {}
  std::shared_ptr<detail::CallState> state_;
};

/// The answers of a subscription. Destroying it aborts the call. Thread safety: one thread at a time, and `abort`.
class Subscription {
 public:
  const std::string& request_id() const;
  /// The next answer; nothing behind the last one. Errors: OperationError once all earlier answers are taken.
  std::optional<Envelope> next();
  /// Waits until a time only. `is_waiting`: there is no answer yet.
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
  int threads_max = 64;              ///< that run calls with deadlines, started calls and subscriptions
  std::size_t waiting_max = 1024;    ///< calls that wait for a thread; more are OVERLOADED
  std::size_t pending_max = 10'000;  ///< calls that are under way; more are OVERLOADED
};

/// Runs calls of a registry's operations. The order: find the specification, find the handler, check access, validate the
/// input, run, wrap, normalise and validate the output (an output that the schema does not take is a warning), publish.
///
/// Everything that comes in here comes from outside: internal operations are not found. Handlers work in the session in
/// which the exchange was made; it must outlive the exchange.
/// Thread safety: all of it. Destroying it aborts all calls and waits for their handlers.
class Exchange {
 public:
  explicit Exchange(std::shared_ptr<Registry> registry, const ExchangeOptions& options = {});
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  Registry& registry() const;

  /// Calls a query or mutation and waits. Without a deadline it runs on this thread. Of a subscription: the first answer.
  /// Errors: OperationError.
  Envelope call(std::string_view id, Value input, const CallOptions& options = {});
  /// Starts a call. Errors: OperationError OVERLOADED; all others come out of `PendingCall::get`.
  PendingCall start(std::string_view id, Value input, const CallOptions& options = {});
  /// All answers of a subscription, or the one of another operation. Errors: as `start`.
  Subscription subscribe(std::string_view id, Value input, const CallOptions& options = {});

  /// Aborts a call that is under way, and what it called. With `by`, only if that is the identity (by its id) that made the
  /// call. False if there is no such call.
  bool abort(std::string_view request_id, const Identity* by = nullptr);
  /// Aborts everything that an identity has under way.
  void abort_all_of(std::string_view identity);
  /// Calls that are under way.
  std::size_t pending() const;

  /// Tells of every event, on the thread where it happens. The function must not throw. Gives a number for `forget`.
  std::size_t observe(std::function<void(const Event&)> observer);
  /// No event comes once this returns.
  void forget(std::size_t observer);

 private:
  std::shared_ptr<detail::ExchangeState> state_;
};

}  // namespace weft::operations
