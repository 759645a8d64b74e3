// The steps of a call: find, check access, validate, run, wrap, normalise, validate, publish.
#include <fmt/format.h>

#include "base/quote.hpp"
#include "operations/exchange_state.hpp"

namespace weft::operations::detail {
namespace {

OperationError validation_error(std::string_view id, const std::vector<schema::Violation>& violations) {
  Value::Array details;
  for (const schema::Violation& each : violations)
    details.push_back(
        Value::object({{"path", each.instance_path}, {"schema", each.schema_path}, {"message", each.message}}));
  return OperationError(kValidationError,
                        fmt::format("{}: the input does not fit:\n{}", id, schema::to_string(violations)),
                        std::move(details));
}

// Calls a function, and turns any exception into an OperationError.
template <class Function>
auto guarded(std::string_view id, const Function& function) {
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

bool is_known(const Registry::Entry& entry, std::string_view code) {
  for (const std::string_view each : {kNotFound, kAccessDenied, kValidationError, kTimeout, kAborted, kExecutionError,
                                      kUnknownError, kOverloaded, kLoop})
    if (code == each) return true;
  for (const DeclaredError& error : entry.specification->errors)
    if (code == error.code) return true;
  return false;
}

// The error that ended the call. An abort may have come before the handler's own error.
[[noreturn]] void state_error(CallState& state) {
  const std::lock_guard lock(state.mutex);
  state.throw_error();
}

}  // namespace

void ExchangeState::request(const CallState& state) {
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

// Finds specification and handler, checks access, validates the input.
EntryRef ExchangeState::admit(const StateRef& state, const EntryRef& entry, bool from_outside) {
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
Envelope ExchangeState::wrap(const Registry::Entry& entry, Value data) {
  Envelope envelope{.data = entry.output.normalised(std::move(data)), .source = LocalSource{entry.id, Clock::now()}};
  if (!entry.output.accepts(envelope.data))
    for (const schema::Violation& each : entry.output.check(envelope.data))
      envelope.warnings.push_back(
          fmt::format("{}: {}", each.instance_path.empty() ? "the output" : each.instance_path, each.message));
  return envelope;
}

// Runs the handler on this thread. Errors: OperationError.
Value ExchangeState::run(const Registry::Entry& entry, const StateRef& state) {
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

Envelope ExchangeState::call_here(const StateRef& state, const EntryRef& entry, bool from_outside) {
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

void ExchangeState::serve(const StateRef& state) {
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
      if (state->admitted && *state->admitted) (*state->admitted)();
      Value data = run(*entry, state);
      if (!streams) answer(*entry, state, std::move(data));
    });
    if (!finish(state, std::nullopt)) return;
    if (has_observers && streams) publish({.type = Event::Type::completed, .request_id = state->request_id});
  } catch (const OperationError& error) {
    fail(state, error);
  }
}

void ExchangeState::answer(const Registry::Entry& entry, const StateRef& state, Value data) {
  Envelope envelope = wrap(entry, std::move(data));
  std::optional<Envelope> copy;
  if (has_observers) copy = envelope;
  if (state->take) {
    const std::lock_guard taking(state->taking);
    {
      const std::lock_guard lock(state->mutex);
      if (state->finished) state->throw_error();
    }
    if (!(*state->take)(std::move(envelope))) {
      abort(state, kAborted, "its subscriber has left");
      state_error(*state);
    }
  } else {
    std::unique_lock lock(state->mutex);
    state->changed.wait(lock, [&] { return state->finished || state->answers.size() < state->buffer; });
    if (state->finished) state->throw_error();
    state->answers.push_back(std::move(envelope));
    lock.unlock();
    state->changed.notify_all();
  }
  if (copy) publish({.type = Event::Type::responded, .request_id = state->request_id, .output = std::move(copy)});
}

StateRef ExchangeState::start(std::string_view id, Value input, const CallOptions& call) {
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

}  // namespace weft::operations::detail
