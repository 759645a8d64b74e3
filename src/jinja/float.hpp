// Numbers and text as Python converts them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace weft::jinja {

/// The shortest text that reads back as `value`: "1.0", "1e+16", "inf", "nan".
std::string python_repr(double value);
/// `value` with `digits` after the point, by format 'f', 'e' or 'g' ('F', 'E', 'G' for capitals); `alternate` as '#'.
std::string python_format(double value, char format, int digits, bool alternate = false);
/// round(value, digits): to the nearest, ties to even, on the exact value.
double python_round(double value, std::int64_t digits);
/// float(text), int(text, base): nothing where Python raises a ValueError, or where an int leaves 64 bits.
std::optional<double> parse_float(std::string_view text);
struct ParsedInteger {
  std::optional<std::int64_t> value;
  bool too_large = false;
};
ParsedInteger parse_integer(std::string_view text, std::int64_t base);

}  // namespace weft::jinja
