// A script that serves an exchange, on a thread of its own.
#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "base/quote.hpp"
#include "base/session_state.hpp"
#include "weft/script.hpp"

namespace weft::script {

struct Host::State {
  std::filesystem::path file;
  IsolateOptions options;
  SessionState& session = SessionState::current();  // the exchange's
  std::mutex mutex;
  std::condition_variable changed;
  Isolate* isolate = nullptr;  // while it lives
  bool is_loaded = false, is_stopped = false;
  std::exception_ptr error;
  std::vector<std::string> operations;
  pthread_t thread{};

  void stop() {
    const std::lock_guard lock(mutex);
    is_stopped = true;
    if (isolate) isolate->stop();
  }

  void run() {
    const SessionState::Scope scope(session);
    try {
      Isolate made(options);
      {
        const std::lock_guard lock(mutex);
        isolate = &made;
      }
      struct Ending {
        State& state;
        ~Ending() {
          const std::lock_guard lock(state.mutex);
          state.isolate = nullptr;
        }
      };
      const Ending ending{*this};
      const Result result = made.run(file);
      if (result.outcome != Outcome::done) throw UsageError(file.string() + ": " + result.message);
      if (made.registered().empty())
        throw UsageError(quote(file.string()) + " registers no operation; it does so with operations.register");
      {
        const std::lock_guard lock(mutex);
        operations = made.registered();
        is_loaded = true;
        changed.notify_all();
        if (is_stopped) return;
      }
      made.serve();
    } catch (...) {
      const std::lock_guard lock(mutex);
      error = std::current_exception();
      is_loaded = true;
      changed.notify_all();
    }
  }
};

Host::Host(std::filesystem::path file, IsolateOptions options, const std::stop_token& stop)
    : state_(std::make_unique<State>()) {
  if (!options.exchange) throw UsageError("script::Host: the options have no exchange");
  state_->file = std::move(file);
  state_->options = std::move(options);
  // The stack of the script, and room for the native functions below it, whatever the limits of the process.
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, state_->options.stack_limit + (std::size_t{16} << 20));
  const int failed = pthread_create(
      &state_->thread, &attributes,
      [](void* state) -> void* {
        static_cast<State*>(state)->run();
        return nullptr;
      },
      state_.get());
  pthread_attr_destroy(&attributes);
  if (failed != 0) throw DeviceError("script: no thread could be started");
  {
    const std::stop_callback stopping(stop, [this] { state_->stop(); });
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, [&] { return state_->is_loaded; });
  }
  if (state_->error) {
    pthread_join(state_->thread, nullptr);
    std::rethrow_exception(state_->error);
  }
}

Host::~Host() {
  state_->stop();
  pthread_join(state_->thread, nullptr);
}

const std::vector<std::string>& Host::operations() const { return state_->operations; }

}  // namespace weft::script
