// What an exchange and its calls share.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <string_view>

#include "base/text_map.hpp"
#include "operations/call_state.hpp"
#include "operations/workers.hpp"

namespace weft::operations::detail {

class ExchangeState : public std::enable_shared_from_this<ExchangeState> {
 public:
  ExchangeState(std::shared_ptr<Registry> registry, const ExchangeOptions& options);
  /// Ends everything; no handler runs once this returns.
  void close();

  // ---- Beginning and end of calls (pending.cpp) -----------------------------------------------------------------------------

  /// `identity` lives as long as the call; with `owned` the state keeps a copy.
  StateRef begin(std::string_view id, Value input, const CallOptions& call, const Identity* identity, bool owned,
                 const CallState* parent);
  void start_timer(const StateRef& state);
  /// Ends a call. False if it has ended already.
  bool finish(const StateRef& state, std::optional<OperationError> error,
              std::vector<std::weak_ptr<CallState>>* children = nullptr);
  void fail(const StateRef& state, const OperationError& error);
  /// Ends a call from outside of its handler, and the nested calls that its rules end with it.
  bool abort(const StateRef& state, std::string_view code, const std::string& message);

  /// One of the calls that an identity may have at once.
  struct Place {
    std::shared_ptr<ExchangeState> exchange;
    std::optional<std::string> identity;
    ~Place();
  };
  std::shared_ptr<Place> take_place(const CallOptions& call);

  // ---- The steps of a call (run_call.cpp) -----------------------------------------------------------------------------------

  /// The whole call on this thread, for one answer.
  Envelope call_here(const StateRef& state, const EntryRef& entry, bool from_outside);
  /// The whole call on this thread, for those who wait for its answers, or for `CallState::take`.
  void serve(const StateRef& state);
  /// The whole call on a worker.
  StateRef start(std::string_view id, Value input, const CallOptions& call);
  /// Gives an answer to the caller, once there is room. Errors: what the call ended with.
  void answer(const Registry::Entry& entry, const StateRef& state, Value data);
  void request(const CallState& state);

  // ---- Observers (observers.cpp) --------------------------------------------------------------------------------------------

  struct Observer {
    std::function<void(const Event&)> function;
    std::atomic<bool> alive = true;
    std::atomic<int> running = 0;
  };
  void publish(const Event& event);

  std::shared_ptr<Registry> registry;
  const ExchangeOptions options;
  SessionState& session;
  const std::uint32_t seed;
  const std::string name;  // among all exchanges, for CallOptions::via
  std::atomic<std::uint64_t> last_request = 0;
  std::mutex mutex;  // of pending, calls_of and closed
  TextMap<StateRef> pending;
  TextMap<std::size_t> calls_of;  // identities with calls on threads
  bool closed = false;
  Timer timer;
  std::unique_ptr<Workers> workers;
  std::atomic<bool> has_observers = false;
  std::shared_mutex observer_mutex;
  std::map<std::size_t, std::shared_ptr<Observer>> observers;
  std::size_t next_observer = 1;

 private:
  void drain(const StateRef& state);
  EntryRef admit(const StateRef& state, const EntryRef& entry, bool from_outside);
  static Envelope wrap(const Registry::Entry& entry, Value data);
  Value run(const Registry::Entry& entry, const StateRef& state);
};

}  // namespace weft::operations::detail
