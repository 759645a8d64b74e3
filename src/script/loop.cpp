#include "script/loop.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace weft::script {
namespace {

constexpr std::size_t kAloneMax = 64;
constexpr std::size_t kPromisesMax = 4096;  // reads and calls that may be under way

}  // namespace

Loop::~Loop() { clear(); }

void Loop::clear() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    *ending = true;
    requests_.clear();
  }
  wanted_.notify_all();
  changed_.notify_all();
  if (worker_.joinable()) worker_.join();
  for (Alone& each : alone_) each.thread.join();
  alone_.clear();
  const auto free = [&](JSValue value) {
    if (engine.context) JS_FreeValue(engine.context, value);
  };
  for (auto* list : {&waiting_, &finished_}) {
    for (const auto& task : *list) free(task->resolve), free(task->reject);
    list->clear();
  }
  for (auto& [id, timer] : timers) {
    free(timer.function);
    for (const JSValue value : timer.arguments) free(value);
  }
  timers.clear();
  for (const auto& [promise, reason] : rejections) free(promise), free(reason);
  rejections.clear();
}

void Loop::wake() { changed_.notify_all(); }

// Jobs that others keep adding would never end.
void Loop::end_turn() {
  if (serves) JS_DropPendingJobs(engine.runtime);
  engine.ran_out_of_time = true;
  JS_ThrowPlainError(engine.context, "the time is over");
  throw ScriptThrew{};
}

bool Loop::has_work() {
  const std::lock_guard lock(mutex_);
  return running_ > 0 || !waiting_.empty() || !finished_.empty() || !requests_.empty();
}

void Loop::drain() {
  JSContext* context = nullptr;
  while (JS_IsJobPending(engine.runtime)) {
    if (engine.is_late()) end_turn();
    if (JS_ExecutePendingJob(engine.runtime, &context) < 0) throw ScriptThrew{};
    if (engine.ran_out_of_time) end_turn();
    if (++jobs_ == next_look_) {
      JSMemoryUsage usage;
      JS_ComputeMemoryUsage(engine.runtime, &usage);
      seen_memory_ = usage.malloc_size;
      next_look_ *= 2;
    }
  }
  if (!rejections.empty()) {
    auto [promise, reason] = rejections.front();
    rejections.erase(rejections.begin());
    JS_FreeValue(engine.context, promise);
    JS_Throw(engine.context, reason);
    throw ScriptThrew{};
  }
}

bool Loop::run_due_timer() {
  const auto now = Clock::now();
  auto due = timers.end();
  for (auto timer = timers.begin(); timer != timers.end(); ++timer)
    if (timer->second.at <= now && (due == timers.end() || timer->second.at < due->second.at)) due = timer;
  if (due == timers.end()) return false;
  const Local function(engine.context, JS_DupValue(engine.context, due->second.function));
  std::vector<Local> held;
  std::vector<JSValueConst> arguments;
  for (const JSValue value : due->second.arguments) {
    held.emplace_back(engine.context, JS_DupValue(engine.context, value));
    arguments.push_back(value);
  }
  if (due->second.every.count() > 0) {
    due->second.at = now + due->second.every;
  } else {
    JS_FreeValue(engine.context, due->second.function);
    for (const JSValue value : due->second.arguments) JS_FreeValue(engine.context, value);
    timers.erase(due);
  }
  engine.call(function.get(), JS_UNDEFINED, Arguments(arguments));
  return true;
}

void Loop::settle(Task& task) {
  const Local resolve(engine.context, task.resolve), reject(engine.context, task.reject);
  Local value;
  bool failed = false;
  try {
    if (task.error) std::rethrow_exception(task.error);
    value = task.settle();
  } catch (...) {
    engine.throw_current();
    value = engine.take_exception();
    failed = true;
  }
  engine.call((failed ? reject : resolve).get(), JS_UNDEFINED, {value.get()});
}

void Loop::run(const std::function<bool()>& done) {
  const auto limit = engine.options.time_limit;
  for (;;) {
    if (serves && limit.count() > 0) engine.deadline = Clock::now() + limit;  // of each turn
    drain();
    if (done && done()) return;
    std::unique_ptr<Task> task;
    std::function<void()> function;
    {
      const std::lock_guard lock(mutex_);
      if (!finished_.empty()) {
        task = std::move(finished_.front());
        finished_.pop_front();
      } else if (!requests_.empty()) {
        function = std::move(requests_.front());
        requests_.pop_front();
      }
    }
    if (task) {
      settle(*task);
      continue;
    }
    if (function) {
      function();
      continue;
    }
    if (engine.is_late()) end_turn();
    if (run_due_timer()) continue;
    std::unique_lock lock(mutex_);
    const auto is_woken = [&] { return !finished_.empty() || !requests_.empty() || engine.stopping; };
    const bool has_timers =
        std::any_of(timers.begin(), timers.end(), [](const auto& each) { return each.second.keeps; });
    if (!has_timers && running_ == 0 && waiting_.empty() && !is_woken() && !serves) return;
    auto until = Clock::now() + std::chrono::milliseconds(200);  // `stop` of a signal handler cannot wake
    for (const auto& [id, timer] : timers) until = std::min(until, timer.at);
    if (engine.deadline) until = std::min(until, *engine.deadline);
    changed_.wait_until(lock, until, is_woken);
  }
}

void Loop::work() {
  const auto in = engine.session.enter();
  std::unique_lock lock(mutex_);
  for (;;) {
    wanted_.wait(lock, [&] { return ends_ || !waiting_.empty(); });
    if (ends_) return;
    std::unique_ptr<Task> task = std::move(waiting_.front());
    waiting_.pop_front();
    ++running_;
    lock.unlock();
    finish(std::move(task));
    lock.lock();
  }
}

// Works on a thread of its own, or of the queue.
void Loop::finish(std::unique_ptr<Task> task) {
  try {
    task->work();
  } catch (...) {
    task->error = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  --running_;
  finished_.push_back(std::move(task));
  changed_.notify_all();
}

Local Loop::promise(std::function<void()> work, std::function<Local()> settle, bool alone) {
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(alone_, [](Alone& each) {
      if (!*each.is_done) return false;
      each.thread.join();
      return true;
    });
    if (alone && alone_.size() >= kAloneMax)
      throw UsageError(fmt::format("{} calls are under way; await some before starting more", kAloneMax));
    if (waiting_.size() + finished_.size() + running_ >= kPromisesMax)
      throw UsageError(fmt::format("{} reads and calls are under way; await some before starting more", kPromisesMax));
  }
  JSValue functions[2];
  Local promise = engine.checked(JS_NewPromiseCapability(engine.context, functions));
  auto task = std::make_unique<Task>(Task{std::move(work), std::move(settle), functions[0], functions[1], {}});
  if (alone) {
    const std::lock_guard lock(mutex_);
    ++running_;
    auto is_done = std::make_shared<std::atomic<bool>>(false);
    alone_.push_back({std::thread([this, is_done, task = std::move(task)]() mutable {
                        {
                          const auto in = engine.session.enter();
                          finish(std::move(task));
                        }
                        *is_done = true;
                      }),
                      is_done});
    return promise;
  }
  if (engine.has_kernels) {  // their functions run on this thread only
    try {
      task->work();
    } catch (...) {
      task->error = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    finished_.push_back(std::move(task));
    return promise;
  }
  {
    const std::lock_guard lock(mutex_);
    if (!worker_.joinable()) worker_ = std::thread([this] { this->work(); });
    waiting_.push_back(std::move(task));
  }
  wanted_.notify_one();
  return promise;
}

void Loop::post(std::function<void()> function) {
  {
    const std::lock_guard lock(mutex_);
    if (ends_) return;
    requests_.push_back(std::move(function));
  }
  changed_.notify_all();
}

// ---- Timers ---------------------------------------------------------------------------------------------------------------------

namespace {

constexpr std::size_t kTimersMax = 10'000;

Local add_timer(Engine& engine, Arguments arguments, bool repeats) {
  const JSValueConst function = at(arguments, 0);
  if (!JS_IsFunction(engine.context, function))
    Engine::refuse(repeats ? "setInterval" : "setTimeout", "the first argument is not a function");
  if (engine.loop->timers.size() >= kTimersMax)
    Engine::refuse("setTimeout", fmt::format("{} timers are set, which is the limit", kTimersMax));
  const double given = JS_IsUndefined(at(arguments, 1)) ? 0 : engine.number(arguments[1], "setTimeout: the delay");
  const auto delay = std::chrono::milliseconds(static_cast<std::int64_t>(std::clamp(given, repeats ? 1.0 : 0.0, 2e9)));
  Loop::Timer timer{JS_DupValue(engine.context, function),
                    {},
                    repeats ? delay : std::chrono::milliseconds(0),
                    Loop::Clock::now() + delay};
  for (std::size_t i = 2; i < arguments.size(); ++i)
    timer.arguments.push_back(JS_DupValue(engine.context, arguments[i]));
  const std::uint32_t id = engine.loop->next_timer++;
  engine.loop->timers.emplace(id, std::move(timer));
  return {engine.context, JS_NewUint32(engine.context, id)};
}

Local set_timeout(Engine& engine, JSValueConst, Arguments arguments) { return add_timer(engine, arguments, false); }
Local set_interval(Engine& engine, JSValueConst, Arguments arguments) { return add_timer(engine, arguments, true); }
Local clear_timer(Engine& engine, JSValueConst, Arguments arguments) {
  if (!JS_IsNumber(at(arguments, 0))) return {};
  const auto found =
      engine.loop->timers.find(static_cast<std::uint32_t>(engine.number(arguments[0], "clearTimeout: the timer")));
  if (found == engine.loop->timers.end()) return {};
  JS_FreeValue(engine.context, found->second.function);
  for (const JSValue value : found->second.arguments) JS_FreeValue(engine.context, value);
  engine.loop->timers.erase(found);
  return {};
}

}  // namespace

void define_timers(Engine& engine) {
  const Local global(engine.context, JS_GetGlobalObject(engine.context));
  engine.method(global.get(), "setTimeout", native<set_timeout>, 2);
  engine.method(global.get(), "setInterval", native<set_interval>, 2);
  engine.method(global.get(), "clearTimeout", native<clear_timer>, 1);
  engine.method(global.get(), "clearInterval", native<clear_timer>, 1);
}

}  // namespace weft::script
