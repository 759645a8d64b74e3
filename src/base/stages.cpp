// Counters hand out the tasks of a stage, one counter for the part of each thread. Threads go through the stages in order, so a
// thread that waits for a stage waits for tasks that other threads already run.
#include "base/stages.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

#include "base/interrupt.hpp"
#include "base/spin.hpp"
#include "base/threads.hpp"

namespace weft {
namespace {

constexpr auto kStageSpin = std::chrono::microseconds(100);
constexpr int kPartsMax = 8;  // more threads share parts

}  // namespace

struct Stages::Shared {
  struct alignas(64) Next {
    std::atomic<std::int64_t> task;
  };
  struct alignas(64) Left {
    std::atomic<std::uint32_t> tasks;
  };

  std::vector<Stage> stages;
  std::vector<std::size_t> streamed;  // by stage: the next streamed stage, from it on
  bool serial = true;                 // no stage has several tasks
  std::vector<Next> next;
  std::vector<Left> left;
  int parts = 0;
  std::atomic<bool> failed = false;
  std::exception_ptr failure;
  std::mutex failure_mutex;

  explicit Shared(std::vector<Stage> list) : stages(std::move(list)), streamed(stages.size()), left(stages.size()) {
    std::size_t next_streamed = stages.size();
    for (std::size_t s = stages.size(); s-- > 0;) {
      serial = serial && stages[s].tasks <= 1;
      if (stages[s].is_streamed) next_streamed = s;
      streamed[s] = next_streamed;
    }
  }

  std::int64_t part_begin(const Stage& stage, int part) const { return stage.tasks * part / parts; }

  std::atomic<std::int64_t>& counter(std::size_t stage, int part) {
    return next[stage * static_cast<std::size_t>(parts) + static_cast<std::size_t>(part)].task;
  }

  void reset() {
    if (const int wanted = std::min(thread_count(), kPartsMax); wanted != parts) {
      parts = wanted;
      next = std::vector<Next>(stages.size() * static_cast<std::size_t>(parts));
    }
    failed.store(false, std::memory_order_relaxed);
    failure = nullptr;
    for (std::size_t s = 0; s < stages.size(); ++s) {
      left[s].tasks.store(static_cast<std::uint32_t>(stages[s].tasks), std::memory_order_relaxed);
      for (int part = 0; part < parts; ++part)
        counter(s, part).store(part_begin(stages[s], part), std::memory_order_relaxed);
    }
  }

  /// Calls `ask_ahead` while it waits, until that has nothing left to do.
  void wait_for(std::size_t stage, FunctionRef<bool()> ask_ahead) {
    std::atomic<std::uint32_t>& tasks = left[stage].tasks;
    const auto done = [&] { return tasks.load(std::memory_order_acquire) == 0; };
    while (!done() && ask_ahead()) {
    }
    if (done() || (threads_may_spin() && spin_until(kStageSpin, done))) return;
    for (std::uint32_t seen; (seen = tasks.load(std::memory_order_acquire)) != 0;)
      tasks.wait(seen, std::memory_order_acquire);
  }

  /// One thread's way through all stages.
  void walk(FunctionRef<void(int, std::int64_t)> task, FunctionRef<bool(int, std::int64_t, int)> ask_ahead) {
    const int own = thread_index() % parts;
    int done = -1;          // stages up to here are known to be done
    std::size_t asked = 0;  // the stage that was prefetched last, and how many pieces
    int pieces = 0;
    for (std::size_t s = 0; s < stages.size(); ++s) {
      std::uint32_t taken = 0;
      for (int k = 0; k < parts; ++k) {
        const int part = (own + k) % parts;
        std::atomic<std::int64_t>& first = counter(s, part);
        const std::int64_t end = part_begin(stages[s], part + 1);
        if (first.load(std::memory_order_relaxed) >= end) continue;
        const auto ask = [&, ahead = streamed[s]] {
          if (!ask_ahead || ahead == stages.size()) return false;
          if (asked != ahead) asked = ahead, pieces = 0;
          return ask_ahead(static_cast<int>(ahead), part_begin(stages[ahead], own), pieces++);
        };
        for (; done < stages[s].after; ++done) wait_for(static_cast<std::size_t>(done + 1), ask);
        for (std::int64_t i; (i = first.fetch_add(1, std::memory_order_relaxed)) < end; ++taken)
          run_one(task, static_cast<int>(s), i);
      }
      if (taken > 0 && left[s].tasks.fetch_sub(taken, std::memory_order_acq_rel) == taken) left[s].tasks.notify_all();
    }
  }

  void run_one(FunctionRef<void(int, std::int64_t)> task, int stage, std::int64_t i) {
    if (failed.load(std::memory_order_relaxed)) return;
    try {
      check_interrupt();
      task(stage, i);
    } catch (...) {
      const std::lock_guard lock(failure_mutex);
      if (!failure) failure = std::current_exception();
      failed.store(true, std::memory_order_relaxed);
    }
  }
};

Stages::Stages(std::vector<Stage> stages) : shared_(std::make_unique<Shared>(std::move(stages))) {}
Stages::~Stages() = default;
Stages::Stages(Stages&&) noexcept = default;

void Stages::run(FunctionRef<void(int stage, std::int64_t task)> task,
                 FunctionRef<bool(int stage, std::int64_t task, int piece)> ask_ahead) {
  Shared& shared = *shared_;
  if (shared.serial || thread_count() == 1) {
    for (std::size_t s = 0; s < shared.stages.size(); ++s)
      for (std::int64_t i = 0; i < shared.stages[s].tasks; ++i) {
        check_interrupt();
        task(static_cast<int>(s), i);
      }
    return;
  }
  shared.reset();
  parallel_for(thread_count(), [&](std::int64_t) { shared.walk(task, ask_ahead); });
  if (shared.failure) std::rethrow_exception(std::exchange(shared.failure, nullptr));
}

}  // namespace weft
