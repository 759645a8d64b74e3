// The exchange as its users see it: calls, and those who wait for their answers.
#include "weft/operations/exchange.hpp"

#include <fmt/format.h>

#include "base/session_state.hpp"
#include "operations/exchange_state.hpp"

namespace weft::operations {

// ---- Those who wait -----------------------------------------------------------------------------------------------------------

namespace {

// The next answer; nothing where the call has ended well. Errors: what the call ended with; TIMEOUT after `time`.
std::optional<Envelope> take(detail::CallState& state, const std::optional<Clock::time_point>& time, bool& timed_out) {
  std::unique_lock lock(state.mutex);
  const auto ready = [&] { return !state.answers.empty() || state.finished; };
  timed_out = false;
  if (!time) {
    state.changed.wait(lock, ready);
  } else if (!state.changed.wait_until(lock, *time, ready)) {
    timed_out = true;
    return std::nullopt;
  }
  if (!state.answers.empty()) {
    Envelope envelope = std::move(state.answers.front());
    state.answers.pop_front();
    lock.unlock();
    state.changed.notify_all();
    return envelope;
  }
  if (state.error) state.throw_error();
  return std::nullopt;
}

}  // namespace

const std::string& PendingCall::request_id() const { return state_->request_id; }

Envelope PendingCall::get() {
  bool timed_out = false;
  if (auto envelope = take(*state_, std::nullopt, timed_out)) return std::move(*envelope);
  throw OperationError(kExecutionError,
                       fmt::format("{} ended without an answer, or its answer was taken", state_->operation_id));
}

std::optional<Envelope> PendingCall::get_until(Clock::time_point time) {
  bool timed_out = false;
  auto envelope = take(*state_, time, timed_out);
  if (!envelope && !timed_out)
    throw OperationError(kExecutionError,
                         fmt::format("{} ended without an answer, or its answer was taken", state_->operation_id));
  return envelope;
}

const std::string& Subscription::request_id() const { return state_->request_id; }

std::optional<Envelope> Subscription::next() {
  bool timed_out = false;
  return take(*state_, std::nullopt, timed_out);
}

std::optional<Envelope> Subscription::next_until(Clock::time_point time, bool& is_waiting) {
  return take(*state_, time, is_waiting);
}

void Subscription::abort() { exchange_->abort(state_, kAborted, "its subscriber has left"); }

Subscription& Subscription::operator=(Subscription&& other) noexcept {
  std::swap(exchange_, other.exchange_);
  std::swap(state_, other.state_);
  return *this;
}

Subscription::~Subscription() {
  if (state_) abort();
}

// ---- The exchange -------------------------------------------------------------------------------------------------------------

Exchange::Exchange(std::shared_ptr<Registry> registry, const ExchangeOptions& options) {
  if (!registry) throw UsageError("an exchange needs a registry");
  if (options.threads_max < 1) throw UsageError("an exchange needs at least one thread");
  state_ = std::make_shared<detail::ExchangeState>(std::move(registry), options);
}

Exchange::~Exchange() { state_->close(); }

Registry& Exchange::registry() const { return *state_->registry; }

Envelope Exchange::call(std::string_view id, Value input, const CallOptions& options) {
  const detail::EntryRef entry = state_->registry->entry(id);
  const bool streams = entry && entry->specification->kind == Kind::subscription;
  if (streams || options.deadline) {
    Subscription answers = subscribe(id, std::move(input), options);
    if (auto first = answers.next()) return std::move(*first);
    throw OperationError(kExecutionError, fmt::format("{} ended without an answer", id));
  }
  const detail::StateRef state =
      state_->begin(id, std::move(input), options, options.identity ? &*options.identity : nullptr, false, nullptr);
  return state_->call_here(state, entry, true);
}

void Exchange::run(std::string_view id, Value input, const CallOptions& options,
                   const std::function<bool(Envelope)>& take, const std::function<void()>& admitted) {
  const SessionState::Scope scope(state_->session);
  const auto place = state_->take_place(options);
  const detail::StateRef state =
      state_->begin(id, std::move(input), options, options.identity ? &*options.identity : nullptr, false, nullptr);
  state->take = &take;
  state->admitted = &admitted;
  state_->request(*state);
  state_->start_timer(state);
  state_->serve(state);
  const std::lock_guard lock(state->mutex);
  if (state->error) state->throw_error();
}

PendingCall Exchange::start(std::string_view id, Value input, const CallOptions& options) {
  return PendingCall(state_->start(id, std::move(input), options));
}

Subscription Exchange::subscribe(std::string_view id, Value input, const CallOptions& options) {
  return Subscription(state_, state_->start(id, std::move(input), options));
}

bool Exchange::abort(std::string_view request_id, const Identity* by) {
  detail::StateRef state;
  {
    const std::lock_guard lock(state_->mutex);
    const auto found = state_->pending.find(request_id);
    if (found == state_->pending.end()) return false;
    state = found->second;
  }
  if (by && (state->identity_id != by->id || !state->parent_id.empty())) return false;
  return state_->abort(state, kAborted, "it was aborted");
}

void Exchange::abort_all_of(std::string_view identity) {
  std::vector<detail::StateRef> all;
  {
    const std::lock_guard lock(state_->mutex);
    for (const auto& [id, state] : state_->pending)
      if (state->parent_id.empty() && state->identity_id == identity) all.push_back(state);
  }
  for (const detail::StateRef& state : all) state_->abort(state, kAborted, "its caller has left");
}

std::size_t Exchange::pending() const {
  const std::lock_guard lock(state_->mutex);
  return state_->pending.size();
}

}  // namespace weft::operations
