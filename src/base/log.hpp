// The log: off unless WEFT_LOG or set_log_sink turns it on (weft/log.hpp).
#pragma once

#include <string_view>

#include "weft/log.hpp"

namespace weft {

/// Whether the log is on. Callers build costly messages only then.
bool is_logging();
/// A message without a line break at its end. Never throws.
void log(LogLevel level, std::string_view source, std::string_view message) noexcept;

}  // namespace weft
