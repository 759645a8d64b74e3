// What a handler sees of its call.
#include <fmt/format.h>

#include "base/quote.hpp"
#include "operations/call_state.hpp"
#include "operations/exchange_state.hpp"

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

}  // namespace

const Value& Context::input() const { return state_->input; }
const Identity* Context::identity() const { return state_->identity; }
const std::string& Context::request_id() const { return state_->request_id; }
const std::string& Context::client_request_id() const { return state_->client_request_id; }
const std::vector<std::string>& Context::via() const { return state_->via; }
const std::string& Context::session() const { return state_->session; }
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
  exchange_.answer(*entry, state_, std::move(data));
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

}  // namespace weft::operations
