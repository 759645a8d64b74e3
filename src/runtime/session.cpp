#include "weft/session.hpp"

#include <fmt/format.h>

#include <vector>

#include "base/session_state.hpp"
#include "base/threads.hpp"
#include "graph/node.hpp"

namespace weft {

Session::Session(const SessionOptions& options) {
  if (options.threads < 0 || options.threads > 1024)
    throw UsageError(fmt::format("Session: {} threads asked for; give 1 to 1024, or 0 for all cores", options.threads));
  state_ = SessionState::make(options.threads);
  if (options.device) {
    const auto in = enter();
    set_default_device(*options.device);
  }
}

Session::~Session() { state_->close(); }

Session::Entered::Entered(std::shared_ptr<SessionState> state)
    : state_(std::move(state)), before_(SessionState::enter(state_.get())) {}
Session::Entered::~Entered() { SessionState::enter(before_); }

Session::Entered Session::enter() const { return Entered(state_); }

Tensor Session::copy(const Tensor& value) const {
  const Shape& shape = value.shape();  // throws if there is no value
  std::vector<std::byte> bytes(bytes_of(value.dtype(), static_cast<std::size_t>(shape.numel())));
  {
    const SessionState::Scope own(graph::session_of(*value.node()));
    value.copy_to(bytes.data(), bytes.size());
  }
  const SessionState::Scope here(*state_);
  return tensor_from_bytes(bytes.data(), shape, value.dtype(), value.device()).named(value.label());
}

int Session::threads() const {
  const SessionState::Scope here(*state_);
  return thread_count();
}

}  // namespace weft
