#include "operations/workers.hpp"

#include "base/session_state.hpp"

namespace weft::operations {

Workers::Workers(SessionState& session, int threads_max, std::size_t waiting_max)
    : session_(session), threads_max_(threads_max), waiting_max_(waiting_max) {}

Workers::~Workers() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool Workers::run(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() >= waiting_max_) return false;
    waiting_.push_back(std::move(work));
    if (waiting_.size() > idle_ && static_cast<int>(threads_.size()) < threads_max_)
      threads_.emplace_back([this] { serve(); });
  }
  changed_.notify_one();
  return true;
}

void Workers::serve() {
  const SessionState::Scope scope(session_);
  std::unique_lock lock(mutex_);
  while (true) {
    ++idle_;
    changed_.wait(lock, [&] { return ending_ || !waiting_.empty(); });
    --idle_;
    if (waiting_.empty()) return;
    std::function<void()> work = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    work();
    work = nullptr;  // what it holds is released without the lock
    lock.lock();
  }
}

Timer::~Timer() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

std::uint64_t Timer::add(Clock::time_point time, std::function<void()> function) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t number = next_++;
  entries_.emplace(Key{time, number}, std::move(function));
  times_.emplace(number, time);
  if (!thread_.joinable()) thread_ = std::thread([this] { serve(); });
  if (entries_.begin()->first.second == number) changed_.notify_all();
  return number;
}

void Timer::cancel(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  const auto found = times_.find(number);
  if (found == times_.end()) return;
  entries_.erase(Key{found->second, number});
  times_.erase(found);
}

void Timer::serve() {
  std::unique_lock lock(mutex_);
  while (!ending_) {
    if (entries_.empty()) {
      changed_.wait(lock);
      continue;
    }
    const auto first = entries_.begin();
    const Clock::time_point time = first->first.first;  // a copy: the entry may go while this waits
    if (Clock::now() < time) {
      changed_.wait_until(lock, time);
      continue;
    }
    const std::function<void()> function = std::move(first->second);
    times_.erase(first->first.second);
    entries_.erase(first);
    lock.unlock();
    function();
    lock.lock();
  }
}

}  // namespace weft::operations
