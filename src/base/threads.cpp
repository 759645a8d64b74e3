// A pool for each session. It runs one job at a time and hands out its tasks through an atomic counter. Workers join a job if
// they wake in time; the caller never waits for a late one, so a parked worker only means less help.
#include "base/threads.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/interrupt.hpp"
#include "base/processors.hpp"
#include "base/session_state.hpp"
#include "base/spin.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

// A spinning pool starts in under a microsecond, and a parked one in some 30. So spin for about the cost of waking, but only
// while jobs come that often.
constexpr auto kSpin = std::chrono::microseconds(50);
constexpr auto kSpinIdle = std::chrono::microseconds(5);
constexpr auto kBusyGap = std::chrono::microseconds(200);
constexpr int kMaxThreads = 1024;

int default_thread_count() {
  const char* text = std::getenv("WEFT_THREADS");
  if (text == nullptr || *text == '\0') return std::min(physical_cores(), kMaxThreads);
  char* end = nullptr;
  const long count = std::strtol(text, &end, 10);
  if (*end != '\0' || count < 1 || count > kMaxThreads)
    throw UsageError(
        fmt::format("WEFT_THREADS: '{}' is not a number from 1 to {}; unset it to use all cores", text, kMaxThreads));
  return static_cast<int>(count);
}

thread_local int current_index = 0;
thread_local bool inside_task = false;

/// Threads of all pools that have workers. If there are more than processors, a spinning thread takes the processor of a thread
/// with work.
std::atomic<int> pooled_threads = 0;

class Pool final : public SessionState::Part {
 public:
  static constexpr auto kSlot = SessionState::Slot::threads;

  explicit Pool(SessionState& session) : session_(session), allowed_(allowed_cpus()) {
    resize(session.threads() > 0 ? session.threads() : default_thread_count());
  }
  ~Pool() override { resize(1); }

  int size() const { return size_.load(std::memory_order_relaxed); }
  bool spins() const {
    return size() > 1 && pooled_threads.load(std::memory_order_relaxed) <= static_cast<int>(allowed_.size());
  }

  void set_size(int count) {
    const std::lock_guard lock(job_mutex_);
    if (count != size()) resize(count);
  }

  void run(std::int64_t count, FunctionRef<void(std::int64_t)> task) {
    if (count == 1 || inside_task || size() == 1 || !job_mutex_.try_lock()) return run_serially(count, task);
    const std::lock_guard held(job_mutex_, std::adopt_lock);

    task_ = task;
    count_ = count;
    next_.store(0, std::memory_order_relaxed);
    caller_cpu_.store(current_cpu(), std::memory_order_relaxed);
    gate_.fetch_and(~kClosed, std::memory_order_release);
    epoch_.fetch_add(1, std::memory_order_release);
    epoch_.notify_all();

    inside_task = true;
    work();
    inside_task = false;
    gate_.fetch_or(kClosed, std::memory_order_acq_rel);
    const auto all_left = [&] { return gate_.load(std::memory_order_acquire) == kClosed; };
    if (!spin_until(spins() ? kSpin : Clock::duration::zero(), all_left))
      for (std::uint32_t seen; (seen = gate_.load(std::memory_order_acquire)) != kClosed;)
        gate_.wait(seen, std::memory_order_acquire);
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  }

 private:
  static constexpr std::uint32_t kClosed = 1u << 31;

  void run_serially(std::int64_t count, FunctionRef<void(std::int64_t)> task) {
    for (std::int64_t i = 0; i < count; ++i) {
      check_interrupt();
      task(i);
    }
  }

  /// Takes tasks until none is left.
  void work() {
    for (std::int64_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < count_;) {
      try {
        check_interrupt();
        task_(i);
      } catch (...) {
        next_.store(count_, std::memory_order_relaxed);
        const std::lock_guard lock(failure_mutex_);
        if (!failure_) failure_ = std::current_exception();
      }
    }
  }

  void worker(int index, std::uint32_t seen) {
    const SessionState::Scope scope(session_);
    current_index = index;
    inside_task = true;
    auto limit = Clock::duration(kSpin);
    while (true) {
      const auto idle_since = Clock::now();
      const auto job_came = [&] { return epoch_.load(std::memory_order_acquire) != seen; };
      if (!spin_until(spins() ? limit : Clock::duration::zero(), job_came))
        while (!job_came()) epoch_.wait(seen, std::memory_order_acquire);
      limit = Clock::now() - idle_since < kBusyGap ? kSpin : kSpinIdle;
      seen = epoch_.load(std::memory_order_acquire);
      if (stop_.load(std::memory_order_relaxed)) return;
      // Some schedulers put a woken thread on its waker's processor, where the two take turns: a job of two threads then runs
      // at the speed of one, call after call.
      if (const int cpu = caller_cpu_.load(std::memory_order_relaxed); spins() && current_cpu() == cpu)
        leave_cpu(cpu, allowed_);
      // The count in the gate keeps the job's fields alive. Once the gate is closed and empty, the caller may change them.
      if ((gate_.fetch_add(1, std::memory_order_acquire) & kClosed) == 0) work();
      if (gate_.fetch_sub(1, std::memory_order_release) == kClosed + 1) gate_.notify_one();
    }
  }

  void resize(int count) {
    stop_.store(true, std::memory_order_relaxed);
    epoch_.fetch_add(1, std::memory_order_release);
    epoch_.notify_all();
    for (std::thread& thread : workers_) thread.join();
    workers_.clear();
    stop_.store(false, std::memory_order_relaxed);
    pooled_threads -= counted_;
    size_.store(1, std::memory_order_relaxed);
    try {
      for (int index = 1; index < count; ++index) {
        workers_.emplace_back([this, index, seen = epoch_.load()] { worker(index, seen); });
        size_.store(index + 1, std::memory_order_relaxed);
      }
    } catch (const std::system_error&) {
      // At the system's limit of threads: use the threads that started.
    }
    pooled_threads += counted_ = size() > 1 ? size() : 0;
  }

  SessionState& session_;
  std::mutex job_mutex_;
  std::vector<std::thread> workers_;
  std::atomic<int> size_ = 1;
  std::vector<int> allowed_;  // processors this process may use, as the pool found them
  int counted_ = 0;           // this pool's share of `pooled_threads`

  // Written by the caller while the gate is closed and empty, read by workers inside the gate.
  FunctionRef<void(std::int64_t)> task_;
  std::int64_t count_ = 0;
  std::exception_ptr failure_;
  std::mutex failure_mutex_;

  alignas(64) std::atomic<std::int64_t> next_ = 0;         // next task of the open job
  alignas(64) std::atomic<std::uint32_t> gate_ = kClosed;  // workers inside, and the closed bit
  alignas(64) std::atomic<std::uint32_t> epoch_ = 0;       // number of jobs so far; workers sleep on it
  std::atomic<bool> stop_ = false;
  std::atomic<int> caller_cpu_ = -1;  // where the caller of the open job ran when it opened it
};

Pool& pool() { return SessionState::current().part<Pool>(); }

}  // namespace

int thread_count() { return pool().size(); }

void set_thread_count(int count) {
  if (count < 1 || count > kMaxThreads)
    throw UsageError(fmt::format("set_thread_count: {} threads asked for; give 1 to {}", count, kMaxThreads));
  if (inside_task) throw UsageError("set_thread_count: called from inside a task; call it between jobs");
  pool().set_size(count);
}

void parallel_for(std::int64_t count, FunctionRef<void(std::int64_t)> task) {
  if (count > 0) pool().run(count, task);
}

int thread_index() { return current_index; }

bool threads_may_spin() { return pool().spins(); }

}  // namespace weft
