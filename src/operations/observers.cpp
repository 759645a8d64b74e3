// Observers of calls.
#include "operations/exchange_state.hpp"

namespace weft::operations {

void detail::ExchangeState::publish(const Event& event) {
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
