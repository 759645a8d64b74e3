#include "grammar/pattern.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/quote.hpp"
#include "base/utf8.hpp"
#include "text/unicode.hpp"
#include "weft/error.hpp"

namespace weft::grammar {
namespace {

constexpr std::size_t kPatternBytesMax = 10'000, kPatternRepeatMax = 10'000;
constexpr int kPatternDepthMax = 100;

// ^ and $ are read as characters of their own, which begin and end every text.
constexpr char32_t kBeginMark = 0x110000, kEndMark = 0x110001;

const CodePoints kDigits = {{'0', '9'}};
const CodePoints kWordCharacters = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const CodePoints kSpaces = {{0x09, 0x0D},     {0x20, 0x20},     {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
                            {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
const CodePoints kLineEnds = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

struct Property {
  std::string_view name, long_name;
  std::uint32_t bits;
};
constexpr Property kProperties[] = {{"L", "Letter", text::kLetter},
                                    {"N", "Number", text::kNumber},
                                    {"P", "Punctuation", text::kPunctuation},
                                    {"S", "Symbol", text::kSymbol},
                                    {"M", "Mark", text::kMark}};

CodePoints of_class(std::uint32_t bits) {
  const text::CharacterTable& table = text::CharacterTable::get();
  std::vector<CodePointRange> ranges;
  for (char32_t c = 0; c <= kLastCodePoint; ++c) {
    if ((table[c] & bits) == 0) continue;
    if (!ranges.empty() && ranges.back().last + 1 == c)
      ranges.back().last = c;
    else
      ranges.push_back({c, c});
  }
  return intersect(CodePoints(std::move(ranges)), CodePoints::any());
}

class PatternParser {
 public:
  explicit PatternParser(std::string_view pattern) : in_(pattern) {
    if (in_.size() > kPatternBytesMax)
      throw UsageError(fmt::format("pattern: {} bytes; at most {} are read", in_.size(), kPatternBytesMax));
    if (find_invalid_utf8(in_)) throw UsageError("pattern: it is not UTF-8");
  }

  ExpressionPtr parse() {
    ExpressionPtr whole = disjunction();
    if (at_ < in_.size()) fail("a group is closed that is not open");
    return whole;
  }

 private:
  [[noreturn]] void fail(std::string_view fact) const {
    throw UsageError(fmt::format("pattern {}: {} at byte {}", quote(in_), fact, at_));
  }
  char peek() const { return at_ < in_.size() ? in_[at_] : '\0'; }
  bool take(std::string_view text) {
    if (!in_.substr(at_).starts_with(text)) return false;
    at_ += text.size();
    return true;
  }

  ExpressionPtr disjunction() {
    std::vector<ExpressionPtr> list = {alternative()};
    while (take("|")) list.push_back(alternative());
    return choice(std::move(list));
  }

  ExpressionPtr alternative() {
    std::vector<ExpressionPtr> parts;
    char before = '\0';  // ^^ is ^
    while (at_ < in_.size() && peek() != '|' && peek() != ')') {
      const char c = peek();
      if (c == '^' || c == '$') {
        ++at_;
        if (c != before) parts.push_back(character(c == '^' ? kBeginMark : kEndMark));
        before = c;
        continue;
      }
      before = '\0';
      parts.push_back(quantified(atom()));
    }
    return sequence(std::move(parts));
  }

  ExpressionPtr quantified(ExpressionPtr part) {
    std::size_t least = 0, most = 0;
    if (take("*")) {
      most = Expression::kUnbounded;
    } else if (take("+")) {
      least = 1;
      most = Expression::kUnbounded;
    } else if (take("?")) {
      most = 1;
    } else if (peek() == '{') {
      ++at_;
      least = most = number();
      if (take(",")) most = peek() == '}' ? Expression::kUnbounded : number();
      if (!take("}")) fail("a quantifier is {n}, {n,} or {n,m}");
      if (most < least) fail("a quantifier whose numbers are out of order");
    } else {
      return part;
    }
    take("?");  // which match is preferred does not matter
    return repeat(std::move(part), least, most);
  }

  std::size_t number() {
    const std::size_t begin = at_;
    std::size_t value = 0;
    for (; peek() >= '0' && peek() <= '9'; ++at_) {
      value = value * 10 + static_cast<std::size_t>(peek() - '0');
      if (value > kPatternRepeatMax) fail(fmt::format("more than {} repetitions", kPatternRepeatMax));
    }
    if (at_ == begin) fail("a quantifier is {n}, {n,} or {n,m}");
    return value;
  }

  ExpressionPtr atom() {
    switch (peek()) {
      case '(': return group();
      case '[': return characters(bracketed());
      case '.': ++at_; return characters(kLineEnds.complement());
      case '\\': return characters(escape(false));
      case '*':
      case '+':
      case '?':
      case '{': fail("a quantifier without anything to repeat");
      default: return character(plain());
    }
  }

  ExpressionPtr group() {
    ++at_;
    if (take("?")) {
      if (peek() == '=' || peek() == '!' || in_.substr(at_).starts_with("<=") || in_.substr(at_).starts_with("<!"))
        fail("look-around, which is not supported,");
      if (take("<")) {
        at_ = std::min(in_.find('>', at_), in_.size());
        if (!take(">")) fail("a group without a valid name");
      } else if (!take(":")) {
        fail("an unknown kind of group");
      }
    }
    if (++depth_ > kPatternDepthMax) fail("groups are nested too deep");
    ExpressionPtr inside = disjunction();
    --depth_;
    if (!take(")")) fail("a group is not closed");
    return inside;
  }

  CodePoints bracketed() {
    ++at_;
    const bool is_negated = take("^");
    CodePoints set;
    while (!take("]")) {
      if (at_ >= in_.size()) fail("a class is not closed");
      const CodePoints first = peek() == '\\' ? escape(true) : CodePoints::one(plain());
      const bool is_one = first.ranges().size() == 1 && first.ranges()[0].first == first.ranges()[0].last;
      if (is_one && peek() == '-' && at_ + 1 < in_.size() && in_[at_ + 1] != ']') {
        ++at_;
        const CodePoints last = peek() == '\\' ? escape(true) : CodePoints::one(plain());
        if (last.ranges().size() != 1 || last.ranges()[0].first != last.ranges()[0].last ||
            last.ranges()[0].first < first.ranges()[0].first)
          fail("a range whose ends are out of order");
        set = unite(set, CodePoints{{first.ranges()[0].first, last.ranges()[0].first}});
      } else {
        set = unite(set, first);
      }
    }
    return is_negated ? set.complement() : intersect(set, CodePoints::any());
  }

  char32_t plain() {
    const std::size_t length = utf8_sequence_length(in_.substr(at_));
    const char32_t c = decode_utf8(in_.substr(at_, length))[0];
    at_ += length;
    return c;
  }

  CodePoints escape(bool in_class) {
    ++at_;
    const char c = peek();
    if (at_ >= in_.size()) fail("a \\ at the end");
    ++at_;
    switch (c) {
      case 'd': return kDigits;
      case 'D': return kDigits.complement();
      case 'w': return kWordCharacters;
      case 'W': return kWordCharacters.complement();
      case 's': return kSpaces;
      case 'S': return kSpaces.complement();
      case 'n': return CodePoints::one('\n');
      case 'r': return CodePoints::one('\r');
      case 't': return CodePoints::one('\t');
      case 'v': return CodePoints::one('\v');
      case 'f': return CodePoints::one('\f');
      case 'x': return CodePoints::one(code(2));
      case 'u': return CodePoints::one(unicode());
      case 'p':
      case 'P': return property(c == 'P');
      case 'b':
        if (in_class) return CodePoints::one('\b');
        [[fallthrough]];
      case 'B': fail("a word boundary, which is not supported,");
      case 'k': fail("a back reference, which is not supported,");
      case 'c':
        if (const char letter = peek(); (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z')) {
          ++at_;
          return CodePoints::one(static_cast<char32_t>(letter & 31));
        }
        fail("\\c without a letter");
      case '0':
        if (peek() < '0' || peek() > '9') return CodePoints::one(0);
        [[fallthrough]];
      default: break;
    }
    if (c >= '0' && c <= '9') fail("a back reference, which is not supported,");
    if (std::string_view("^$\\.*+?()[]{}|/-").find(c) != std::string_view::npos)
      return CodePoints::one(static_cast<char32_t>(c));
    --at_;
    fail("an escape that ECMA-262 does not have");
  }

  char32_t code(std::size_t length) {
    char32_t value = 0;
    for (std::size_t i = 0; i < length; ++i, ++at_) {
      const std::size_t digit = std::string_view("0123456789abcdef0123456789ABCDEF").find(peek());
      if (at_ >= in_.size() || digit == std::string_view::npos) fail("an escape without its hexadecimal digits");
      value = value * 16 + static_cast<char32_t>(digit % 16);
    }
    return value;
  }

  char32_t unicode() {
    if (take("{")) {
      const std::size_t close = in_.find('}', at_);
      if (close == std::string_view::npos || close == at_ || close - at_ > 8)
        fail("\\u{...} without hexadecimal digits");
      const char32_t value = code(close - at_);
      ++at_;
      if (value > kLastCodePoint) fail("a code that is not a character");
      return value;
    }
    const char32_t high = code(4);
    if (high < 0xD800 || high > 0xDBFF) return high;
    if (!take("\\u")) fail("half of a pair of surrogates");
    const char32_t low = code(4);
    if (low < 0xDC00 || low > 0xDFFF) fail("half of a pair of surrogates");
    return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
  }

  CodePoints property(bool is_negated) {
    const std::size_t close = in_.find('}', at_);
    if (!take("{") || close == std::string_view::npos) fail("\\p without {...}");
    std::string_view name = in_.substr(at_, close - at_);
    if (const std::size_t equals = name.find('='); equals != std::string_view::npos) {
      const std::string_view key = name.substr(0, equals);
      if (key != "General_Category" && key != "gc") fail("a property that is not supported");
      name = name.substr(equals + 1);
    }
    for (const Property& each : kProperties)
      if (name == each.name || name == each.long_name) {
        at_ = close + 1;
        const CodePoints set = of_class(each.bits);
        return is_negated ? set.complement() : set;
      }
    fail("a property that is not supported; there are L, N, P, S and M");
  }

  std::string_view in_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

ExpressionPtr parse_pattern(std::string_view pattern) { return PatternParser(pattern).parse(); }

Regular regular_of_pattern(std::string_view pattern) {
  const ExpressionPtr any = repeat(characters(CodePoints::any()), 0), begin = character(kBeginMark),
                      end = character(kEndMark);
  // The expression anywhere between the two marks; it may have read them itself.
  const Regular found(
      *sequence({optional(sequence({begin, any})), parse_pattern(pattern), optional(sequence({any, end}))}));
  Regular marked = intersect(found, Regular(*sequence({begin, any, end})));
  for (Regular::State& state : marked.states) {
    for (const Regular::Edge& edge : state.edges)
      if (edge.on.ranges()[0].first >= kBeginMark) state.skips.push_back(edge.target);
    std::erase_if(state.edges, [](const Regular::Edge& edge) { return edge.on.ranges()[0].first >= kBeginMark; });
  }
  return marked;
}

}  // namespace weft::grammar
