// Times in UTC as texts.
#pragma once

#include <ctime>
#include <string>

namespace weft {

/// "2026-01-31T23:59:59Z" (RFC 3339).
inline std::string utc_text(std::time_t time) {
  std::tm parts{};
  gmtime_r(&time, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

}  // namespace weft
