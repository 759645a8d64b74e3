// Characters as Python's str sees them: case, classes, white space. For chat templates, which are written for Python.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace weft::jinja {

enum CharacterFlag : std::uint16_t {
  kAlpha = 1,
  kDecimal = 2,
  kDigit = 4,
  kNumeric = 8,
  kPrintable = 16,
  kLower = 32,
  kUpper = 64,
  kTitle = 128,
  kIgnoredBySigma = 256,
  kCased = kLower | kUpper | kTitle,
};
std::uint16_t flags_of(char32_t c);

/// Whether str.split() and str.strip() treat `c` as white space.
bool is_space(char32_t c);
/// Whether str.splitlines() ends a line at `c` ("\r\n" counts as one).
bool is_line_end(char32_t c);

/// One to three code points.
struct Mapped {
  char32_t code_points[3] = {};
  int count = 0;
};
Mapped to_upper(char32_t c);
Mapped to_lower(char32_t c);
Mapped to_title(char32_t c);

/// The code point that begins at `position` of well-formed UTF-8, and its length in bytes.
struct Decoded {
  char32_t code_point;
  std::size_t bytes;
};
Decoded decode(std::string_view text, std::size_t position);
/// The start of the code point that ends before `position` (above 0).
std::size_t previous(std::string_view text, std::size_t position);
/// Number of code points.
std::size_t count_characters(std::string_view text);

}  // namespace weft::jinja
