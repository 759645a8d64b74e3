#include "grammar/gbnf.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>

#include "base/quote.hpp"
#include "base/utf8.hpp"
#include "weft/error.hpp"

namespace weft::grammar {
namespace {

constexpr std::size_t kTextBytesMax = std::size_t{1} << 20;
constexpr int kGroupDepthMax = 200, kRepeatsMax = 20;
constexpr std::size_t kRepeatMax = 100'000;

class GbnfParser {
 public:
  GbnfParser(NetworkBuilder& network, std::string_view text, std::string_view source)
      : network_(network), text_(text), source_(source) {}

  RuleId parse() {
    skip_space(true);
    while (!at_end()) {
      const std::size_t name_line = line_;
      const std::string name = take_name();
      Rule& rule = rule_named(name, name_line);
      if (rule.is_defined) fail(fmt::format("rule {} is defined a second time", quote(name)));
      rule.is_defined = true;
      const RuleId id = rule.id;
      skip_space(true);
      if (!take("::=")) fail(fmt::format("after {}, ::= is missing", quote(name)));
      skip_space(true);
      network_.define(id, *alternatives(false));
      skip_space(true);
    }
    for (const auto& [name, rule] : rules_)
      if (!rule.is_defined) {
        line_ = rule.first_line;
        fail(fmt::format("rule {} is not defined; write {} ::= ...", quote(name), name));
      }
    const auto root = rules_.find("root");
    if (root == rules_.end()) fail("there is no rule \"root\", which says what the whole text is");
    return root->second.id;
  }

 private:
  struct Rule {
    RuleId id;
    std::size_t first_line;
    bool is_defined = false;
  };

  [[noreturn]] void fail(std::string_view fact) const {
    throw UsageError(fmt::format("{}:{}: {}", source_, line_, fact));
  }
  bool at_end() const { return at_ >= text_.size(); }
  char peek() const { return at_end() ? '\0' : text_[at_]; }
  bool take(std::string_view token) {
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }
  // Spaces and comments; line breaks too where a rule goes on.
  void skip_space(bool over_lines) {
    for (; !at_end(); ++at_) {
      if (text_[at_] == '#') at_ = std::min(text_.find('\n', at_), text_.size());
      const char c = peek();
      if (c != ' ' && c != '\t' && !(over_lines && (c == '\n' || c == '\r'))) return;
      if (c == '\n') ++line_;
    }
  }
  static bool is_name_byte(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  }
  std::string take_name() {
    const std::size_t begin = at_;
    while (!at_end() && is_name_byte(text_[at_])) ++at_;
    if (at_ == begin)
      fail(
          fmt::format("expected the name of a rule, of letters, digits, - and _, at {}", quote(text_.substr(at_), 20)));
    return std::string(text_.substr(begin, at_ - begin));
  }
  Rule& rule_named(const std::string& name, std::size_t line) {
    const auto found = rules_.find(name);
    if (found != rules_.end()) return found->second;
    return rules_.emplace(name, Rule{network_.add_rule(), line}).first->second;
  }

  ExpressionPtr alternatives(bool in_group) {
    std::vector<ExpressionPtr> list = {series(in_group)};
    while (take("|")) {
      skip_space(true);
      list.push_back(series(in_group));
    }
    return choice(std::move(list));
  }

  ExpressionPtr series(bool in_group) {
    std::vector<ExpressionPtr> parts;
    for (;;) {
      // The next line may go on with |.
      const std::size_t before = at_, line_before = line_;
      skip_space(true);
      if (!in_group && line_ != line_before && peek() != '|') {
        at_ = before;
        line_ = line_before;
        skip_space(false);
        break;
      }
      const char c = peek();
      if (at_end() || c == '|' || c == ')') break;
      parts.push_back(repeated(atom()));
    }
    return sequence(std::move(parts));
  }

  ExpressionPtr atom() {
    const char c = peek();
    if (c == '"') return text_literal();
    if (c == '[') return character_class();
    if (c == '.') {
      ++at_;
      return characters(CodePoints::any());
    }
    if (c == '(') {
      ++at_;
      if (++depth_ > kGroupDepthMax) fail(fmt::format("more than {} groups inside each other", kGroupDepthMax));
      skip_space(true);
      ExpressionPtr group = alternatives(true);
      --depth_;
      if (!take(")")) fail("a group is not closed by )");
      return group;
    }
    if (is_name_byte(c)) {
      const std::size_t line = line_;
      return rule(rule_named(take_name(), line).id);
    }
    fail(fmt::format("{} begins neither a literal, nor a class, a group or a name", quote(text_.substr(at_), 20)));
  }

  ExpressionPtr repeated(ExpressionPtr part) {
    for (int count_of_repeats = 0;; ++count_of_repeats) {
      if (count_of_repeats > kRepeatsMax) fail(fmt::format("more than {} repetitions of one part", kRepeatsMax));
      if (take("*")) {
        part = repeat(std::move(part), 0);
      } else if (take("+")) {
        part = repeat(std::move(part), 1);
      } else if (take("?")) {
        part = optional(std::move(part));
      } else if (take("{")) {
        skip_space(false);
        const bool has_least = peek() >= '0' && peek() <= '9';
        const std::size_t least = has_least ? count() : 0;
        std::size_t most = least;
        skip_space(false);
        if (take(",")) {
          skip_space(false);
          most = peek() == '}' ? Expression::kUnbounded : count();
          skip_space(false);
        } else if (!has_least) {
          fail("a repetition is {n}, {n,}, {,n} or {n,m}");
        }
        if (!take("}")) fail("a repetition is {n}, {n,}, {,n} or {n,m}");
        if (most < least) fail(fmt::format("a repetition of at least {} and at most {} times", least, most));
        part = repeat(std::move(part), least, most);
      } else {
        return part;
      }
    }
  }

  std::size_t count() {
    std::size_t value = 0;
    const std::size_t begin = at_;
    for (; peek() >= '0' && peek() <= '9'; ++at_) {
      value = value * 10 + static_cast<std::size_t>(peek() - '0');
      if (value > kRepeatMax) fail(fmt::format("a repetition of more than {} times", kRepeatMax));
    }
    if (at_ == begin) fail("a repetition is {n}, {n,}, {,n} or {n,m}");
    return value;
  }

  ExpressionPtr text_literal() {
    ++at_;
    std::vector<ExpressionPtr> parts;
    while (!take("\"")) {
      if (at_end() || peek() == '\n') fail("a literal is not closed by \"");
      parts.push_back(character(one_character()));
    }
    return sequence(std::move(parts));
  }

  ExpressionPtr character_class() {
    ++at_;
    const bool is_negated = take("^");
    std::vector<CodePointRange> ranges;
    while (!take("]")) {
      if (at_end() || peek() == '\n') fail("a class is not closed by ]");
      const char32_t first = one_character();
      char32_t last = first;
      if (peek() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        last = one_character();
      }
      if (last < first) fail("a range in a class ends before it begins");
      ranges.push_back({first, last});
    }
    const CodePoints set(std::move(ranges));
    return characters(is_negated ? set.complement() : intersect(set, CodePoints::any()));
  }

  char32_t one_character() {
    if (peek() != '\\') {
      const std::size_t length = utf8_sequence_length(text_.substr(at_));
      const char32_t c = decode_utf8(text_.substr(at_, length))[0];
      at_ += length;
      return c;
    }
    ++at_;
    const char kind = peek();
    ++at_;
    switch (kind) {
      case 'n': return '\n';
      case 'r': return '\r';
      case 't': return '\t';
      case 'x': return hexadecimal(2);
      case 'u': return hexadecimal(4);
      case 'U': return hexadecimal(8);
      case '\\':
      case '"':
      case '[':
      case ']':
      case '-':
      case '^': return static_cast<char32_t>(kind);
      default: break;
    }
    --at_;
    fail(fmt::format("\\{} is not an escape; there are \\n \\r \\t \\\\ \\\" \\[ \\] \\- \\^ \\xHH \\uHHHH \\UHHHHHHHH",
                     quote(text_.substr(at_, 1))));
  }

  char32_t hexadecimal(std::size_t length) {
    char32_t value = 0;
    for (std::size_t i = 0; i < length; ++i, ++at_) {
      const char c = peek();
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) fail(fmt::format("an escape needs {} hexadecimal digits", length));
      value = value * 16 + static_cast<char32_t>(digit);
    }
    if (value > kLastCodePoint || (value >= kFirstSurrogate && value <= kLastSurrogate))
      fail("an escape that is not a character");
    return value;
  }

  NetworkBuilder& network_;
  std::string_view text_, source_;
  std::size_t at_ = 0, line_ = 1;
  int depth_ = 0;
  std::map<std::string, Rule> rules_;
};

}  // namespace

RuleId add_gbnf(NetworkBuilder& network, std::string_view text, std::string_view source) {
  if (text.size() > kTextBytesMax)
    throw UsageError(fmt::format("{}: a grammar of {} bytes; at most {} are read", source, text.size(), kTextBytesMax));
  if (const auto at = find_invalid_utf8(text)) throw UsageError(fmt::format("{}: byte {} is not UTF-8", source, *at));
  return GbnfParser(network, text, source).parse();
}

}  // namespace weft::grammar
