// How calls begin and end. All that are under way are in one map.
#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "base/quote.hpp"
#include "base/session_state.hpp"
#include "operations/exchange_state.hpp"

namespace weft::operations::detail {
namespace {

constexpr std::size_t kPlacesMax = 16;  // that a call may pass

}  // namespace

ExchangeState::ExchangeState(std::shared_ptr<Registry> registry_, const ExchangeOptions& options_)
    : registry(std::move(registry_)),
      options(options_),
      session(SessionState::current()),
      seed(std::random_device{}()),
      name(fmt::format("{:08x}{:08x}", std::random_device{}(), std::random_device{}())) {
  workers = std::make_unique<Workers>(session, options.threads_max, options.waiting_max);
}

void ExchangeState::close() {
  std::vector<StateRef> all;
  {
    const std::lock_guard lock(mutex);
    closed = true;
    for (const auto& [id, state] : pending) all.push_back(state);
  }
  for (const StateRef& state : all) abort(state, kAborted, "the exchange is closed");
  workers.reset();
}

StateRef ExchangeState::begin(std::string_view id, Value input, const CallOptions& call, const Identity* identity,
                              bool owned, const CallState* parent) {
  auto state = std::make_shared<CallState>();
  if (identity) {
    if (owned) state->owned_identity = *identity;
    state->identity = owned ? &*state->owned_identity : identity;
    state->identity_id = identity->id;
  }
  if (!parent) {
    if (std::find(call.via.begin(), call.via.end(), name) != call.via.end())
      throw OperationError(kLoop,
                           fmt::format("{}: the call has come back to a place that it had passed; places must not "
                                       "offer each other's operations in a circle",
                                       quote(id)));
    if (call.via.size() >= kPlacesMax)
      throw OperationError(kLoop, fmt::format("{}: the call has passed {} places", quote(id), call.via.size()));
    state->via = call.via;
    state->via.push_back(name);
    state->client_request_id = call.client_request_id;
  } else {
    state->via = parent->via;
  }
  state->request_id = call.request_id.empty() ? fmt::format("{:08x}-{:x}", seed, ++last_request) : call.request_id;
  state->operation_id = id;
  state->input = std::move(input);
  state->deadline = call.deadline;
  state->session = call.session.empty() && parent ? parent->session : call.session;
  state->on_abort = call.on_abort;
  state->buffer = std::max<std::size_t>(1, call.buffer);
  if (parent) {
    state->parent_id = parent->request_id;
    state->depth = parent->depth + 1;
    if (parent->deadline && (!state->deadline || *parent->deadline < *state->deadline))
      state->deadline = parent->deadline;
  }
  {
    const std::lock_guard lock(mutex);
    if (closed) throw OperationError(kAborted, "the exchange is closed");
    if (pending.size() >= options.pending_max)
      throw OperationError(kOverloaded,
                           fmt::format("{} calls are under way, which is the limit; call again later", pending.size()));
    if (!pending.emplace(state->request_id, state).second)
      throw OperationError(kValidationError, fmt::format("the request id {} is in use", quote(state->request_id)));
  }
  return state;
}

void ExchangeState::start_timer(const StateRef& state) {
  if (!state->deadline) return;
  std::weak_ptr<CallState> weak = state;
  const std::uint64_t number = timer.add(*state->deadline, [this, weak] {
    if (const StateRef late = weak.lock()) abort(late, kTimeout, "the deadline has passed");
  });
  const std::lock_guard lock(state->mutex);
  state->timer = number;
  if (state->finished) timer.cancel(number);
}

bool ExchangeState::finish(const StateRef& state, std::optional<OperationError> error,
                           std::vector<std::weak_ptr<CallState>>* children) {
  {
    const std::lock_guard lock(state->mutex);
    if (state->finished) return false;
    state->finished = true;
    state->error = std::move(error);
    if (state->timer) timer.cancel(state->timer);
    if (children) *children = std::move(state->children);
  }
  state->changed.notify_all();
  {
    const std::lock_guard lock(mutex);
    if (const auto found = pending.find(state->request_id); found != pending.end() && found->second == state)
      pending.erase(found);
  }
  return true;
}

void ExchangeState::fail(const StateRef& state, const OperationError& error) {
  if (!finish(state, error)) return;
  if (has_observers)
    publish({.type = Event::Type::error,
             .request_id = state->request_id,
             .code = error.code(),
             .message = error.what(),
             .details = error.details()});
}

bool ExchangeState::abort(const StateRef& state, std::string_view code, const std::string& message) {
  std::vector<std::weak_ptr<CallState>> children;
  if (!finish(state, OperationError(code, fmt::format("{}: {}", state->operation_id, message)), &children))
    return false;
  state->stop.request_stop();
  if (has_observers) {
    if (code == kAborted)
      publish({.type = Event::Type::aborted, .request_id = state->request_id});
    else
      publish(
          {.type = Event::Type::error, .request_id = state->request_id, .code = std::string(code), .message = message});
  }
  for (const auto& weak : children)
    if (const StateRef child = weak.lock()) {
      if (child->on_abort == OnAbort::abort_dependents)
        abort(child, kAborted, "the call that made it was ended");
      else
        drain(child);
    }
  return true;
}

// Lets a call finish with what it has started.
void ExchangeState::drain(const StateRef& state) {
  std::vector<std::weak_ptr<CallState>> children;
  {
    const std::lock_guard lock(state->mutex);
    state->draining = true;
    children = state->children;
  }
  for (const auto& weak : children)
    if (const StateRef child = weak.lock()) drain(child);
}

ExchangeState::Place::~Place() {
  if (!identity) return;
  const std::lock_guard lock(exchange->mutex);
  const auto found = exchange->calls_of.find(*identity);
  if (--found->second == 0) exchange->calls_of.erase(found);
}

std::shared_ptr<ExchangeState::Place> ExchangeState::take_place(const CallOptions& call) {
  auto place = std::make_shared<Place>(Place{shared_from_this(), std::nullopt});
  if (!call.identity) return place;
  const std::lock_guard lock(mutex);
  std::size_t& count = calls_of[call.identity->id];
  if (count >= options.calls_per_identity_max)
    throw OperationError(
        kOverloaded, fmt::format("{} calls of this caller are under way, which is the limit; call again later", count));
  ++count;
  place->identity = call.identity->id;
  return place;
}

}  // namespace weft::operations::detail
