// Scanners against PCRE2 on generated texts, and what regular expressions may and may not do.
#include "base/message_of.hpp"
#include "text/scanners.hpp"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "base/temporary_folder.hpp"
#include "text/unicode.hpp"
#include "weft/error.hpp"

namespace weft::text {
namespace {

using test::message_of;
using Matches = std::vector<std::pair<std::size_t, std::size_t>>;

Matches matches_of(const Pattern& pattern, std::string_view text) {
  Matches found;
  pattern.for_each(text, [&](std::size_t begin, std::size_t end) { found.emplace_back(begin, end); });
  return found;
}

// Texts dense in what the expressions tell apart.
std::string random_text(std::mt19937& draw) {
  static const std::vector<std::string> kParts = {
      "a",      "b",  "Z",  "Q",      "é",      "É",      "ſ",      "ǅ",      "ʰ",      "ª",      "中",     "文",
      "\u3040", "ひ", "カ", "\u0301", "\u0903", "\u20dd", "0",      "7",      "42",     "Ⅷ",      "²",      "٣",
      " ",      "  ", "\t", "\n",     "\r",     "\r\n",   "\u00a0", "\u3000", "\u0085", "\u2028", "\u180e", "\u200b",
      "'",      "'s", "'S", "'ll",    "'LL",    "'re",    "'Ve",    "'d",     "'ſ",     "'x",     ".",      "!",
      "/",      "-",  "_",  "“",      "€",      "+",      "😀",      "\u200d", "\ufe0f", "\x01",   "\x7f"};
  std::string text;
  const std::size_t count = draw() % 24;
  for (std::size_t i = 0; i < count; ++i) {
    const std::string& part = kParts[draw() % kParts.size()];
    for (std::size_t n = draw() % 8 == 0 ? draw() % 6 : 1; n > 0; --n) text += part;
  }
  return text;
}

TEST(Scanners, FindWhatPcreFinds) {
  for (const std::string_view expression : scanned_expressions()) {
    const auto scanner = make_scanner(expression);
    const auto pcre = make_pcre(expression);
    ASSERT_TRUE(scanner);
    std::mt19937 draw(7);
    for (int i = 0; i < 20000; ++i) {
      const std::string text = random_text(draw);
      ASSERT_EQ(matches_of(*scanner, text), matches_of(*pcre, text)) << expression << "\non " << text;
    }
  }
}

TEST(Scanners, KnowTheirExpressionsOnly) { EXPECT_FALSE(make_scanner("a+")); }

struct RegexCase {
  const char *expression, *text;
  Matches found;
};
const RegexCase kRegexCases[] = {
    {R"(\s+)", "a\u180e\u0085 b", {{4, 7}}},                 // U+180E is not a space
    {R"(\w+)", "a\u0301_1-\u00b9\u2082", {{0, 5}, {6, 8}}},  // marks, digits and the numbers of Latin-1 are of words
    {R"([^\w\s]+)", "a+ -b", {{1, 2}, {3, 4}}},
    {R"(\h+)", "xBEEFg", {{1, 5}}},   // a hexadecimal digit
    {R"(^b$)", "a\nb\nc", {{2, 3}}},  // lines
    {R"(\u00e9)", "é", {{0, 2}}},
    {R"(x*)", "axxb", {{0, 0}, {1, 3}, {4, 4}}},  // no empty match where one ended
    {R"((?<=a)b)", "abb", {{1, 2}}},
    {R"([[:alpha:]]+)", "ab1", {{0, 2}}},
    {R"([]a]+)", "]a", {{0, 2}}},
};

TEST(Regex, ReadsTheSyntaxOfTokenizerFiles) {
  for (const RegexCase& c : kRegexCases)
    EXPECT_EQ(matches_of(*make_regex(c.expression), c.text), c.found) << c.expression;
}

TEST(Regex, Refuses) {
  const auto said = [](std::string_view expression) { return message_of<UsageError>([&] { make_regex(expression); }); };
  EXPECT_EQ(said("(a"), "regular expression \"(a\": missing closing parenthesis");
  EXPECT_NE(said("[a[bc]]").find("a class inside a class"), std::string::npos);
  EXPECT_NE(said("[a&&b]").find("an intersection of classes"), std::string::npos);
  EXPECT_NE(said(R"(\u12)").find("four hexadecimal digits"), std::string::npos);
  EXPECT_NE(said(std::string(70000, 'a')).find("at most 65536"), std::string::npos);
}

TEST(Regex, StopsWhatWouldNotEnd) {
  const auto pattern = make_regex("(a+a+)+[bd]");
  const std::string text = std::string(4000, 'a') + "c";
  EXPECT_NE(message_of<UsageError>([&] { matches_of(*pattern, text); }).find("cannot be searched for"),
            std::string::npos);
}

TEST(Literal, FindsWithoutOverlap) {
  EXPECT_EQ(matches_of(*make_literal("aa"), "aaaab"), (Matches{{0, 2}, {2, 4}}));
  EXPECT_EQ(matches_of(*make_literal(""), "a\u00e9"), matches_of(*make_pcre(""), "a\u00e9"));
}

}  // namespace
}  // namespace weft::text
