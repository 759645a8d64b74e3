// The state of a call, which the map of pending calls, its thread, its callers and its parent share. It ends once: the first end
// (answer, error, deadline, abort) counts.
#pragma once

#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "operations/registry_entry.hpp"
#include "weft/operations/exchange.hpp"

namespace weft::operations::detail {

using EntryRef = std::shared_ptr<const Registry::Entry>;

struct CallState {
  std::string request_id, client_request_id, operation_id, parent_id, session;
  std::vector<std::string> via;
  std::optional<Identity> owned_identity;  // of a call on another thread
  const Identity* identity = nullptr;      // for the thread that runs the call, while it does
  std::optional<std::string> identity_id;
  Value input;
  std::optional<Clock::time_point> deadline;
  std::uint64_t timer = 0;
  OnAbort on_abort = OnAbort::abort_dependents;
  int depth = 0;
  bool is_stream = false;
  const std::function<bool(Envelope)>* take = nullptr;  // gets the answers, instead of the list below
  const std::function<void()>* admitted = nullptr;      // is called before the handler
  std::mutex taking;
  std::size_t buffer = 64;
  std::stop_source stop;

  std::mutex mutex;
  std::condition_variable changed;
  std::list<Envelope> answers;
  bool finished = false;
  bool draining = false;
  std::optional<OperationError> error;
  std::vector<std::weak_ptr<CallState>> children;

  // Under the mutex.
  [[noreturn]] void throw_error() const {
    throw error.value_or(OperationError(kAborted, operation_id + ": the call has ended"));
  }
};
using StateRef = std::shared_ptr<CallState>;

}  // namespace weft::operations::detail
