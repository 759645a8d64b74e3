// The event loop of an isolate: jobs of promises, timers, work on another thread, requests of other threads.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "script/engine.hpp"

namespace weft::script {

struct Loop {
  explicit Loop(Engine& engine) : engine(engine) {}
  ~Loop();

  using Clock = std::chrono::steady_clock;
  struct Timer {
    JSValue function;
    std::vector<JSValue> arguments;
    std::chrono::milliseconds every;  // 0: once
    Clock::time_point at;
    bool keeps = true;  ///< the script goes on until it is due
  };

  /// Runs until nothing is left to do, or `done` says so. Throws ScriptThrew for an exception that nobody caught.
  void run(const std::function<bool()>& done = {});
  /// Runs jobs of promises until there are none.
  void drain();
  /// A promise for what `work` finds on another thread; with `alone` on one of its own, for work that may wait for this isolate.
  /// `settle` makes the value on this thread. Errors: UsageError for too many.
  Local promise(std::function<void()> work, std::function<Local()> settle, bool alone = false);
  /// Runs a function on the isolate's thread, soon; for other threads. It is dropped if the isolate ends before.
  void post(std::function<void()> function);
  /// Wakes the loop.
  void wake();
  /// What the loop waits for, apart from timers.
  bool has_work();
  void clear();
  /// Bytes that the script held at the last look, which comes after 1024 jobs of promises, and then at each power of two. So a chain of
  /// promises that grows to some size is seen at half of it.
  std::int64_t seen_memory() const { return seen_memory_; }

  Engine& engine;
  std::map<std::uint32_t, Timer> timers;
  std::uint32_t next_timer = 1;
  std::vector<std::pair<JSValue, JSValue>> rejections;  // promises and reasons that nobody handles yet
  const std::shared_ptr<std::atomic<bool>> ending = std::make_shared<std::atomic<bool>>(false);  // for work that waits
  bool serves = false;             // whether to wait for requests when nothing else is left
  bool serves_operations = false;  // whether the script has registered any

 private:
  struct Task {
    std::function<void()> work;
    std::function<Local()> settle;
    JSValue resolve, reject;
    std::exception_ptr error;
  };
  void work();
  void finish(std::unique_ptr<Task> task);
  void settle(Task& task);
  bool run_due_timer();
  [[noreturn]] void end_turn();

  std::mutex mutex_;
  std::condition_variable changed_, wanted_;
  std::deque<std::unique_ptr<Task>> waiting_, finished_;
  std::deque<std::function<void()>> requests_;
  std::size_t running_ = 0;
  std::uint64_t jobs_ = 0, next_look_ = 1024;
  std::int64_t seen_memory_ = 0;
  bool ends_ = false;
  std::thread worker_;
  struct Alone {
    std::thread thread;
    std::shared_ptr<std::atomic<bool>> is_done;
  };
  std::list<Alone> alone_;
};

}  // namespace weft::script
