#include "jinja/float.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include "jinja/unicode.hpp"

namespace weft::jinja {
namespace {

std::string named(double value) { return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf"; }

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_space(decode(text, 0).code_point)) text.remove_prefix(decode(text, 0).bytes);
  while (!text.empty()) {
    const std::size_t last = previous(text, text.size());
    if (!is_space(decode(text, last).code_point)) break;
    text = text.substr(0, last);
  }
  return text;
}

// Removes underscores, each of which must be between two digits.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
      continue;
    }
    const auto digit = [&](std::size_t at) {
      return at < text.size() && std::isxdigit(static_cast<unsigned char>(text[at]));
    };
    if (i == 0 || !digit(i - 1) || !digit(i + 1)) return std::nullopt;
  }
  return out;
}

// Reads valid decimal text; from_chars does not depend on the locale.
double read_digits(std::string_view digits) {
  double value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return value;
}

// Whether a number out of range is too small (a decimal exponent below 0) or too large (otherwise).
int exponent_sign(std::string_view number) {
  const auto e = number.find('e');
  const std::string_view mantissa = number.substr(0, e);
  if (e != std::string_view::npos) return number.substr(e + 1).starts_with('-') ? -1 : 1;
  return mantissa.find_first_of("123456789") > mantissa.find('.') ? -1 : 1;
}

}  // namespace

std::string python_repr(double value) {
  if (!std::isfinite(value)) return named(value);
  char buffer[64];
  const auto written = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  std::string_view text(buffer, static_cast<std::size_t>(written.ptr - buffer));
  std::string out;
  if (text.front() == '-') {
    out = "-";
    text.remove_prefix(1);
  }
  const auto e = text.find('e');
  int exponent = 0;
  const std::string_view power = text.substr(text[e + 1] == '+' ? e + 2 : e + 1);
  std::from_chars(power.data(), power.data() + power.size(), exponent);
  std::string digits(text.substr(0, 1));
  if (e > 2) digits += text.substr(2, e - 2);
  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits.substr(0, 1);
    if (count > 1) out += "." + digits.substr(1);
    return out + fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return out + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  if (count <= exponent + 1)
    return out + digits + std::string(static_cast<std::size_t>(exponent + 1 - count), '0') + ".0";
  return out + digits.substr(0, static_cast<std::size_t>(exponent + 1)) + "." +
         digits.substr(static_cast<std::size_t>(exponent + 1));
}

std::string python_format(double value, char format, int digits, bool alternate) {
  if (!std::isfinite(value)) {
    std::string text = named(value);
    if (std::isupper(static_cast<unsigned char>(format)))
      std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::toupper(c); });
    return text;
  }
  const std::string pattern = fmt::format("{{:{}.{{}}{}}}", alternate ? "#" : "", format);
  return fmt::format(fmt::runtime(pattern), value, digits);
}

double python_round(double value, std::int64_t digits) {
  if (!std::isfinite(value) || digits > 323) return value;
  if (digits >= 0) return read_digits(python_format(value, 'f', static_cast<int>(digits)));
  if (digits < -308) return std::copysign(0.0, value);
  // The digits of the whole number, and whether a fraction follows; rounded by hand at 10^-digits.
  const double whole = std::trunc(value);
  std::string text = python_format(std::abs(whole), 'f', 0);
  const auto cut = static_cast<std::size_t>(-digits);
  if (text.size() < cut) return std::copysign(0.0, value);
  std::string head = text.substr(0, text.size() - cut);
  const std::string tail = text.substr(text.size() - cut);
  const std::string half = "5" + std::string(cut - 1, '0');
  const bool odd = !head.empty() && (head.back() - '0') % 2 == 1;
  const bool up = tail > half || (tail == half && (value != whole || odd));
  if (up) {
    std::size_t i = head.size();
    while (i > 0 && head[i - 1] == '9') head[--i] = '0';
    if (i > 0) {
      ++head[i - 1];
    } else {
      head.insert(head.begin(), '1');
    }
  }
  if (head.empty()) head = "0";
  return std::copysign(read_digits(head + std::string(cut, '0')), value);
}

std::optional<double> parse_float(std::string_view text) {
  const auto clean = without_underscores(trimmed(text));
  if (!clean || clean->empty()) return std::nullopt;
  std::string_view rest = *clean;
  const bool negative = rest.front() == '-';
  if (negative || rest.front() == '+') rest.remove_prefix(1);
  if (rest.empty()) return std::nullopt;
  std::string lower(rest);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  double value = 0;
  if (lower == "inf" || lower == "infinity") {
    value = HUGE_VAL;
  } else if (lower == "nan") {
    value = std::nan("");
  } else {
    // Only digits, a point and an exponent: no hexadecimal floats.
    if (lower.find_first_not_of("0123456789.e+-") != std::string::npos) return std::nullopt;
    if (lower.front() == '+' || lower.front() == '-' || lower.front() == 'e') return std::nullopt;
    const auto read = std::from_chars(lower.data(), lower.data() + lower.size(), value);
    if (read.ptr != lower.data() + lower.size()) return std::nullopt;
    if (read.ec == std::errc::result_out_of_range) {
      value = exponent_sign(lower) < 0 ? 0 : HUGE_VAL;  // as in Python
    } else if (read.ec != std::errc()) {
      return std::nullopt;
    }
  }
  return negative ? -value : value;
}

ParsedInteger parse_integer(std::string_view text, std::int64_t base) {
  std::string_view rest = trimmed(text);
  if (rest.empty() || base == 1 || base < 0 || base > 36) return {};
  const bool negative = rest.front() == '-';
  if (negative || rest.front() == '+') rest.remove_prefix(1);
  const auto prefix = [&](char letter, std::int64_t of) {
    if (rest.size() < 2 || rest[0] != '0' || std::tolower(static_cast<unsigned char>(rest[1])) != letter) return false;
    if (base != 0 && base != of) return false;
    rest.remove_prefix(2);
    if (!rest.empty() && rest.front() == '_') rest.remove_prefix(1);
    base = of;
    return true;
  };
  if (!prefix('x', 16) && !prefix('o', 8) && !prefix('b', 2) && base == 0) {
    base = 10;
    if (rest.size() > 1 && rest.front() == '0' && rest.find_first_not_of("0_") != std::string_view::npos) return {};
  }
  if (rest.empty() || rest.front() == '_' || rest.back() == '_' || rest.find("__") != std::string_view::npos) return {};
  __int128 value = 0;
  bool too_large = false;
  for (const char c : rest) {
    if (c == '_') continue;
    const int digit = std::isdigit(static_cast<unsigned char>(c)) ? c - '0'
                      : std::isalpha(static_cast<unsigned char>(c))
                          ? std::tolower(static_cast<unsigned char>(c)) - 'a' + 10
                          : 99;
    if (digit >= base) return {};
    if (!too_large) value = value * base + digit;
    too_large = too_large || value > static_cast<__int128>(INT64_MAX) + 1;
  }
  if (negative) value = -value;
  if (too_large || value > INT64_MAX) return {std::nullopt, true};
  return {static_cast<std::int64_t>(value), false};
}

}  // namespace weft::jinja
