// Languages of JSON's numbers within bounds.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/regular.hpp"

namespace weft::grammar {

/// A number by its decimal digits, without an exponent: -12.5 is {true, "12", "5"}; 0 is {false, "0", ""}.
struct Decimal {
  bool is_negative = false;
  std::string whole, fraction;

  /// From a number of JSON. Errors: UsageError for exponents above 400.
  static Decimal parse(std::string_view text);
  bool is_zero() const { return whole == "0" && fraction.empty(); }
  bool operator==(const Decimal&) const = default;
  bool operator<(const Decimal& other) const;
};

struct Bound {
  Decimal value;
  bool is_exclusive = false;
};

struct NumberLimits {
  bool is_integer = false;
  std::vector<Bound> at_least, at_most;
  std::vector<Decimal> multiples_of;
};

/// The texts of JSON's numbers within the limits. Integers have no fraction and no exponent. Other numbers have an exponent only
/// where nothing else limits them. There are at most 18 digits before the point, or as many as a bound has, and 24 after it,
/// so that every text is a finite number. Zero is 0. Errors: UsageError for a multiple that needs too many states.
Regular numbers_within(const NumberLimits& limits);

}  // namespace weft::grammar
