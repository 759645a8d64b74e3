#include "base/session_state.hpp"

namespace weft {

std::shared_ptr<SessionState> SessionState::make(int threads) {
  return std::shared_ptr<SessionState>(new SessionState(threads));
}

SessionState& SessionState::initial() {
  static const auto* state = new std::shared_ptr<SessionState>(make());
  return **state;
}

SessionState::Part& SessionState::fill(Slot slot, std::unique_ptr<Part> (*make)(SessionState&)) {
  const std::lock_guard lock(filling_);
  std::atomic<Part*>& at = slots_[static_cast<std::size_t>(slot)];
  if (!at.load(std::memory_order_relaxed)) at.store(make(*this).release(), std::memory_order_release);
  return *at.load(std::memory_order_relaxed);
}

void SessionState::close() {
  for (std::size_t i = slots_.size(); i-- > 0;)
    if (Part* part = slots_[i].load(std::memory_order_acquire)) part->close();
}

SessionState::~SessionState() {
  for (std::size_t i = slots_.size(); i-- > 0;) delete slots_[i].exchange(nullptr);
}

}  // namespace weft
