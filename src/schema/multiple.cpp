// `multipleOf` by decimal arithmetic: 0.0075 is a multiple of 0.0001, which their doubles are not.
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>

#include "schema/node.hpp"

namespace weft::schema {
namespace {

// digits * 10^exponent; the shortest decimal number that reads as the same double.
struct Decimal {
  std::uint64_t digits = 0;
  int exponent = 0;
};

Decimal decimal_of(const Value& value) {
  Decimal decimal;
  if (value.kind() == Value::Kind::integer) {
    decimal.digits =
        compare_numbers(value, 0) < 0 ? 0 - static_cast<std::uint64_t>(value.integer()) : value.unsigned_integer();
    return decimal;
  }
  const std::string shortest = fmt::format("{}", std::abs(value.number()));
  bool behind_point = false;
  for (std::size_t i = 0; i < shortest.size(); ++i) {
    const char c = shortest[i];
    if (c == '.') {
      behind_point = true;
    } else if (c == 'e') {
      decimal.exponent += std::atoi(shortest.c_str() + i + 1);
      break;
    } else {
      decimal.digits = decimal.digits * 10 + static_cast<std::uint64_t>(c - '0');
      decimal.exponent -= behind_point;
    }
  }
  while (decimal.digits && decimal.digits % 10 == 0) decimal.digits /= 10, ++decimal.exponent;
  return decimal;
}

std::uint64_t times_mod(std::uint64_t a, std::uint64_t b, std::uint64_t modulus) {
  return static_cast<std::uint64_t>(static_cast<unsigned __int128>(a) * b % modulus);
}

}  // namespace

bool is_multiple(const Value& a, const Value& b) {
  if (!std::isfinite(a.number()) || !std::isfinite(b.number())) return false;
  const Decimal x = decimal_of(a), y = decimal_of(b);
  if (x.digits == 0) return true;
  if (y.digits == 0) return false;
  if (x.exponent >= y.exponent) {
    std::uint64_t rest = x.digits % y.digits, factor = 10 % y.digits;
    for (int power = x.exponent - y.exponent; power > 0; power /= 2) {
      if (power % 2) rest = times_mod(rest, factor, y.digits);
      factor = times_mod(factor, factor, y.digits);
    }
    return rest == 0;
  }
  std::uint64_t left = x.digits;  // must be a multiple of y.digits * 10^(difference)
  for (int i = x.exponent; i < y.exponent; ++i) {
    if (left % 10) return false;
    left /= 10;
  }
  return left % y.digits == 0;
}

}  // namespace weft::schema
