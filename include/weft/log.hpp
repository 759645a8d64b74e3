// The log: messages of the WebGPU library and of drivers, and Weft's reactions to them. Nothing is shown unless the log is
// turned on.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace weft {

enum class LogLevel : std::uint8_t { debug, info, warning, error };
std::string_view name_of(LogLevel level);

/// Receives a message and its source ("webgpu"). Called from any thread, one call at a time; it must not throw, and must not
/// log.
using LogSink = std::function<void(LogLevel level, std::string_view source, std::string_view message)>;

/// Messages go to `sink` from now on; an empty one turns the log off. Without a call the environment decides: WEFT_LOG is
/// unset or 0 (off), 1 (lines on standard error), or the path of a file that lines are appended to.
void set_log_sink(LogSink sink);

}  // namespace weft
