// Patterns that cut texts: a literal, one of the known expressions scanned by hand, or a regular expression for PCRE2.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/function_ref.hpp"

namespace weft::text {

/// Finds non-overlapping matches from left to right. For use by many threads at once.
class Pattern {
 public:
  using OnMatch = FunctionRef<void(std::size_t begin, std::size_t end)>;
  virtual ~Pattern() = default;
  /// Calls `on_match` for each match in `text`, which must be UTF-8. UsageError if the search exceeds its limits, which
  /// only a regular expression can.
  virtual void for_each(std::string_view text, OnMatch on_match) const = 0;
};

/// Matches `text` itself. An empty one matches before each character and at the end.
std::unique_ptr<Pattern> make_literal(std::string text);

/// Matches the regular expression: by a scanner in linear time if its text is a known one (see scanners.hpp), else by
/// PCRE2 with limits on the steps of a match. The syntax is that of tokenizer.json files, which are written for
/// Oniguruma: \s is White_Space, \w alphabetic characters, marks, digits and connectors, the name of a script means Script and
/// not Script_Extensions, ^ and $ match at lines.
/// UsageError "regular expression ...: fact" if it is malformed or uses nested character classes.
std::unique_ptr<Pattern> make_regex(std::string_view expression);

/// `make_regex` that always takes PCRE2: what scanners are tested against.
std::unique_ptr<Pattern> make_pcre(std::string_view expression);

}  // namespace weft::text
