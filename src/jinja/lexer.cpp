#include "jinja/lexer.hpp"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <optional>

#include "base/quote.hpp"
#include "base/utf8.hpp"
#include "jinja/ast.hpp"
#include "jinja/float.hpp"
#include "jinja/unicode.hpp"

namespace weft::jinja {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool opens_tag(char c) { return c == '{' || c == '%' || c == '#'; }
bool is_name_begin(char32_t c) { return c == '_' || flags_of(c) & kAlpha; }
bool is_name_part(char32_t c) { return c == '_' || flags_of(c) & (kAlpha | kDecimal | kDigit | kNumeric); }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) lex_data();
    add(TokenKind::end, source_.size());
    return std::move(tokens_);
  }

 private:
  [[noreturn]] static void fail(std::size_t position, std::string fact, std::string cure) {
    throw SyntaxFault{position, std::move(fact), std::move(cure)};
  }

  void add(TokenKind kind, std::size_t position, std::string text = {}) {
    tokens_.push_back({kind, position, std::move(text)});
  }
  void add_data(std::size_t begin, std::size_t end) {
    if (end > begin) add(TokenKind::data, begin, std::string(source_.substr(begin, end - begin)));
  }

  bool looking_at(std::string_view text) const { return source_.substr(at_).starts_with(text); }
  char peek(std::size_t offset = 0) const { return at_ + offset < source_.size() ? source_[at_ + offset] : '\0'; }

  // Skips Unicode white space, as in Python's regular expressions.
  void skip_space() {
    while (at_ < source_.size()) {
      const auto [c, bytes] = decode(source_, at_);
      if (!is_space(c)) break;
      at_ += bytes;
    }
  }

  // Reads everything up to the next tag, and that tag.
  void lex_data() {
    const std::size_t begin = at_;
    std::size_t tag = source_.find('{', at_);
    while (tag != std::string_view::npos && (tag + 1 == source_.size() || !opens_tag(source_[tag + 1])))
      tag = source_.find('{', tag + 1);
    if (tag == std::string_view::npos) {
      add_data(begin, source_.size());
      at_ = source_.size();
      return;
    }
    const char kind = source_[tag + 1];
    at_ = tag + 2;
    const char sign = read_sign();
    add_data(begin, stripped_end(begin, tag, sign, kind == '{'));
    line_starting_ = false;  // the opening of a tag never ends with a newline
    if (kind == '#') return lex_comment(tag);
    if (kind == '%' && lex_raw(tag)) return;
    lex_tag(tag, kind == '{');
  }

  // The - or + after the opening of a tag.
  char read_sign() {
    if (peek() != '-' && peek() != '+') return '\0';
    return source_[at_++];
  }

  // The end of the data before a tag, without stripped white space.
  std::size_t stripped_end(std::size_t begin, std::size_t end, char sign, bool variable) const {
    if (sign == '-') {
      while (end > begin) {
        const std::size_t last = previous(source_, end);
        if (!is_space(decode(source_, last).code_point)) break;
        end = last;
      }
      return end;
    }
    if (sign == '+' || variable || end == begin) return end;
    const auto newline = source_.substr(begin, end - begin).rfind('\n');
    if (newline == std::string_view::npos && !line_starting_) return end;
    const std::size_t line = newline == std::string_view::npos ? begin : begin + newline + 1;
    for (std::size_t i = line; i < end;) {
      const auto [c, bytes] = decode(source_, i);
      if (!is_space(c)) return end;
      i += bytes;
    }
    return line;
  }

  // Reads the end of a tag: "%}" and the newline after it, "-%}" and all white space, "+%}" and nothing else.
  bool read_end(std::string_view close, bool trims_newline, bool takes_plus) {
    const std::size_t begin = at_;
    if (peek() == '-' && source_.substr(at_ + 1).starts_with(close)) {
      at_ += 1 + close.size();
      skip_space();
    } else if (takes_plus && peek() == '+' && source_.substr(at_ + 1).starts_with(close)) {
      at_ += 1 + close.size();
    } else if (looking_at(close)) {
      at_ += close.size();
      if (trims_newline && peek() == '\n') ++at_;
    } else {
      return false;
    }
    line_starting_ = at_ > begin && source_[at_ - 1] == '\n';
    return true;
  }

  void lex_comment(std::size_t tag) {
    for (; at_ < source_.size(); ++at_)
      if (read_end("#}", true, true)) return;
    fail(tag, "the comment that begins here does not end", "close it with #}");
  }

  // {% raw %} ... {% endraw %}: data without tags.
  bool lex_raw(std::size_t tag) {
    const std::size_t back = at_;
    skip_space();
    if (!looking_at("raw")) return at_ = back, false;
    at_ += 3;
    skip_space();
    if (!read_end("%}", false, false)) return at_ = back, false;
    const std::size_t begin = at_;
    for (std::size_t open = source_.find("{%", at_); open != std::string_view::npos;
         open = source_.find("{%", open + 1)) {
      at_ = open + 2;
      const char sign = read_sign();
      skip_space();
      if (!looking_at("endraw")) continue;
      at_ += 6;
      skip_space();
      const bool starting = line_starting_;
      if (!read_end("%}", true, true)) continue;
      const bool ending = line_starting_;
      line_starting_ = starting;
      add_data(begin, stripped_end(begin, open, sign, false));
      line_starting_ = ending;
      return true;
    }
    fail(tag, "the raw block that begins here does not end", "close it with {% endraw %}");
  }

  void lex_tag(std::size_t tag, bool variable) {
    add(variable ? TokenKind::variable_begin : TokenKind::block_begin, tag);
    std::vector<char> open;  // brackets
    while (at_ < source_.size()) {
      const std::size_t begin = at_;
      if (open.empty() && read_end(variable ? "}}" : "%}", !variable, !variable)) {
        add(variable ? TokenKind::variable_end : TokenKind::block_end, begin);
        return;
      }
      if (const std::size_t before = at_; skip_space(), at_ > before) continue;
      lex_token(open);
    }
    fail(tag, fmt::format("the {} that begins here does not end", variable ? "print" : "block"),
         fmt::format("close it with {}", variable ? "}}" : "%}"));
  }

  void lex_token(std::vector<char>& open) {
    const std::size_t begin = at_;
    const char c = peek();
    if (is_digit(c)) return lex_number();
    if (is_name_begin(decode(source_, at_).code_point)) {
      while (at_ < source_.size() && is_name_part(decode(source_, at_).code_point)) at_ += decode(source_, at_).bytes;
      return add(TokenKind::name, begin, std::string(source_.substr(begin, at_ - begin)));
    }
    if (c == '\'' || c == '"') return lex_string();
    static constexpr std::array<std::string_view, 26> kSymbols = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                                  "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                                  ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    for (const std::string_view symbol : kSymbols) {
      if (!looking_at(symbol)) continue;
      at_ += symbol.size();
      balance(symbol.front(), begin, open);
      return add(TokenKind::symbol, begin, std::string(symbol));
    }
    const std::size_t length = decode(source_, at_).bytes;
    fail(at_, fmt::format("the character {} is not allowed here", quote(source_.substr(at_, length))),
         "names are made of letters, digits and _; strings are in quotes");
  }

  static void balance(char symbol, std::size_t position, std::vector<char>& open) {
    if (symbol == '(') open.push_back(')');
    if (symbol == '[') open.push_back(']');
    if (symbol == '{') open.push_back('}');
    if (symbol != ')' && symbol != ']' && symbol != '}') return;
    if (open.empty()) fail(position, fmt::format("{} closes nothing", symbol), "remove it, or open it before");
    if (open.back() != symbol)
      fail(position, fmt::format("found {} where {} would close the last bracket", symbol, open.back()),
           "close brackets in the order of their opening");
    open.pop_back();
  }

  // Position after digits with single underscores between them, or `from` if there are no digits.
  template <class Digit>
  std::size_t digits_end(std::size_t from, Digit digit) const {
    std::size_t end = from;
    const auto at = [&](std::size_t i) { return i < source_.size() ? source_[i] : '\0'; };
    if (!digit(at(end))) return from;
    while (digit(at(end)) || (at(end) == '_' && digit(at(end + 1)))) ++end;
    return end;
  }

  void lex_number() {
    const std::size_t begin = at_;
    std::size_t end = digits_end(at_, is_digit);
    const auto at = [&](std::size_t i) { return i < source_.size() ? source_[i] : '\0'; };
    std::size_t fraction = end;
    if (at(end) == '.') {
      const std::size_t after = digits_end(end + 1, is_digit);
      if (after > end + 1) fraction = after;
    }
    std::size_t exponent = fraction;
    if (at(fraction) == 'e' || at(fraction) == 'E') {
      const std::size_t sign = fraction + 1 + (at(fraction + 1) == '+' || at(fraction + 1) == '-' ? 1 : 0);
      const std::size_t after = digits_end(sign, is_digit);
      if (after > sign) exponent = after;
    }
    const bool after_dot = begin > 0 && source_[begin - 1] == '.';
    if (exponent > end && !after_dot) {
      at_ = exponent;
      add(TokenKind::real, begin);
      tokens_.back().real = parse_float(source_.substr(begin, at_ - begin)).value_or(0);
      return;
    }
    at_ = integer_end(begin);
    const ParsedInteger parsed = parse_integer(source_.substr(begin, at_ - begin), 0);
    if (!parsed.value) fail(begin, "this integer does not fit into 64 bits", "write it with a point, as a float");
    add(TokenKind::integer, begin);
    tokens_.back().integer = *parsed.value;
  }

  std::size_t integer_end(std::size_t begin) const {
    const auto at = [&](std::size_t i) {
      return i < source_.size() ? std::tolower(static_cast<unsigned char>(source_[i])) : 0;
    };
    const auto prefixed = [&](auto digit) {
      const std::size_t first = begin + 2 + (at(begin + 2) == '_' ? 1 : 0);
      return digits_end(first, digit) > first ? digits_end(first, digit) : std::size_t{0};
    };
    if (at(begin) != '0') return digits_end(begin, is_digit);
    std::size_t end = 0;
    if (at(begin + 1) == 'b') end = prefixed([](char c) { return c == '0' || c == '1'; });
    if (at(begin + 1) == 'o') end = prefixed([](char c) { return c >= '0' && c <= '7'; });
    if (at(begin + 1) == 'x') end = prefixed([](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; });
    return end ? end : digits_end(begin, [](char c) { return c == '0'; });
  }

  void lex_string() {
    const std::size_t begin = at_;
    const char quote_char = source_[at_++];
    std::string text;
    while (true) {
      if (at_ >= source_.size()) fail(begin, "the string that begins here does not end", "close its quote");
      const char c = source_[at_++];
      if (c == quote_char) break;
      if (c != '\\') {
        text += c;
      } else if (at_ >= source_.size()) {
        fail(begin, "the string that begins here does not end", "close its quote");
      } else {
        read_escape(text);
      }
    }
    add(TokenKind::string, begin, std::move(text));
  }

  void read_escape(std::string& text) {
    const std::size_t begin = at_ - 1;
    const char c = source_[at_++];
    static constexpr std::string_view kNames = "abfnrtv\\'\"", kValues = "\a\b\f\n\r\t\v\\'\"";
    if (c == '\n') return;
    if (const auto i = kNames.find(c); i != std::string_view::npos) {
      text += kValues[i];
    } else if (c >= '0' && c <= '7') {
      char32_t value = static_cast<char32_t>(c - '0');
      for (int i = 0; i < 2 && peek() >= '0' && peek() <= '7'; ++i)
        value = value * 8 + static_cast<char32_t>(source_[at_++] - '0');
      append_utf8(text, value);
    } else if (c == 'x' || c == 'u' || c == 'U') {
      read_hexadecimal(text, begin, c == 'x' ? 2 : c == 'u' ? 4 : 8);
    } else if (c == 'N') {
      fail(begin, "characters by name (\\N{...}) are not read", "write the character itself, or \\uXXXX");
    } else {
      text += '\\';  // an unknown escape is kept as text
      --at_;
      const std::size_t length = decode(source_, at_).bytes;
      text += source_.substr(at_, length);
      at_ += length;
    }
  }

  void read_hexadecimal(std::string& text, std::size_t begin, int digits) {
    char32_t value = 0;
    for (int i = 0; i < digits; ++i) {
      const char c = peek();
      if (!std::isxdigit(static_cast<unsigned char>(c)))
        fail(begin, fmt::format("this escape needs {} hexadecimal digits", digits), "complete it, or write \\\\");
      value = value * 16 +
              static_cast<char32_t>(is_digit(c) ? c - '0' : std::tolower(static_cast<unsigned char>(c)) - 'a' + 10);
      ++at_;
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000))
      fail(begin, "this escape names no character", "characters go up to 10FFFF, without d800 to dfff");
    append_utf8(text, value);
  }

  std::string_view source_;
  std::size_t at_ = 0;
  bool line_starting_ = true;  // the last thing read ended with a newline
  std::vector<Token> tokens_;
};

}  // namespace

std::string normalized_source(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

std::vector<Token> tokenize(std::string_view normalized) { return Lexer(normalized).run(); }

}  // namespace weft::jinja
