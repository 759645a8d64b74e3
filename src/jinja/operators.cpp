// The operators of expressions, with their meaning in Python.
#include <fmt/format.h>

#include <cmath>

#include "jinja/arguments.hpp"
#include "jinja/library.hpp"

namespace weft::jinja {
namespace {

[[noreturn]] void fail_types(std::string_view sign, const Value& a, const Value& b) {
  if (a.is_undefined()) fail_undefined(a);
  if (b.is_undefined()) fail_undefined(b);
  fail(fmt::format("{} cannot join {} and {}", sign, described(a), described(b)),
       "convert one of them, as with | string or | int");
}
[[noreturn]] void fail_overflow(std::string_view sign) {
  fail(fmt::format("the result of {} does not fit into 64 bits", sign), "use floats, written with a point");
}

bool both_integers(const Value& a, const Value& b) { return a.integer() && b.integer(); }
bool both_numbers(const Value& a, const Value& b) { return a.number() && b.number(); }

std::vector<Value> repeated(const std::vector<Value>& items, std::int64_t count) {
  std::vector<Value> out;
  if (items.empty()) return out;
  Charge charge;
  for (std::int64_t i = 0; i < count; ++i) {
    charge.add(items.size() * sizeof(Value));
    work(items.size());
    out.insert(out.end(), items.begin(), items.end());
  }
  return out;
}

// A container times an integer; nothing if it is neither.
std::optional<Value> times(const Value& container, const Value& count) {
  const auto n = count.integer();
  if (!n) return std::nullopt;
  if (container.is_text()) {
    TextBuilder out;
    out.repeat(*container.text(), static_cast<std::size_t>(std::max<std::int64_t>(*n, 0)));
    return Value(out.take(container.text()->markup));
  }
  if (container.is_sequence()) {
    auto items = repeated(container.sequence()->items, *n);
    return container.sequence()->tuple ? Value::tuple(std::move(items)) : Value::list(std::move(items));
  }
  return std::nullopt;
}

double python_modulo(double a, double b) {
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  return rest == 0 ? std::copysign(0.0, b) : rest;
}

Value integer_power(std::int64_t base, std::int64_t exponent) {
  std::int64_t result = 1;
  while (exponent > 0) {
    if (exponent % 2 == 1 && __builtin_mul_overflow(result, base, &result)) fail_overflow("**");
    exponent /= 2;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) fail_overflow("**");
  }
  return result;
}

}  // namespace

TextPointer escape_html(const Value& value) {
  if (value.is_text() && value.text()->markup) return value.text();
  const TextPointer text = soft_text(value);
  TextBuilder out;
  std::size_t plain = 0;
  for (std::size_t i = 0; i < text->bytes.size(); ++i) {
    std::string_view entity;
    switch (text->bytes[i]) {
      case '&': entity = "&amp;"; break;
      case '<': entity = "&lt;"; break;
      case '>': entity = "&gt;"; break;
      case '\'': entity = "&#39;"; break;
      case '"': entity = "&#34;"; break;
      default: continue;
    }
    out.append(*text, plain, i);
    out.append(entity, text->from_user_at(i));
    plain = i + 1;
  }
  out.append(*text, plain, text->bytes.size());
  return out.take(true);
}

Value add(const Value& a, const Value& b) {
  if (both_integers(a, b)) {
    std::int64_t sum = 0;
    if (__builtin_add_overflow(*a.integer(), *b.integer(), &sum)) fail_overflow("+");
    return sum;
  }
  if (both_numbers(a, b)) return *a.number() + *b.number();
  if (a.is_text() && b.is_text()) {
    const bool markup = a.text()->markup || b.text()->markup;
    TextBuilder out;
    out.append(markup ? *escape_html(a) : *a.text());
    out.append(markup ? *escape_html(b) : *b.text());
    return out.take(markup);
  }
  if (a.is_sequence() && b.is_sequence() && a.sequence()->tuple == b.sequence()->tuple) {
    const Charge charge((a.sequence()->items.size() + b.sequence()->items.size()) * sizeof(Value));
    std::vector<Value> items = a.sequence()->items;
    items.insert(items.end(), b.sequence()->items.begin(), b.sequence()->items.end());
    return a.sequence()->tuple ? Value::tuple(std::move(items)) : Value::list(std::move(items));
  }
  fail_types("+", a, b);
}

Value subtract(const Value& a, const Value& b) {
  if (both_integers(a, b)) {
    std::int64_t difference = 0;
    if (__builtin_sub_overflow(*a.integer(), *b.integer(), &difference)) fail_overflow("-");
    return difference;
  }
  if (both_numbers(a, b)) return *a.number() - *b.number();
  fail_types("-", a, b);
}

Value multiply(const Value& a, const Value& b) {
  if (both_integers(a, b)) {
    std::int64_t product = 0;
    if (__builtin_mul_overflow(*a.integer(), *b.integer(), &product)) fail_overflow("*");
    return product;
  }
  if (both_numbers(a, b)) return *a.number() * *b.number();
  if (a.is_undefined() || b.is_undefined()) fail_types("*", a, b);
  if (auto product = times(a, b)) return *product;
  if (auto product = times(b, a)) return *product;
  fail_types("*", a, b);
}

Value divide(const Value& a, const Value& b) {
  if (!both_numbers(a, b)) fail_types("/", a, b);
  if (*b.number() == 0) fail("/ divides by zero", "test the divisor first");
  // A mantissa of 64 bits holds every integer, so large integers are rounded once.
  if (both_integers(a, b))
    return static_cast<double>(static_cast<long double>(*a.integer()) / static_cast<long double>(*b.integer()));
  return *a.number() / *b.number();
}

Value floor_divide(const Value& a, const Value& b) {
  if (!both_numbers(a, b)) fail_types("//", a, b);
  if (*b.number() == 0) fail("// divides by zero", "test the divisor first");
  if (both_integers(a, b)) {
    const std::int64_t x = *a.integer(), y = *b.integer();
    if (x == INT64_MIN && y == -1) fail_overflow("//");
    return x / y - (x % y != 0 && (x % y < 0) != (y < 0) ? 1 : 0);
  }
  const double x = *a.number(), y = *b.number();
  const double quotient = (x - python_modulo(x, y)) / y;
  if (quotient == 0) return std::copysign(0.0, x / y);
  const double whole = std::floor(quotient);
  return quotient - whole > 0.5 ? whole + 1 : whole;
}

Value modulo(const Value& a, const Value& b) {
  if (a.is_text()) return format_percent(a.text(), b);
  if (!both_numbers(a, b)) fail_types("%", a, b);
  if (*b.number() == 0) fail("% divides by zero", "test the divisor first");
  if (both_integers(a, b)) {
    const std::int64_t x = *a.integer(), y = *b.integer();
    if (y == -1) return 0;
    const std::int64_t rest = x % y;
    return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
  }
  return python_modulo(*a.number(), *b.number());
}

Value power(const Value& a, const Value& b) {
  if (!both_numbers(a, b)) fail_types("**", a, b);
  if (both_integers(a, b) && *b.integer() >= 0) {
    const std::int64_t base = *a.integer();
    if (base == 0 || base == 1) return *b.integer() == 0 ? 1 : base;
    if (base == -1) return *b.integer() % 2 == 0 ? 1 : -1;
    if (*b.integer() > 64) fail_overflow("**");
    return integer_power(base, *b.integer());
  }
  const double x = *a.number(), y = *b.number();
  if (x == 0 && y < 0) fail("** divides by zero", "test the base first");
  if (x < 0 && std::isfinite(x) && std::isfinite(y) && y != std::floor(y))
    fail("a negative number to a fractional power has no real value", "take its | abs");
  const double result = std::pow(x, y);
  if (std::isinf(result) && std::isfinite(x) && std::isfinite(y)) fail("the result of ** is too large for a float");
  return result;
}

Value negative(const Value& a) {
  if (a.is_undefined()) fail_undefined(a);
  if (const auto integer = a.integer()) {
    if (*integer == INT64_MIN) fail_overflow("-");
    return -*integer;
  }
  if (a.is_float()) return -a.real();
  fail(fmt::format("- cannot negate {}", described(a)), "convert it with | int or | float");
}

Value positive(const Value& a) {
  if (a.is_undefined()) fail_undefined(a);
  if (const auto integer = a.integer()) return *integer;
  if (a.is_float()) return a;
  fail(fmt::format("+ cannot be applied to {}", described(a)), "convert it with | int or | float");
}

}  // namespace weft::jinja
