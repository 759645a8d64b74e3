// Expressions: the right sides of rules, regular expressions of patterns and formats, and the languages of numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "grammar/code_points.hpp"

namespace weft::grammar {

using RuleId = std::uint32_t;

struct Expression;
/// Immutable, so that parts may be shared.
using ExpressionPtr = std::shared_ptr<const Expression>;

struct Expression {
  enum class Kind : std::uint8_t {
    characters,  ///< one character of a set
    sequence,    ///< its parts in order; without parts: the empty text
    choice,      ///< one of its parts; without parts: nothing fits
    repeat,      ///< its part, `least` to `most` times
    rule         ///< what another rule says; not inside regular expressions
  };
  static constexpr std::size_t kUnbounded = static_cast<std::size_t>(-1);

  Kind kind = Kind::sequence;
  CodePoints characters = {};
  std::vector<ExpressionPtr> parts = {};
  std::size_t least = 0, most = 0;
  RuleId rule = 0;
};

ExpressionPtr characters(CodePoints set);
ExpressionPtr character(char32_t c);
ExpressionPtr sequence(std::vector<ExpressionPtr> parts);
ExpressionPtr choice(std::vector<ExpressionPtr> parts);
ExpressionPtr repeat(ExpressionPtr part, std::size_t least, std::size_t most = Expression::kUnbounded);
inline ExpressionPtr optional(ExpressionPtr part) { return repeat(std::move(part), 0, 1); }
ExpressionPtr rule(RuleId id);
/// The characters of a UTF-8 text, one after another.
ExpressionPtr literal(std::string_view text);
inline ExpressionPtr digits(std::size_t least, std::size_t most = Expression::kUnbounded) {
  return repeat(characters({{'0', '9'}}), least, most);
}

}  // namespace weft::grammar
