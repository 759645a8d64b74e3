#include "base/log.hpp"

#include <fmt/format.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>

namespace weft {
namespace {

// The sink that WEFT_LOG requests. Only here does the library write to a place that no caller named.
LogSink sink_of_environment() {
  const char* text = std::getenv("WEFT_LOG");
  if (!text || !*text || std::string_view(text) == "0") return {};
  std::FILE* out = std::string_view(text) == "1" ? stderr : std::fopen(text, "a");
  if (!out) return {};
  return [out](LogLevel level, std::string_view source, std::string_view message) {
    const std::string line = fmt::format("[{}] {}: {}\n", source, name_of(level), message);
    std::fwrite(line.data(), 1, line.size(), out);
    std::fflush(out);
  };
}

struct Log {
  std::mutex mutex;
  LogSink sink = sink_of_environment();
  std::atomic<bool> listens = sink != nullptr;
};

// Never destroyed: threads of a driver may log while the process ends.
Log& the_log() {
  static Log* const log = new Log;
  return *log;
}

}  // namespace

std::string_view name_of(LogLevel level) {
  constexpr std::string_view kNames[] = {"debug", "info", "warning", "error"};
  return kNames[static_cast<std::size_t>(level)];
}

void set_log_sink(LogSink sink) {
  Log& log = the_log();
  const std::lock_guard lock(log.mutex);
  log.sink = std::move(sink);
  log.listens = log.sink != nullptr;
}

bool is_logging() { return the_log().listens.load(std::memory_order_relaxed); }

void log(LogLevel level, std::string_view source, std::string_view message) noexcept {
  if (!is_logging()) return;
  try {
    Log& log = the_log();
    const std::lock_guard lock(log.mutex);
    if (log.sink) log.sink(level, source, message);
  } catch (...) {
    // An error while logging must not stop the caller.
  }
}

}  // namespace weft
