// Calls from their request to their end. A call has a state, which the map of pending calls, its thread, its callers and its
// parent share. It ends once: the first end (answer, error, deadline, abort) counts.
#include "weft/operations/exchange.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <list>
#include <map>
#include <mutex>
#include <random>
#include <shared_mutex>

#include "base/quote.hpp"
#include "base/session_state.hpp"
#include "base/text_map.hpp"
#include "operations/registry_entry.hpp"
#include "operations/workers.hpp"

namespace weft::operations {
namespace {

constexpr int kNestedCallsMax = 64;

// "tensor.*" reaches tensor.matmul.
bool reaches(const std::vector<std::string>& reach, std::string_view id) {
  for (const std::string& pattern : reach) {
    if (pattern == id) return true;
    if (pattern.ends_with(".*") && id.starts_with(std::string_view(pattern).substr(0, pattern.size() - 1))) return true;
  }
  return false;
}

OperationError validation_error(std::string_view id, const std::vector<schema::Violation>& violations) {
  Value::Array details;
  for (const schema::Violation& each : violations)
    details.push_back(
        Value::object({{"path", each.instance_path}, {"schema", each.schema_path}, {"message", each.message}}));
  return OperationError(kValidationError,
                        fmt::format("{}: the input does not fit:\n{}", id, schema::to_string(violations)),
                        std::move(details));
}

}  // namespace

namespace detail {

using EntryRef = std::shared_ptr<const Registry::Entry>;

struct CallState {
  std::string request_id, operation_id, parent_id;
  std::optional<Identity> owned_identity;  // of a call on another thread
  const Identity* identity = nullptr;      // for the thread that runs the call, while it does
  std::optional<std::string> identity_id;
  Value input;
  std::optional<Clock::time_point> deadline;
  std::uint64_t timer = 0;
  OnAbort on_abort = OnAbort::abort_dependents;
  int depth = 0;
  bool is_stream = false;
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

class ExchangeState : public std::enable_shared_from_this<ExchangeState> {
 public:
  ExchangeState(std::shared_ptr<Registry> registry_, const ExchangeOptions& options_)
      : registry(std::move(registry_)), options(options_), seed(std::random_device{}()) {
    workers = std::make_unique<Workers>(SessionState::current(), options.threads_max, options.waiting_max);
  }

  // Ends everything; no handler runs once this returns.
  void close() {
    std::vector<StateRef> all;
    {
      const std::lock_guard lock(mutex);
      closed = true;
      for (const auto& [id, state] : pending) all.push_back(state);
    }
    for (const StateRef& state : all) abort(state, kAborted, "the exchange is closed");
    workers.reset();
  }

  // ---- Beginning and end --------------------------------------------------------------------------------------------------

  // `identity` lives as long as the call; with `owned` the state keeps a copy.
  StateRef begin(std::string_view id, Value input, const CallOptions& call, const Identity* identity, bool owned,
                 const CallState* parent) {
    auto state = std::make_shared<CallState>();
    if (identity) {
      if (owned) state->owned_identity = *identity;
      state->identity = owned ? &*state->owned_identity : identity;
      state->identity_id = identity->id;
    }
    state->request_id = call.request_id.empty() ? fmt::format("{:08x}-{:x}", seed, ++last_request) : call.request_id;
    state->operation_id = id;
    state->input = std::move(input);
    state->deadline = call.deadline;
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
        throw OperationError(
            kOverloaded, fmt::format("{} calls are under way, which is the limit; call again later", pending.size()));
      if (!pending.emplace(state->request_id, state).second)
        throw OperationError(kValidationError, fmt::format("the request id {} is in use", quote(state->request_id)));
    }
    return state;
  }

  void request(const CallState& state) {
    if (!has_observers) return;
    Event event{.type = Event::Type::requested,
                .request_id = state.request_id,
                .operation_id = state.operation_id,
                .input = state.input,
                .parent_request_id = state.parent_id,
                .deadline = state.deadline};
    event.identity = state.identity_id.value_or("");
    publish(event);
  }

  void start_timer(const StateRef& state) {
    if (!state->deadline) return;
    std::weak_ptr<CallState> weak = state;
    const std::uint64_t number = timer.add(*state->deadline, [this, weak] {
      if (const StateRef late = weak.lock()) abort(late, kTimeout, "the deadline has passed");
    });
    const std::lock_guard lock(state->mutex);
    state->timer = number;
    if (state->finished) timer.cancel(number);
  }

  // Ends a call. False if it has ended already.
  bool finish(const StateRef& state, std::optional<OperationError> error,
              std::vector<std::weak_ptr<CallState>>* children = nullptr) {
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

  void fail(const StateRef& state, const OperationError& error) {
    if (!finish(state, error)) return;
    if (has_observers)
      publish({.type = Event::Type::error,
               .request_id = state->request_id,
               .code = error.code(),
               .message = error.what(),
               .details = error.details()});
  }

  // Ends a call from outside of its handler, and the nested calls that its rules end with it.
  bool abort(const StateRef& state, std::string_view code, const std::string& message) {
    std::vector<std::weak_ptr<CallState>> children;
    if (!finish(state, OperationError(code, fmt::format("{}: {}", state->operation_id, message)), &children))
      return false;
    state->stop.request_stop();
    if (has_observers) {
      if (code == kAborted)
        publish({.type = Event::Type::aborted, .request_id = state->request_id});
      else
        publish({.type = Event::Type::error,
                 .request_id = state->request_id,
                 .code = std::string(code),
                 .message = message});
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
  void drain(const StateRef& state) {
    std::vector<std::weak_ptr<CallState>> children;
    {
      const std::lock_guard lock(state->mutex);
      state->draining = true;
      children = state->children;
    }
    for (const auto& weak : children)
      if (const StateRef child = weak.lock()) drain(child);
  }

  // ---- A call ---------------------------------------------------------------------------------------------------------------

  // Calls a function, and turns any exception into an OperationError.
  template <class Function>
  static auto guarded(std::string_view id, const Function& function) {
    try {
      return function();
    } catch (const OperationError&) {
      throw;
    } catch (const Error& error) {
      throw OperationError(kExecutionError, fmt::format("{}: {}", id, error.what()));
    } catch (const std::bad_alloc&) {
      throw OperationError(kExecutionError, fmt::format("{}: out of memory", id));
    } catch (const std::exception& error) {
      throw OperationError(kExecutionError, fmt::format("{}: {}", id, error.what()));
    } catch (...) {
      throw OperationError(kUnknownError, fmt::format("{}: failed with an exception of an unknown kind", id));
    }
  }

  // Finds specification and handler, checks access, validates the input.
  EntryRef admit(const StateRef& state, const EntryRef& entry, bool from_outside) {
    if (!entry || (from_outside && entry->specification->visibility == Visibility::internal))
      throw OperationError(kNotFound, fmt::format("there is no operation {}", quote(state->operation_id)));
    if (!entry->handler) throw OperationError(kNotFound, fmt::format("{} has no handler here", state->operation_id));
    if (const auto reason = registry->refusal(*entry->specification, state->identity, state->input))
      throw OperationError(kAccessDenied, fmt::format("{}: {}", state->operation_id, *reason));
    if (!entry->input.accepts(state->input))
      throw validation_error(state->operation_id, entry->input.check(state->input));
    state->input = entry->input.with_defaults(std::move(state->input));
    return entry;
  }

  // Data as an answer: wrapped, normalised, validated.
  Envelope wrap(const Registry::Entry& entry, Value data) {
    Envelope envelope{.data = entry.output.normalised(std::move(data)), .source = LocalSource{entry.id, Clock::now()}};
    if (!entry.output.accepts(envelope.data))
      for (const schema::Violation& each : entry.output.check(envelope.data))
        envelope.warnings.push_back(
            fmt::format("{}: {}", each.instance_path.empty() ? "the output" : each.instance_path, each.message));
    return envelope;
  }

  // Runs the handler on this thread. Errors: OperationError.
  Value run(const Registry::Entry& entry, const StateRef& state) {
    const std::shared_ptr<const Handler> handler = entry.handler;
    Context context(*this, state, *handler);
    try {
      return guarded(entry.id, [&] { return handler->run(context); });
    } catch (const OperationError& error) {
      if (is_known(entry, error.code())) throw;
      throw OperationError(
          kExecutionError,
          fmt::format("{}: {} ({}, a code that it does not declare)", entry.id, error.what(), quote(error.code())),
          error.details());
    }
  }

  static bool is_known(const Registry::Entry& entry, std::string_view code) {
    for (const std::string_view each :
         {kNotFound, kAccessDenied, kValidationError, kTimeout, kAborted, kExecutionError, kUnknownError, kOverloaded})
      if (code == each) return true;
    for (const DeclaredError& error : entry.specification->errors)
      if (code == error.code) return true;
    return false;
  }

  // The whole call on this thread, for one answer.
  Envelope call_here(const StateRef& state, const EntryRef& entry, bool from_outside) {
    try {
      request(*state);
      Envelope envelope = guarded(state->operation_id, [&] {
        admit(state, entry, from_outside);
        return wrap(*entry, run(*entry, state));
      });
      if (!finish(state, std::nullopt)) state_error(*state);
      if (has_observers) publish({.type = Event::Type::responded, .request_id = state->request_id, .output = envelope});
      return envelope;
    } catch (const OperationError& error) {
      fail(state, error);
      state_error(*state);
    }
  }
  // The error that ended the call. An abort may have come before the handler's own error.
  [[noreturn]] static void state_error(CallState& state) {
    const std::lock_guard lock(state.mutex);
    state.throw_error();
  }

  // The whole call on a worker, for those who wait for its answers.
  void serve(const StateRef& state) {
    {
      const std::lock_guard lock(state->mutex);
      if (state->finished) return;
    }
    try {
      bool streams = false;
      guarded(state->operation_id, [&] {
        const EntryRef entry = admit(state, registry->entry(state->operation_id), true);
        streams = entry->specification->kind == Kind::subscription;
        {
          const std::lock_guard lock(state->mutex);
          state->is_stream = streams;
        }
        Value data = run(*entry, state);
        if (!streams) answer(*entry, *state, std::move(data));
      });
      if (!finish(state, std::nullopt)) return;
      if (has_observers && streams) publish({.type = Event::Type::completed, .request_id = state->request_id});
    } catch (const OperationError& error) {
      fail(state, error);
    }
  }

  // Puts an answer where the caller takes it, once there is room. Errors: what the call ended with.
  void answer(const Registry::Entry& entry, CallState& state, Value data) {
    Envelope envelope = wrap(entry, std::move(data));
    std::optional<Envelope> copy;
    if (has_observers) copy = envelope;
    {
      std::unique_lock lock(state.mutex);
      state.changed.wait(lock, [&] { return state.finished || state.answers.size() < state.buffer; });
      if (state.finished) state.throw_error();
      state.answers.push_back(std::move(envelope));
    }
    state.changed.notify_all();
    if (copy) publish({.type = Event::Type::responded, .request_id = state.request_id, .output = std::move(copy)});
  }

  // One of the calls that an identity may have on threads of the exchange.
  struct Place {
    std::shared_ptr<ExchangeState> exchange;
    std::optional<std::string> identity;
    ~Place() {
      if (!identity) return;
      const std::lock_guard lock(exchange->mutex);
      const auto found = exchange->calls_of.find(*identity);
      if (--found->second == 0) exchange->calls_of.erase(found);
    }
  };
  std::shared_ptr<Place> take_place(const CallOptions& call) {
    auto place = std::make_shared<Place>(Place{shared_from_this(), std::nullopt});
    if (!call.identity) return place;
    const std::lock_guard lock(mutex);
    std::size_t& count = calls_of[call.identity->id];
    if (count >= options.calls_per_identity_max)
      throw OperationError(
          kOverloaded,
          fmt::format("{} calls of this caller are under way, which is the limit; call again later", count));
    ++count;
    place->identity = call.identity->id;
    return place;
  }

  StateRef start(std::string_view id, Value input, const CallOptions& call) {
    const std::shared_ptr<Place> place = take_place(call);
    const StateRef state = begin(id, std::move(input), call, call.identity ? &*call.identity : nullptr, true, nullptr);
    request(*state);
    start_timer(state);
    if (!workers->run([self = this, state, place] { self->serve(state); })) {
      const OperationError error(kOverloaded, "too many calls wait for a thread; call again later");
      fail(state, error);
      throw error;
    }
    return state;
  }

  // ---- Observers ------------------------------------------------------------------------------------------------------------

  struct Observer {
    std::function<void(const Event&)> function;
    std::atomic<bool> alive = true;
    std::atomic<int> running = 0;
  };

  void publish(const Event& event) {
    std::vector<std::shared_ptr<Observer>> all;
    {
      const std::shared_lock lock(observer_mutex);
      for (const auto& [number, observer] : observers) all.push_back(observer);
    }
    for (const auto& observer : all) {
      ++observer->running;
      if (observer->alive) observer->function(event);
      --observer->running;
      observer->running.notify_all();
    }
  }

  std::shared_ptr<Registry> registry;
  const ExchangeOptions options;
  const std::uint32_t seed;
  std::atomic<std::uint64_t> last_request = 0;
  std::mutex mutex;  // of pending, calls_of and closed
  TextMap<StateRef> pending;
  TextMap<std::size_t> calls_of;  // identities, on threads
  bool closed = false;
  Timer timer;
  std::unique_ptr<Workers> workers;
  std::atomic<bool> has_observers = false;
  std::shared_mutex observer_mutex;
  std::map<std::size_t, std::shared_ptr<Observer>> observers;
  std::size_t next_observer = 1;
};

}  // namespace detail

// ---- Context ----------------------------------------------------------------------------------------------------------------

const Value& Context::input() const { return state_->input; }
const Identity* Context::identity() const { return state_->identity; }
const std::string& Context::request_id() const { return state_->request_id; }
std::optional<Clock::time_point> Context::deadline() const { return state_->deadline; }
std::stop_token Context::stop() const { return state_->stop.get_token(); }

void Context::check() const {
  const std::lock_guard lock(state_->mutex);
  if (state_->finished && state_->error) state_->throw_error();
}

void Context::emit(Value data) {
  const detail::EntryRef entry = exchange_.registry->entry(state_->operation_id);
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->finished && state_->error) state_->throw_error();
    if (!state_->is_stream || !entry) throw UsageError("only a subscription has more than one answer");
  }
  exchange_.answer(*entry, *state_, std::move(data));
}

Value Context::call(std::string_view id, Value input, const CallOptions& options) {
  if (!reaches(handler_.reach, id)) throw OperationError(kNotFound, fmt::format("there is no operation {}", quote(id)));
  const detail::EntryRef entry = exchange_.registry->entry(id);
  if (entry && entry->specification->kind == Kind::subscription)
    throw UsageError(fmt::format("{} is a subscription; operations call queries and mutations", id));
  if (state_->depth >= kNestedCallsMax)
    throw OperationError(kExecutionError, fmt::format("calls are nested deeper than {}", kNestedCallsMax));
  const detail::StateRef child =
      exchange_.begin(id, std::move(input), options, &handler_.authority, false, state_.get());
  std::optional<OperationError> ended;
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->finished) {
      ended = state_->error.value_or(OperationError(kAborted, "the call has ended"));
    } else if (state_->draining) {
      ended = OperationError(kAborted, "the call that made it was ended, and it starts nothing new");
    } else {
      std::erase_if(state_->children, [](const auto& weak) { return weak.expired(); });
      state_->children.push_back(child);
    }
  }
  if (ended) {
    exchange_.finish(child, *ended);
    throw *ended;
  }
  exchange_.start_timer(child);
  return exchange_.call_here(child, entry, false).data;
}

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

std::size_t Exchange::observe(std::function<void(const Event&)> observer) {
  auto added = std::make_shared<detail::ExchangeState::Observer>();
  added->function = std::move(observer);
  const std::unique_lock lock(state_->observer_mutex);
  state_->observers.emplace(state_->next_observer, std::move(added));
  state_->has_observers = true;
  return state_->next_observer++;
}

void Exchange::forget(std::size_t observer) {
  std::shared_ptr<detail::ExchangeState::Observer> removed;
  {
    const std::unique_lock lock(state_->observer_mutex);
    const auto found = state_->observers.find(observer);
    if (found == state_->observers.end()) return;
    removed = found->second;
    state_->observers.erase(found);
    state_->has_observers = !state_->observers.empty();
  }
  removed->alive = false;
  for (int running = removed->running; running > 0; running = removed->running) removed->running.wait(running);
}

}  // namespace weft::operations
