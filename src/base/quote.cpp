#include "base/quote.hpp"

#include <fmt/format.h>

#include "base/utf8.hpp"

namespace weft {

std::string quote(std::string_view text, std::size_t max_bytes) {
  std::string out = "\"";
  std::size_t at = 0;
  while (at < text.size() && at < max_bytes) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
    const std::size_t length = utf8_sequence_length(text.substr(at));
    const bool control = byte(0) < 0x20 || byte(0) == 0x7F || (length == 2 && byte(0) == 0xC2 && byte(1) < 0xA0);
    const std::size_t taken = length == 0 ? 1 : length;
    if (text[at] == '\n') {
      out += "\\n";
    } else if (control || length == 0) {
      for (std::size_t i = 0; i < taken; ++i) out += fmt::format("\\x{:02x}", byte(i));
    } else {
      if (text[at] == '"' || text[at] == '\\') out += '\\';
      out.append(text, at, taken);
    }
    at += taken;
  }
  if (at < text.size()) out += "...";
  return out + "\"";
}

std::string for_terminal(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
    const std::size_t length = utf8_sequence_length(text.substr(at)), taken = length == 0 ? 1 : length;
    const bool control = (byte(0) < 0x20 && byte(0) != '\n' && byte(0) != '\t') || byte(0) == 0x7F ||
                         (length == 2 && byte(0) == 0xC2 && byte(1) < 0xA0);
    // U+202A to U+202E and U+2066 to U+2069.
    const bool turns = length == 3 && byte(0) == 0xE2 &&
                       ((byte(1) == 0x80 && byte(2) >= 0xAA && byte(2) <= 0xAE) ||
                        (byte(1) == 0x81 && byte(2) >= 0xA6 && byte(2) <= 0xA9));
    if (control || turns || length == 0) {
      const bool ends_line = byte(0) == '\r' && at + 1 < text.size() && text[at + 1] == '\n';
      for (std::size_t i = 0; i < taken && !ends_line; ++i) out += fmt::format("\\x{:02x}", byte(i));
    } else {
      out.append(text, at, taken);
    }
    at += taken;
  }
  return out;
}

}  // namespace weft
