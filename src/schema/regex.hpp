// Regular expressions of schemas: ECMA-262 with the flag u, run by PCRE2 with limits.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "weft/error.hpp"

namespace weft::schema {

/// A search exceeded its limit of steps.
class RegexLimitError : public Error {
  using Error::Error;
};

/// Thread safety: any number of threads may search with one.
class Regex {
 public:
  /// Errors: UsageError that tells what is wrong with the expression: not ECMA-262, longer than 10,000 bytes, or beyond
  /// what PCRE2 has (look-behind of unbounded length).
  explicit Regex(std::string_view expression);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  /// Whether the expression matches anywhere in `text`, which is UTF-8. Errors: RegexLimitError.
  bool is_found_in(std::string_view text) const;

 private:
  struct Code;
  std::unique_ptr<Code> code_;
};

/// The expression in PCRE2's syntax. Errors: UsageError for what ECMA-262 does not have.
std::string to_pcre(std::string_view expression);

}  // namespace weft::schema
