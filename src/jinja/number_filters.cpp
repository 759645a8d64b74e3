// Filters of numbers.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "jinja/arguments.hpp"
#include "jinja/filters.hpp"
#include "jinja/float.hpp"

namespace weft::jinja {
namespace {

Value filter_abs(const Value& value, const Arguments& arguments) {
  Parameters("the filter abs", arguments, {});
  if (value.is_float()) return std::abs(value.real());
  if (value.is_undefined()) fail_undefined(value);
  const std::int64_t integer = require_integer(value, "the subject of abs");
  return integer < 0 ? negative(Value(integer)) : Value(integer);
}

std::optional<std::int64_t> truncated(double value) {
  if (!(std::abs(value) < 9223372036854775808.0)) return std::nullopt;
  return static_cast<std::int64_t>(value);
}

Value filter_int(const Value& value, const Arguments& arguments) {
  const Parameters p("the filter int", arguments, {"default", "base"});
  const Value fallback = p.given(0) ? *p[0] : Value(0);
  if (value.is_undefined()) fail_undefined(value);
  if (const auto integer = value.integer()) return *integer;
  if (value.is_float()) {
    if (std::isnan(value.real())) return fallback;
    if (const auto integer = truncated(value.real())) return *integer;
    fail(fmt::format("int: {} leaves 64 bits", described(value)), "keep it a float");
  }
  if (!value.is_text()) return fallback;
  const std::string& text = value.text()->bytes;
  const ParsedInteger parsed = parse_integer(text, p.integer(1, 10));
  if (parsed.value) return *parsed.value;
  if (parsed.too_large) fail(fmt::format("int: {} leaves 64 bits", described(value)), "use | float");
  const auto number = parse_float(text);
  if (!number || !std::isfinite(*number)) return fallback;
  if (const auto integer = truncated(*number)) return *integer;
  fail(fmt::format("int: {} leaves 64 bits", described(value)), "use | float");
}

Value filter_float(const Value& value, const Arguments& arguments) {
  const Parameters p("the filter float", arguments, {"default"});
  if (value.is_undefined()) fail_undefined(value);
  if (const auto number = value.number()) return *number;
  if (value.is_text())
    if (const auto number = parse_float(value.text()->bytes)) return *number;
  return p.given(0) ? *p[0] : Value(0.0);
}

// An integer to the nearest multiple of 10^digits, ties to even.
std::int64_t round_integer(std::int64_t value, std::int64_t digits) {
  if (digits > 18) return 0;
  __int128 unit = 1;
  for (std::int64_t i = 0; i < digits; ++i) unit *= 10;
  const __int128 wide = value;
  __int128 quotient = wide / unit, rest = wide % unit;
  if (rest < 0) {
    rest += unit;
    --quotient;
  }
  if (2 * rest > unit || (2 * rest == unit && quotient % 2 != 0)) ++quotient;
  const __int128 result = quotient * unit;
  if (result > INT64_MAX || result < INT64_MIN)
    fail("the result of round does not fit into 64 bits", "use | float first");
  return static_cast<std::int64_t>(result);
}

Value filter_round(const Value& value, const Arguments& arguments) {
  const Parameters p("the filter round", arguments, {"precision", "method"});
  const std::string method = p.given(1) ? p.text(1)->bytes : "common";
  if (method != "common" && method != "ceil" && method != "floor")
    fail(fmt::format("round: {} is not a method", quote(method, 40)), "use common, ceil or floor");
  if (value.is_undefined()) fail_undefined(value);
  if (!value.number()) fail(fmt::format("round: {} is not a number", described(value)), "convert it with | float");
  const std::int64_t precision = p.integer(0, 0);
  if (method == "common") {
    if (value.is_float()) return python_round(value.real(), precision);
    return precision >= 0 ? *value.integer()
                          : round_integer(*value.integer(), precision == INT64_MIN ? INT64_MAX : -precision);
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = *value.number() * scale;
  if (!std::isfinite(scaled)) fail("round: the number is not finite, or the precision too large");
  return (method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale;
}

Value filter_filesizeformat(const Value& value, const Arguments& arguments) {
  const Parameters p("the filter filesizeformat", arguments, {"binary"});
  const bool binary = p.flag(0, false);
  std::optional<double> number = value.number();
  if (value.is_undefined()) fail_undefined(value);
  if (value.is_text()) number = parse_float(value.text()->bytes);
  if (!number) fail(fmt::format("filesizeformat: {} is not a number", described(value)), "convert it with | float");
  const double base = binary ? 1024 : 1000;
  if (*number == 1) return Value(std::string_view("1 Byte"));
  if (*number < base) return Value(std::string_view(fmt::format("{} Bytes", static_cast<std::int64_t>(*number))));
  static constexpr std::string_view kLetters = "kMGTPEZY";
  double unit = base;
  for (std::size_t i = 0; i < kLetters.size(); ++i) {
    unit *= base;
    if (*number < unit || i + 1 == kLetters.size()) {
      const char letter = binary && i == 0 ? 'K' : kLetters[i];
      return Value(std::string_view(fmt::format("{:.1f} {}{}B", base * *number / unit, letter, binary ? "i" : "")));
    }
  }
  return Value();
}

constexpr FilterRow kNumberFilters[] = {
    {"abs", filter_abs},     {"filesizeformat", filter_filesizeformat}, {"float", filter_float}, {"int", filter_int},
    {"round", filter_round},
};

}  // namespace

std::span<const FilterRow> number_filters() { return kNumberFilters; }

}  // namespace weft::jinja
