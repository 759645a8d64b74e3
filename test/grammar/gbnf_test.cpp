// Grammars in GBNF: what they accept, byte by byte, and what they refuse to be.
#include <gtest/gtest.h>

#include "base/message_of.hpp"
#include "weft/error.hpp"
#include "weft/grammar.hpp"

namespace weft::llm {
namespace {

struct GbnfCase {
  const char* name;
  const char* grammar;
  std::vector<std::string> fit, unfit;
};

const GbnfCase kGbnfCases[] = {
    {"literals and alternatives", "root ::= \"yes\" | \"no\" # comment\n", {"yes", "no"}, {"", "ye", "yesno", "maybe"}},
    {"an empty alternative", "root ::= \"a\" | \n", {"a", ""}, {"b"}},
    {"rules over lines",
     "root ::=\n  first |\n  \"z\"\n  | last\nfirst ::= \"a\"\nlast ::= \"b\" \"c\"",
     {"a", "z", "bc"},
     {"b", "ab"}},
    {"groups over lines", "root ::= (\n \"a\"\n  \"b\" )+", {"ab", "abab"}, {"", "aba"}},
    {"classes", "root ::= [a-cx] [^0-9\\n] [\\]\\-]", {"ax]", "x\xC3\xA9-"}, {"dx]", "a1]", "a\n]", "aa["}},
    {"any character", "root ::= . .", {"ab", "\xC3\xA9\xF0\x9F\x98\x80"}, {"a", "abc", "\xFF\xFF", "a\xC3"}},
    {"escapes", R"(root ::= "\x41\u00e9\U0001F600\t\\\"" )", {"A\xC3\xA9\xF0\x9F\x98\x80\t\\\""}, {"A"}},
    {"repetitions",
     "root ::= \"a\"{2} \"b\"{1,} \"c\"{,2} \"d\"{1,3} \"e\"?",
     {"aabd", "aabbbccddde"},
     {"abd", "aad", "aabcccd", "aabdddd"}},
    {"a long repetition of a group", "root ::= (\"a\" [0-9]+ \"-\"){100}", {}, {"a1-"}},
    {"left recursion", "root ::= root \"+\" [0-9] | [0-9]", {"1", "1+2", "1+2+3"}, {"+", "1+", "12"}},
    {"right recursion", "root ::= [a-z] root | \".\"", {".", "abc."}, {"abc", "..", ""}},
    {"nesting", "root ::= \"(\" root \")\" | \"x\"", {"x", "((x))"}, {"(x", "((x)", "x)"}},
    {"rules that fit nothing are left out",
     "root ::= \"a\" | endless\nendless ::= \"b\" endless",
     {"a"},
     {"b", "ba", "bb"}},
    {"empty rules inside", "root ::= e e \"a\" e\ne ::= \"\" | \"-\"", {"a", "-a", "--a-"}, {"---a", "-"}},
    {"ambiguity", "root ::= e\ne ::= e e | \"a\" | \"\"", {"", "a", "aaaaaaaaaaaaaaaaaaaaaaaa"}, {"b", "aab"}},
};

TEST(Gbnf, AcceptsWhatTheRulesSay) {
  for (const GbnfCase& c : kGbnfCases) {
    SCOPED_TRACE(c.name);
    const Grammar grammar = Grammar::parse(c.grammar);
    for (const std::string& text : c.fit) {
      EXPECT_TRUE(grammar.accepts(text)) << text;
      for (std::size_t i = 0; i <= text.size(); ++i) EXPECT_TRUE(grammar.accepts_beginning(text.substr(0, i))) << text;
    }
    for (const std::string& text : c.unfit) EXPECT_FALSE(grammar.accepts(text)) << text;
  }
}

TEST(Gbnf, LongTextsOfRecursiveRulesTakeLinearTime) {
  const std::string text(20000, 'a');
  EXPECT_TRUE(Grammar::parse("root ::= [a-z] root | \"\"").accepts(text));
  EXPECT_TRUE(Grammar::parse("root ::= root [a-z] | \"\"").accepts(text));
  EXPECT_TRUE(Grammar::parse("root ::= (\"a\" | \"aa\" | [a-z]*)*").accepts(text));
}

TEST(Gbnf, LargeRepetitionsAreMadeAtOnce) {
  const Grammar grammar = Grammar::parse("root ::= [^\"]{0,50000}");
  EXPECT_TRUE(grammar.accepts(std::string(3000, 'x')));
  EXPECT_TRUE(Grammar::parse("root ::= item{0,100000}\nitem ::= [0-9]+ \",\"").accepts("12,3,"));
}

TEST(Gbnf, RefusesWhatItCannotRead) {
  struct Bad {
    const char* text;
    const char* message;
  };
  const Bad cases[] = {
      {"", "there is no rule \"root\""},
      {"start ::= \"a\"", "there is no rule \"root\""},
      {"root ::= other", "grammar:1: rule \"other\" is not defined"},
      {"root ::= \"a\"\nroot ::= \"b\"", "grammar:2: rule \"root\" is defined a second time"},
      {"root = \"a\"", "::= is missing"},
      {"root ::= \"a", "a literal is not closed"},
      {"root ::= [a", "a class is not closed"},
      {"root ::= (\"a\"", "a group is not closed"},
      {"root ::= \"a\")", "expected the name of a rule"},
      {"root ::= \"a\"{3,2}", "at least 3 and at most 2"},
      {"root ::= \"a\"{x}", "a repetition is"},
      {"root ::= \"a\"{999999}", "more than 100000 times"},
      {"root ::= [z-a]", "ends before it begins"},
      {"root ::= \"\\q\"", "is not an escape"},
      {"root ::= \"\\ud800\"", "not a character"},
      {"root ::= *", "begins neither"},
      {"root ::= \"a\" root", "no text fits it"},
      {"root ::= []", "no text fits it"},
      {"root ::= \"\xFF\"", "is not UTF-8"},
  };
  for (const Bad& bad : cases) {
    const std::string message = test::message_of<UsageError>([&] { Grammar::parse(bad.text); });
    EXPECT_NE(message.find(bad.message), std::string::npos) << bad.text << "\n" << message;
  }
  std::string large = "root ::=";
  for (int i = 0; i < 12; ++i) large += " [0-9]{90000}";
  const std::string message = test::message_of<UsageError>([&] { Grammar::parse(large); });
  EXPECT_NE(message.find("more than 1000000 states"), std::string::npos) << message;
  std::string deep = "root ::= ";
  for (int i = 0; i < 100000; ++i) deep += "(";
  EXPECT_THROW(Grammar::parse(deep), UsageError);
}

}  // namespace
}  // namespace weft::llm
