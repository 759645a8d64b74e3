// The log: off unless WEFT_LOG or set_log_sink asks for it (weft/log.hpp).
#pragma once

#include <string_view>

#include "weft/log.hpp"

namespace weft {

/// Whether anybody listens: messages that cost something to make are made only then.
bool is_logging();
/// A message without a line break at its end. Never throws.
void log(LogLevel level, std::string_view source, std::string_view message) noexcept;

}  // namespace weft
