#include "text/pattern.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/quote.hpp"
#include "text/call_limits.hpp"
#include "text/scanners.hpp"
#include "text/unicode.hpp"
#include "weft/error.hpp"

namespace weft::text {
namespace {

using std::size_t;

class Literal final : public Pattern {
 public:
  explicit Literal(std::string text) : text_(std::move(text)) {}
  void for_each(std::string_view text, OnMatch on_match) const override {
    if (text_.empty()) {  // before each character, and at the end
      for (size_t at = 0; at < text.size(); at += character_at(text.data() + at).length) on_match(at, at);
      return on_match(text.size(), text.size());
    }
    for (size_t at = 0; (at = text.find(text_, at)) != std::string_view::npos; at += text_.size())
      on_match(at, at + text_.size());
  }

 private:
  std::string text_;
};

constexpr size_t kMaxExpressionBytes = 64 << 10;
constexpr std::uint32_t kMaxSteps = 20'000'000;  // of one match: a word of a million characters needs about as many
constexpr std::uint32_t kMaxHeapKilobytes = 256 << 10;
constexpr size_t kMaxJitStackBytes = 64 << 20;
constexpr std::uint64_t kMatchWork = 1 << 14;  // the clock is looked at every few matches, as one can take long

// What the classes of Oniguruma hold, written for the inside of a class of PCRE2, whose own differ (\s has U+180E, \w no marks).
constexpr std::string_view kSpaces =
    R"(\x09-\x0d\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kOtherThanSpaces =
    R"(\x00-\x08\x0e-\x1f\x21-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027}\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";
constexpr std::string_view kWordCharacters = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
constexpr std::string_view kLatinNumbers = R"(\xb2\xb3\xb9\xbc-\xbe)";  // \w alone holds them, and no class does
constexpr std::string_view kHexDigits = "0-9A-Fa-f";
constexpr std::string_view kOtherThanHexDigits = R"(\x00-\x2f\x3a-\x40\x47-\x60\x67-\x{10ffff})";
constexpr std::pair<std::string_view, std::string_view> kPosixClasses[] = {
    {"alpha", R"(\p{Alphabetic})"}, {"alnum", R"(\p{Alphabetic}\p{Nd})"},
    {"upper", R"(\p{Uppercase})"},  {"lower", R"(\p{Lowercase})"},
    {"punct", R"(\p{P}\p{S})"},     {"space", kSpaces},
    {"digit", R"(\p{Nd})"},         {"xdigit", kHexDigits},
    {"word", kWordCharacters}};

[[noreturn]] void refuse(std::string_view expression, std::string_view fact) {
  throw UsageError(fmt::format("regular expression {}: {}", quote(expression), fact));
}

// All characters that are not word characters, as ranges: a class cannot hold the negation of several properties.
const std::string& other_than_word_characters() {
  static const std::string ranges = [] {
    const CharacterTable& table = CharacterTable::get();
    const auto is_word = [&](char32_t c) { return (table[c] & kWord) != 0 && c != 0x200C && c != 0x200D; };
    std::string out;
    for (char32_t c = 0; c < 0x110000; ++c) {
      if (is_word(c)) continue;
      const char32_t begin = c;
      while (c + 1 < 0x110000 && !is_word(c + 1)) ++c;
      // UTF-8 has no surrogates.
      if (begin < 0xD800 && c > 0xDFFF)
        out += fmt::format("\\x{{{:x}}}-\\x{{d7ff}}\\x{{e000}}-\\x{{{:x}}}", static_cast<unsigned>(begin),
                           static_cast<unsigned>(c));
      else
        out += fmt::format("\\x{{{:x}}}-\\x{{{:x}}}", static_cast<unsigned>(begin), static_cast<unsigned>(c));
    }
    return out;
  }();
  return ranges;
}

// Whether it is the name of a script. PCRE2 takes such a name for Script_Extensions, which hold punctuation that scripts
// share; in files it means Script.
bool is_script(std::string_view name) {
  const bool plain = !name.empty() && name.size() <= 40 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_' || c == ' ' || c == '-';
  });
  if (!plain) return false;
  const std::string expression = fmt::format("\\p{{sc:{}}}", name);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* const code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(), PCRE2_UTF,
                                         &error, &offset, nullptr);
  pcre2_code_free(code);
  return code != nullptr;
}

// The expression in PCRE2's syntax.
std::string translate(std::string_view expression) {
  std::string out;
  bool in_class = false;
  size_t class_start = 0;
  for (size_t i = 0; i < expression.size(); ++i) {
    const char c = expression[i];
    if (c == '\\' && i + 1 < expression.size()) {
      const char escaped = expression[++i];
      const auto put = [&](std::string_view members) {
        out += in_class ? "" : "[", out += members, out += in_class ? "" : "]";
      };
      switch (escaped) {
        case 's': put(kSpaces); break;
        case 'S': put(kOtherThanSpaces); break;
        case 'w':
          if (in_class)
            out += kWordCharacters;
          else
            out += fmt::format("[{}{}]", kWordCharacters, kLatinNumbers);
          break;
        case 'W':
          if (in_class)
            out += other_than_word_characters();
          else
            out += fmt::format("[^{}{}]", kWordCharacters, kLatinNumbers);
          break;
        case 'h': put(kHexDigits); break;
        case 'H': put(kOtherThanHexDigits); break;
        case 'p':
        case 'P': {
          out += c, out += escaped;
          if (i + 1 >= expression.size() || expression[i + 1] != '{') break;
          const size_t caret = i + 2 < expression.size() && expression[i + 2] == '^' ? 1 : 0;
          const size_t begin = i + 2 + caret, close = expression.find('}', begin);
          if (close == std::string_view::npos || !is_script(expression.substr(begin, close - begin))) break;
          out += fmt::format("{{{}sc:{}}}", caret ? "^" : "", expression.substr(begin, close - begin));
          i = close;
          break;
        }
        case 'd': out += R"(\p{Nd})"; break;
        case 'D': out += R"(\P{Nd})"; break;
        case 'u':
          if (i + 4 >= expression.size()) refuse(expression, R"(\u needs four hexadecimal digits)");
          out += fmt::format("\\x{{{}}}", expression.substr(i + 1, 4));
          i += 4;
          break;
        default: out += c, out += escaped;
      }
      continue;
    }
    if (!in_class && c == '[') {
      in_class = true;
      class_start = i + (i + 1 < expression.size() && expression[i + 1] == '^' ? 2 : 1);
    } else if (in_class && c == '[') {
      if (i + 1 < expression.size() && expression[i + 1] == ':') {
        const size_t close = expression.find(":]", i + 2);
        if (close == std::string_view::npos) refuse(expression, "[: without :]");
        const std::string_view name = expression.substr(i + 2, close - i - 2);
        const auto* known = std::find_if(std::begin(kPosixClasses), std::end(kPosixClasses),
                                         [&](const auto& each) { return each.first == name; });
        out += known != std::end(kPosixClasses) ? known->second : expression.substr(i, close + 2 - i);
        i = close + 1;
        continue;
      }
      refuse(expression,
             "holds a class inside a class, which Weft does not support; write its members into the outer one");
    } else if (in_class && c == '&' && i + 1 < expression.size() && expression[i + 1] == '&') {
      refuse(expression,
             "holds an intersection of classes (&&), which Weft does not support; use a look-ahead instead");
    } else if (in_class && c == ']' && i > class_start) {
      in_class = false;
    }
    out += c;
  }
  return out;
}

// Memory of searches. One a thread: patterns are shared.
struct Scratch {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(64 << 10, kMaxJitStackBytes, nullptr);
  Scratch() {
    if (!data || !context || !stack) throw std::bad_alloc();
    pcre2_set_match_limit(context, kMaxSteps);
    pcre2_set_depth_limit(context, kMaxSteps);
    pcre2_set_heap_limit(context, kMaxHeapKilobytes);
    pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~Scratch() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
};

class Pcre final : public Pattern {
 public:
  explicit Pcre(std::string_view expression) : expression_(expression) {
    if (expression.size() > kMaxExpressionBytes)
      refuse(expression, fmt::format("has {} bytes; at most {} are allowed", expression.size(), kMaxExpressionBytes));
    const std::string translated = translate(expression);
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                              PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &offset,
                              nullptr));
    if (!code_) refuse(expression, message_of(error));
    pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);  // where there is no JIT, matching interprets
  }

  void for_each(std::string_view text, OnMatch on_match) const override {
    thread_local Scratch scratch;
    const CallLimits limits(text.size());
    const auto* const subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    std::optional<size_t> last_end;
    for (size_t at = 0; at <= text.size();) {
      CallLimits::work(kMatchWork);
      const int found =
          pcre2_match(code_.get(), subject, text.size(), at, PCRE2_NO_UTF_CHECK, scratch.data, scratch.context);
      if (found == PCRE2_ERROR_NOMATCH) return;
      if (found < 0) refuse(expression_, fmt::format("cannot be searched for in this text: {}", message_of(found)));
      const PCRE2_SIZE* range = pcre2_get_ovector_pointer(scratch.data);
      const size_t begin = range[0], end = range[1];
      if (end < begin) refuse(expression_, R"(moves the start of the match behind its end with \K)");
      // An empty match at the end of the previous match does not count.
      if (begin < end || begin != last_end) {
        if (last_end && begin < *last_end) refuse(expression_, R"(matches what it has matched before, by \K)");
        on_match(begin, end);
      }
      last_end = end;
      at = begin < end ? end : end + (end < text.size() ? character_at(text.data() + end).length : 1);
    }
  }

 private:
  struct Free {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  };
  static std::string message_of(int error) {
    PCRE2_UCHAR buffer[256] = {};
    pcre2_get_error_message(error, buffer, sizeof(buffer));
    return reinterpret_cast<const char*>(buffer);
  }

  std::string expression_;
  std::unique_ptr<pcre2_code, Free> code_;
};

}  // namespace

std::unique_ptr<Pattern> make_literal(std::string text) { return std::make_unique<Literal>(std::move(text)); }

std::unique_ptr<Pattern> make_regex(std::string_view expression) {
  if (auto scanner = make_scanner(expression)) return scanner;
  return make_pcre(expression);
}

std::unique_ptr<Pattern> make_pcre(std::string_view expression) { return std::make_unique<Pcre>(expression); }

}  // namespace weft::text
