#include "schema/regex.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/quote.hpp"
#include "base/utf8.hpp"

namespace weft::schema {
namespace {

constexpr std::size_t kMaxExpressionBytes = 10'000;
constexpr std::uint32_t kMaxSearchSteps = 1'000'000;
constexpr std::uint32_t kMaxSearchKilobytes = 16 << 10;
constexpr std::uint32_t kMaxGroupDepth = 100;

// What \s and \S hold, for the inside of a class.
constexpr std::string_view kSpaceMembers =
    R"(\x09-\x0d\x20\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{feff})";
constexpr std::string_view kOtherMembers =
    R"(\x00-\x08\x0e-\x1f\x21-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027}\x{202a}-\x{202e}\x{2030}-\x{205e})"
    R"(\x{2060}-\x{2fff}\x{3001}-\x{d7ff}\x{e000}-\x{fefe}\x{ff00}-\x{10ffff})";

// General categories by their long names; PCRE2 knows the short ones.
struct Category {
  std::string_view name, letters;
};
constexpr Category kCategories[] = {
    {"Cased_Letter", "L&"},
    {"Close_Punctuation", "Pe"},
    {"Connector_Punctuation", "Pc"},
    {"Control", "Cc"},
    {"cntrl", "Cc"},
    {"Currency_Symbol", "Sc"},
    {"Dash_Punctuation", "Pd"},
    {"Decimal_Number", "Nd"},
    {"digit", "Nd"},
    {"Enclosing_Mark", "Me"},
    {"Final_Punctuation", "Pf"},
    {"Format", "Cf"},
    {"Initial_Punctuation", "Pi"},
    {"Letter", "L"},
    {"Letter_Number", "Nl"},
    {"Line_Separator", "Zl"},
    {"Lowercase_Letter", "Ll"},
    {"Mark", "M"},
    {"Combining_Mark", "M"},
    {"Math_Symbol", "Sm"},
    {"Modifier_Letter", "Lm"},
    {"Modifier_Symbol", "Sk"},
    {"Nonspacing_Mark", "Mn"},
    {"Number", "N"},
    {"Open_Punctuation", "Ps"},
    {"Other", "C"},
    {"Other_Letter", "Lo"},
    {"Other_Number", "No"},
    {"Other_Punctuation", "Po"},
    {"Other_Symbol", "So"},
    {"Paragraph_Separator", "Zp"},
    {"Private_Use", "Co"},
    {"Punctuation", "P"},
    {"punct", "P"},
    {"Separator", "Z"},
    {"Space_Separator", "Zs"},
    {"Spacing_Mark", "Mc"},
    {"Surrogate", "Cs"},
    {"Symbol", "S"},
    {"Titlecase_Letter", "Lt"},
    {"Unassigned", "Cn"},
    {"Uppercase_Letter", "Lu"},
};

// Writes an expression anew, character by character.
class Translation {
 public:
  explicit Translation(std::string_view expression) : in_(expression) {}

  std::string run() {
    while (at_ < in_.size()) step();
    if (depth_ > 0) refuse("a group is not closed");
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(std::string_view fact) const {
    throw UsageError(fmt::format("regular expression {}: {} at byte {}", quote(in_), fact, at_));
  }
  char peek(std::size_t ahead = 0) const { return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0'; }
  bool take(std::string_view text) {
    if (!in_.substr(at_).starts_with(text)) return false;
    at_ += text.size();
    return true;
  }
  static bool is_name_character(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$';
  }
  void put_code(std::uint32_t code) {
    if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) refuse("a code that is not a character");
    out_ += fmt::format("\\x{{{:x}}}", code);
  }
  void put_literal(char c) {
    if (static_cast<unsigned char>(c) < 0x80 && !is_name_character(c)) {
      out_ += fmt::format("\\x{{{:x}}}", static_cast<unsigned>(c));
    } else {
      out_ += c == '$' ? "\\$" : std::string(1, c);
    }
  }

  void step() {
    const char c = in_[at_];
    switch (c) {
      case '\\': return escape(false);
      case '[': return character_class();
      case '(': return open_group();
      case ')':
        if (depth_-- == 0) refuse("a group is closed that is not open");
        break;
      case '.':
        ++at_;
        out_ += R"([^\n\r\x{2028}\x{2029}])";
        return after_atom();
      case '*':
      case '+':
      case '?': refuse("a quantifier without anything to repeat");
      case '{':
        if (quantifier_length() > 0) refuse("a quantifier without anything to repeat");
        [[fallthrough]];
      case '}':
      case ']':
        ++at_;
        put_literal(c);
        return after_atom();
      case '^':
      case '$':
      case '|':
        ++at_;
        out_ += c;
        return;
      default: {
        if (c == '#' || static_cast<unsigned char>(c) <= ' ') {
          ++at_;
          put_literal(c);
          return after_atom();
        }
        const std::size_t length = std::max<std::size_t>(1, utf8_sequence_length(in_.substr(at_)));
        out_ += in_.substr(at_, length);
        at_ += length;
        return after_atom();
      }
    }
    ++at_;
    out_ += c;
    after_atom();
  }

  // Bytes of "{n}", "{n,}" or "{n,m}" here; 0 if it is not one.
  std::size_t quantifier_length() const {
    std::size_t i = at_ + 1;
    const auto digits = [&] {
      const std::size_t first = i;
      while (i < in_.size() && in_[i] >= '0' && in_[i] <= '9') ++i;
      return i > first;
    };
    if (!digits()) return 0;
    if (i < in_.size() && in_[i] == ',') {
      ++i;
      digits();
    }
    return i < in_.size() && in_[i] == '}' ? i + 1 - at_ : 0;
  }

  void after_atom() {
    const char c = peek();
    if (c == '*' || c == '+' || c == '?') {
      out_ += c;
      ++at_;
    } else if (const std::size_t length = c == '{' ? quantifier_length() : 0) {
      out_ += in_.substr(at_, length);
      at_ += length;
    } else {
      return;
    }
    if (take("?")) out_ += '?';
    if (peek() == '*' || peek() == '+' || peek() == '?' || (peek() == '{' && quantifier_length()))
      refuse("a quantifier without anything to repeat");
  }

  void open_group() {
    if (++depth_ > kMaxGroupDepth) refuse("groups are nested too deep");
    for (const std::string_view kind : {"(?:", "(?=", "(?!", "(?<=", "(?<!"})
      if (take(kind)) {
        out_ += kind;
        return;
      }
    if (take("(?<")) {
      const auto close = in_.find('>', at_);
      const std::string_view name = in_.substr(at_, close == std::string_view::npos ? 0 : close - at_);
      if (name.empty() || !std::all_of(name.begin(), name.end(), is_name_character))
        refuse("a group has no valid name");
      out_ += fmt::format("(?<{}>", name);
      at_ = close + 1;
      return;
    }
    if (peek(1) == '?' || peek(1) == '*') refuse("ECMA-262 has no such group");
    out_ += '(';
    ++at_;
  }

  std::optional<std::uint32_t> hex(std::size_t count) {
    if (at_ + count > in_.size()) return std::nullopt;
    std::uint32_t code = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const char c = in_[at_ + i];
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) return std::nullopt;
      code = code * 16 + static_cast<std::uint32_t>(digit);
    }
    at_ += count;
    return code;
  }

  // At a backslash.
  void escape(bool in_class) {
    const char c = peek(1);
    if (at_ + 1 >= in_.size()) refuse("a backslash at the end");
    at_ += 2;
    switch (c) {
      case 'd':
      case 'D':
      case 'w':
      case 'W': out_ += '\\', out_ += c; break;
      case 's': out_ += in_class ? std::string(kSpaceMembers) : fmt::format("[{}]", kSpaceMembers); break;
      case 'S': out_ += in_class ? std::string(kOtherMembers) : fmt::format("[^{}]", kSpaceMembers); break;
      case 'b':
      case 'B':
        if (in_class) {
          if (c == 'B') refuse("\\B inside a class");
          put_code(8);
          break;
        }
        out_ += '\\', out_ += c;
        return;  // what follows cannot repeat it
      case 't': put_code(9); break;
      case 'n': put_code(10); break;
      case 'v': put_code(11); break;
      case 'f': put_code(12); break;
      case 'r': put_code(13); break;
      case '0':
        if (peek() >= '0' && peek() <= '9') refuse("ECMA-262 has no octal escapes");
        put_code(0);
        break;
      case 'c': {
        const char letter = peek();
        if (!((letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z'))) refuse("\\c without a letter");
        ++at_;
        put_code(static_cast<std::uint32_t>(letter) % 32);
        break;
      }
      case 'x': {
        const auto code = hex(2);
        if (!code) refuse("\\x without two hexadecimal digits");
        put_code(*code);
        break;
      }
      case 'u': put_code(unicode_escape()); break;
      case 'p':
      case 'P': property(c); break;
      case 'k': {
        const auto close = in_.find('>', at_);
        if (in_class || peek() != '<' || close == std::string_view::npos) refuse("\\k without the name of a group");
        const std::string_view name = in_.substr(at_ + 1, close - at_ - 1);
        if (name.empty() || !std::all_of(name.begin(), name.end(), is_name_character))
          refuse("\\k without the name of a group");
        out_ += fmt::format("\\k<{}>", name);
        at_ = close + 1;
        break;
      }
      default:
        if (c >= '1' && c <= '9') {
          if (in_class) refuse("a group is named inside a class");
          std::string number(1, c);
          while (peek() >= '0' && peek() <= '9' && number.size() < 5) number += in_[at_++];
          out_ += fmt::format("\\g{{{}}}", number);
        } else if (is_name_character(c) && c != '$' && c != '_') {
          refuse(fmt::format("ECMA-262 has no escape \\{}", c));
        } else if (static_cast<unsigned char>(c) >= 0x80) {
          --at_;  // the character itself
          const std::size_t length = std::max<std::size_t>(1, utf8_sequence_length(in_.substr(at_)));
          out_ += in_.substr(at_, length);
          at_ += length;
        } else {
          put_literal(c);
        }
    }
    if (!in_class) after_atom();
  }

  std::uint32_t unicode_escape() {
    if (take("{")) {
      std::uint32_t code = 0;
      std::size_t digits = 0;
      while (peek() != '}') {
        const auto digit = hex(1);
        if (!digit || ++digits > 8 || code > 0x10ffff) refuse("\\u{...} without a code in hexadecimal");
        code = code * 16 + *digit;
      }
      if (digits == 0) refuse("\\u{...} without a code in hexadecimal");
      ++at_;
      return code;
    }
    const auto high = hex(4);
    if (!high) refuse("\\u without four hexadecimal digits");
    if (*high < 0xd800 || *high >= 0xdc00) return *high;
    const std::size_t before = at_;
    if (take("\\u"))
      if (const auto low = hex(4); low && *low >= 0xdc00 && *low < 0xe000)
        return 0x10000 + ((*high - 0xd800) << 10) + (*low - 0xdc00);
    at_ = before;
    refuse("half of a surrogate pair");
  }

  void property(char letter) {
    const auto close = in_.find('}', at_);
    if (peek() != '{' || close == std::string_view::npos) refuse("\\p without a property in braces");
    std::string_view text = in_.substr(at_ + 1, close - at_ - 1);
    std::string_view prefix;
    for (const auto& [names, pcre] : {std::pair<std::string_view, std::string_view>{"General_Category=", ""},
                                      {"gc=", ""},
                                      {"Script=", "sc:"},
                                      {"sc=", "sc:"},
                                      {"Script_Extensions=", "scx:"},
                                      {"scx=", "scx:"}})
      if (text.starts_with(names)) {
        text.remove_prefix(names.size());
        prefix = pcre;
        break;
      }
    if (text.empty() || text[0] == 'X' || !std::all_of(text.begin(), text.end(), is_name_character))
      refuse("\\p without the name of a property");
    if (text == "Assigned") {
      letter = letter == 'p' ? 'P' : 'p';
      text = "Cn";
    }
    for (const Category& category : kCategories)
      if (category.name == text) text = category.letters;
    out_ += fmt::format("\\{}{{{}{}}}", letter, prefix, text);
    at_ = close + 1;
  }

  void character_class() {
    out_ += '[';
    ++at_;
    if (take("^")) out_ += '^';
    while (peek() != ']' || at_ >= in_.size()) {
      if (at_ >= in_.size()) refuse("a class is not closed");
      const char c = in_[at_];
      if (c == '\\') {
        escape(true);
      } else if (c == '-') {
        out_ += '-';
        ++at_;
      } else if (static_cast<unsigned char>(c) < 0x80) {
        put_literal(c);
        ++at_;
      } else {
        const std::size_t length = std::max<std::size_t>(1, utf8_sequence_length(in_.substr(at_)));
        out_ += in_.substr(at_, length);
        at_ += length;
      }
    }
    out_ += ']';
    ++at_;
    after_atom();
  }

  std::string_view in_;
  std::size_t at_ = 0;
  std::uint32_t depth_ = 0;
  std::string out_;
};

// Memory of searches, one a thread.
struct SearchMemory {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  SearchMemory() {
    if (!data || !context) throw std::bad_alloc();
    pcre2_set_match_limit(context, kMaxSearchSteps);
    pcre2_set_depth_limit(context, kMaxSearchSteps);
    pcre2_set_heap_limit(context, kMaxSearchKilobytes);
  }
  ~SearchMemory() {
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
};

}  // namespace

struct Regex::Code {
  pcre2_code* code = nullptr;
  std::string expression;
  ~Code() { pcre2_code_free(code); }
};

std::string to_pcre(std::string_view expression) {
  if (expression.size() > kMaxExpressionBytes)
    throw UsageError(
        fmt::format("a regular expression of {} bytes; at most {} are taken", expression.size(), kMaxExpressionBytes));
  if (find_invalid_utf8(expression))
    throw UsageError(fmt::format("regular expression {} is not UTF-8", quote(expression)));
  return Translation(expression).run();
}

Regex::Regex(std::string_view expression) : code_(std::make_unique<Code>()) {
  const std::string translated = to_pcre(expression);
  int error = 0;
  PCRE2_SIZE place = 0;
  code_->expression = expression;
  code_->code = pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
      PCRE2_UTF | PCRE2_ALLOW_EMPTY_CLASS | PCRE2_MATCH_UNSET_BACKREF | PCRE2_DOLLAR_ENDONLY | PCRE2_NEVER_BACKSLASH_C,
      &error, &place, nullptr);
  if (code_->code) return;
  unsigned char message[256] = {};
  pcre2_get_error_message(error, message, sizeof(message));
  throw UsageError(fmt::format("regular expression {}: {}", quote(expression), reinterpret_cast<const char*>(message)));
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

bool Regex::is_found_in(std::string_view text) const {
  thread_local SearchMemory memory;
  const int result = pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0, 0, memory.data,
                                 memory.context);
  if (result >= 0) return true;
  if (result == PCRE2_ERROR_NOMATCH) return false;
  if (result <= PCRE2_ERROR_UTF8_ERR1 && result >= PCRE2_ERROR_UTF8_ERR21) return false;
  throw RegexLimitError(
      fmt::format("the search for {} in a text of {} bytes takes too long", quote(code_->expression), text.size()));
}

}  // namespace weft::schema
