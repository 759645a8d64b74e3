#include "grammar/numbers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "weft/error.hpp"

namespace weft::grammar {
namespace {

constexpr std::size_t kWholeDigits = 18, kFractionDigits = 24, kModulusMax = 10'000;

ExpressionPtr digit_between(char first, char last) {
  return first > last ? choice({}) : characters({{static_cast<char32_t>(first), static_cast<char32_t>(last)}});
}

// Digits of the same count as `bound` that are above it (or below it), or equal to it.
ExpressionPtr digits_beyond(std::string_view bound, bool above, bool or_equal) {
  if (bound.empty()) return or_equal ? sequence({}) : choice({});
  const char digit = bound[0];
  const std::size_t rest = bound.size() - 1;
  const ExpressionPtr further =
      above ? digit_between(static_cast<char>(digit + 1), '9') : digit_between('0', static_cast<char>(digit - 1));
  return choice({sequence({character(static_cast<char32_t>(digit)), digits_beyond(bound.substr(1), above, or_equal)}),
                 sequence({further, digits(rest, rest)})});
}

// Whole numbers without leading zeros that are above `bound`.
ExpressionPtr wholes_above(const std::string& bound) {
  // The first digit of a longer number is not 0; one of the same length is above the bound, which does not begin with 0 either.
  return choice({digits_beyond(bound, true, false), sequence({digit_between('1', '9'), digits(bound.size())})});
}

// Whole numbers without leading zeros that are below `bound`.
ExpressionPtr wholes_below(const std::string& bound) {
  if (bound.size() == 1) return digit_between('0', static_cast<char>(bound[0] - 1));
  const char first = bound[0];
  const std::size_t rest = bound.size() - 1;
  return choice({sequence({character(static_cast<char32_t>(first)),
                           digits_beyond(std::string_view(bound).substr(1), false, false)}),
                 sequence({digit_between('1', static_cast<char>(first - 1)), digits(rest, rest)}),  // as long
                 sequence({digit_between('1', '9'), digits(0, rest - 1)}), character('0')});
}

ExpressionPtr any_fraction() { return optional(sequence({character('.'), digits(1)})); }

// What follows the whole part where that is the bound's: fractions (with their point) beyond the bound's, which has no 0 at its
// end.
ExpressionPtr fractions_above(std::string_view bound, bool or_equal) {
  // Digits after the first ones of the bound.
  ExpressionPtr rest = or_equal ? digits(0) : sequence({repeat(character('0'), 0), digit_between('1', '9'), digits(0)});
  for (std::size_t i = bound.size(); i-- > 0;)
    rest = choice({sequence({character(static_cast<char32_t>(bound[i])), rest}),
                   sequence({digit_between(static_cast<char>(bound[i] + 1), '9'), digits(0)})});
  const ExpressionPtr with_point = sequence({character('.'), rest});
  return bound.empty() && or_equal ? any_fraction() : with_point;
}
ExpressionPtr fractions_below(std::string_view bound, bool or_equal) {
  ExpressionPtr rest = or_equal ? repeat(character('0'), 0) : choice({});
  for (std::size_t i = bound.size(); i-- > 0;) {
    std::vector<ExpressionPtr> list = {sequence({character(static_cast<char32_t>(bound[i])), rest}),
                                       sequence({digit_between('0', static_cast<char>(bound[i] - 1)), digits(0)})};
    list.push_back(sequence({}));  // fewer digits: what is missing is above 0
    rest = choice(std::move(list));
  }
  const ExpressionPtr with_point = sequence({character('.'), rest});
  return bound.empty() && !or_equal ? choice({}) : optional(with_point);
}

// Absolute values beyond a bound that is not negative.
ExpressionPtr above(const Decimal& bound, bool or_equal) {
  return choice({sequence({wholes_above(bound.whole), any_fraction()}),
                 sequence({literal(bound.whole), fractions_above(bound.fraction, or_equal)})});
}
ExpressionPtr below(const Decimal& bound, bool or_equal) {
  return choice({sequence({wholes_below(bound.whole), any_fraction()}),
                 sequence({literal(bound.whole), fractions_below(bound.fraction, or_equal)})});
}

ExpressionPtr magnitudes() {
  return sequence({choice({character('0'), sequence({digit_between('1', '9'), digits(0)})}), any_fraction()});
}

Regular at_least(const Bound& bound) {
  const ExpressionPtr minus = character('-');
  if (!bound.value.is_negative) return Regular(*above(bound.value, !bound.is_exclusive));
  return Regular(*choice({magnitudes(), sequence({minus, below(bound.value, !bound.is_exclusive)})}));
}
Regular at_most(const Bound& bound) {
  const ExpressionPtr minus = character('-');
  if (bound.value.is_negative) return Regular(*sequence({minus, above(bound.value, !bound.is_exclusive)}));
  return Regular(*choice({sequence({minus, magnitudes()}), below(bound.value, !bound.is_exclusive)}));
}

// Numbers whose value is a multiple of a decimal: with its number of digits after the point they are whole, and the
// automaton counts modulo the multiple.
Regular multiples_of(const Decimal& step) {
  const std::string scaled = step.whole == "0" ? step.fraction : step.whole + step.fraction;
  std::size_t modulus = 0;
  std::from_chars(scaled.data(), scaled.data() + scaled.size(), modulus);
  const std::size_t places = step.fraction.size();
  if (scaled.size() > 9 || modulus == 0 || modulus > kModulusMax || modulus * (places + 1) > 10 * kModulusMax)
    throw UsageError(
        fmt::format("grammar: multiples of {}.{} need too many states; multiples of at most {} are counted", step.whole,
                    step.fraction.empty() ? "0" : step.fraction, kModulusMax));
  Regular automaton;
  automaton.states.resize(1 + modulus * (places + 1));
  // A state for each remainder and number of digits after the point; places + 1 blocks.
  const auto at = [&](std::size_t remainder, std::size_t after) {
    return static_cast<std::uint32_t>(1 + after * modulus + remainder);
  };
  automaton.states[0].edges.push_back({CodePoints::one('-'), at(0, 0)});
  automaton.states[0].skips.push_back(at(0, 0));
  for (std::size_t after = 0; after <= places; ++after)
    for (std::size_t r = 0; r < modulus; ++r) {
      Regular::State& state = automaton.states[at(r, after)];
      std::size_t value = r;
      for (std::size_t i = after; i < places; ++i) value = value * 10 % modulus;
      state.accepts = value == 0;
      for (std::size_t digit = 0; digit < 10; ++digit) {
        const CodePoints on = CodePoints::one(static_cast<char32_t>('0' + digit));
        const std::size_t next = (r * 10 + digit) % modulus;
        if (after == 0) state.edges.push_back({on, at(next, 0)});
        if (after > 0 && after < places) state.edges.push_back({on, at(next, after + 1)});
      }
    }
  if (places == 0) return automaton;
  // The point, after which at least one digit follows.
  for (std::size_t r = 0; r < modulus; ++r) {
    const auto point = static_cast<std::uint32_t>(automaton.states.size());
    automaton.states.emplace_back();
    automaton.states[at(r, 0)].edges.push_back({CodePoints::one('.'), point});
    for (std::size_t digit = 0; digit < 10; ++digit)
      automaton.states[point].edges.push_back(
          {CodePoints::one(static_cast<char32_t>('0' + digit)), at((r * 10 + digit) % modulus, 1)});
  }
  return automaton;
}

}  // namespace

Decimal Decimal::parse(std::string_view text) {
  Decimal d;
  if (text.starts_with('-')) {
    d.is_negative = true;
    text.remove_prefix(1);
  }
  int exponent = 0;
  if (const std::size_t e = text.find_first_of("eE"); e != std::string_view::npos) {
    std::string_view digits_of = text.substr(e + 1);
    if (digits_of.starts_with('+')) digits_of.remove_prefix(1);
    const auto read = std::from_chars(digits_of.data(), digits_of.data() + digits_of.size(), exponent);
    if (read.ec != std::errc() || exponent > 400 || exponent < -400)
      throw UsageError("grammar: a number with an exponent above 400");
    text = text.substr(0, e);
  }
  const std::size_t point = std::min(text.find('.'), text.size());
  d.whole = text.substr(0, point);
  d.fraction = point < text.size() ? text.substr(point + 1) : "";
  for (; exponent > 0; --exponent) {
    d.whole += d.fraction.empty() ? '0' : d.fraction[0];
    if (!d.fraction.empty()) d.fraction.erase(0, 1);
  }
  for (; exponent < 0; ++exponent) {
    d.fraction.insert(d.fraction.begin(), d.whole.empty() ? '0' : d.whole.back());
    if (!d.whole.empty()) d.whole.pop_back();
  }
  d.whole.erase(0, std::min(d.whole.find_first_not_of('0'), d.whole.size()));
  if (d.whole.empty()) d.whole = "0";
  while (d.fraction.ends_with('0')) d.fraction.pop_back();
  if (d.is_zero()) d.is_negative = false;
  return d;
}

bool Decimal::operator<(const Decimal& other) const {
  if (is_negative != other.is_negative) return is_negative;
  const Decimal &small = is_negative ? other : *this, &large = is_negative ? *this : other;
  if (whole.size() != other.whole.size()) return small.whole.size() < large.whole.size();
  return small.whole != large.whole ? small.whole < large.whole : small.fraction < large.fraction;
}

Regular numbers_within(const NumberLimits& limits) {
  std::size_t whole_digits = kWholeDigits;
  for (const auto* list : {&limits.at_least, &limits.at_most})
    for (const Bound& bound : *list) whole_digits = std::max(whole_digits, bound.value.whole.size());
  const bool is_limited = !limits.at_least.empty() || !limits.at_most.empty() || !limits.multiples_of.empty();
  const ExpressionPtr positive = sequence({digit_between('1', '9'), digits(0, whole_digits - 1)});
  ExpressionPtr all;
  if (limits.is_integer) {
    all = choice({character('0'), sequence({optional(character('-')), positive})});
  } else {
    const ExpressionPtr fraction = optional(sequence({character('.'), digits(1, kFractionDigits)}));
    all = sequence({optional(character('-')), choice({character('0'), positive}), fraction});
    // Exponents from -999 to 199.
    const ExpressionPtr exponent =
        sequence({characters({{'e', 'e'}, {'E', 'E'}}),
                  choice({sequence({character('-'), digits(1, 3)}),
                          sequence({optional(character('+')),
                                    choice({digits(1, 2), sequence({character('1'), digits(2, 2)})})})})});
    if (!is_limited) all = sequence({all, optional(exponent)});
  }
  Regular numbers(*all);
  for (const Bound& bound : limits.at_least) numbers = intersect(numbers, at_least(bound));
  for (const Bound& bound : limits.at_most) numbers = intersect(numbers, at_most(bound));
  for (const Decimal& step : limits.multiples_of) numbers = intersect(numbers, multiples_of(step));
  return numbers;
}

}  // namespace weft::grammar
