// Runs texts in isolates of their own.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/sanitized.hpp"
#include "weft/script.hpp"

namespace weft::script {

struct Ran {
  Result result;
  std::string printed;
  std::size_t handles = 0;
};

/// Limits that a test can reach soon.
inline IsolateOptions small_limits() {
  return {.time_limit = std::chrono::milliseconds(test::kSanitized ? 10'000 : 1500),
          .memory_limit = std::size_t{64} << 20,
          .stack_limit = std::size_t{512} << 10,
          .device_memory_limit = std::uint64_t{256} << 20,
          .threads = 1,
          .device = kCpu};
}

inline Ran run_script(std::string_view text, IsolateOptions options = small_limits(),
                      std::string_view name = "test.js") {
  Ran ran;
  options.print = [&](std::string_view line, bool) { ran.printed += std::string(line) + "\n"; };
  Isolate isolate(std::move(options));
  ran.result = isolate.run_text(text, name);
  ran.handles = isolate.handle_count();
  return ran;
}

}  // namespace weft::script
