// Cuts a template into data and tokens, with Jinja2's rules of white space (trim_blocks and lstrip_blocks are on).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft::jinja {

enum class TokenKind {
  data,
  variable_begin,
  variable_end,
  block_begin,
  block_end,
  name,
  string,
  integer,
  real,
  symbol,  // an operator or a bracket
  end,
};

struct Token {
  TokenKind kind;
  std::size_t position;  // byte in the source
  std::string text;      // of data, a name, a symbol; the content of a string
  std::int64_t integer = 0;
  double real = 0;
};

/// The source with newlines as \n and without the last one; positions refer to it.
std::string normalized_source(std::string_view source);
/// The tokens, ending with one of kind `end`. SyntaxFault for text that is not a token.
std::vector<Token> tokenize(std::string_view normalized);

}  // namespace weft::jinja
