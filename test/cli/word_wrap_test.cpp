// Words that stream in pieces, broken at the width of a terminal.
#include "cli/word_wrap.hpp"

#include <gtest/gtest.h>

#include <string>

namespace weft::cli {
namespace {

std::string wrapped(int columns, const std::vector<std::string>& pieces) {
  WordWrap wrap([columns] { return columns; });
  std::string out;
  for (const std::string& piece : pieces) out += wrap.put(piece);
  return out;
}

TEST(WordWrap, BreaksBetweenWords) {
  EXPECT_EQ(wrapped(11, {"one two", " three"}), "one two th\033[2D\033[K\nthree");
  EXPECT_EQ(wrapped(11, {"one two"}), "one two");
  EXPECT_EQ(wrapped(8, {"one two three"}), "one two\nthree");
  EXPECT_EQ(wrapped(8, {"one two ", "three"}), "one two\nthree");  // a space at the edge is not printed
  EXPECT_EQ(wrapped(11, {"one\ntwo three four"}), "one\ntwo three \nfour");
}

TEST(WordWrap, CutsWordsThatAreLongerThanALine) { EXPECT_EQ(wrapped(5, {"abcdefghij"}), "abcd\nefgh\nij"); }

TEST(WordWrap, KeepsSpacesOfTheText) { EXPECT_EQ(wrapped(20, {"a\n  b\n\n\tc"}), "a\n  b\n\n        c"); }

TEST(WordWrap, KnowsTheWidthOfCharacters) {
  // Two columns each, and broken apart anywhere.
  EXPECT_EQ(wrapped(6, {"\u65e5\u672c\u8a9e"}), "\u65e5\u672c\n\u8a9e");
  EXPECT_EQ(wrapped(5, {"e\u0301e\u0301e\u0301e\u0301"}), "e\u0301e\u0301e\u0301e\u0301");  // marks take none
}

TEST(WordWrap, StartsAnewWhereSomethingElseWasPrinted) {
  WordWrap wrap([] { return 6; });
  EXPECT_EQ(wrap.put("abc"), "abc");
  wrap.restart();
  EXPECT_EQ(wrap.put("abcde"), "abcde");
}

}  // namespace
}  // namespace weft::cli
