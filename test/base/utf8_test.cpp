// Well-formed and ill-formed UTF-8, byte by byte, and names made safe for messages.
#include "base/utf8.hpp"
#include "base/message_of.hpp"

#include <gtest/gtest.h>

#include "base/quote.hpp"
#include "base/temporary_folder.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

using test::message_of;

TEST(Utf8, EveryScalarValueSurvivesARoundTrip) {
  std::u32string all;
  for (char32_t c = 0; c <= 0x10FFFF; ++c)
    if (c < 0xD800 || c > 0xDFFF) all.push_back(c);
  const std::string text = encode_utf8(all);
  EXPECT_EQ(text.size(), 0x80u + 0x780u * 2 + (0x10000u - 0x800 - 0x800) * 3 + 0x100000u * 4);
  EXPECT_FALSE(find_invalid_utf8(text));
  EXPECT_TRUE(decode_utf8(text) == all);
}

struct InvalidCase {
  const char* name;
  std::string text;
  std::size_t at;
};

TEST(Utf8, FirstErrorIsFound) {
  const InvalidCase cases[] = {
      {"lone continuation", "ab\x80", 2},
      {"overlong slash", "\xC0\xAF", 0},
      {"overlong two bytes", "\xC1\xBF", 0},
      {"overlong three bytes", "x\xE0\x9F\xBF", 1},
      {"overlong four bytes", "\xF0\x8F\xBF\xBF", 0},
      {"first surrogate", "\xED\xA0\x80", 0},
      {"last surrogate", "\xED\xBF\xBF", 0},
      {"above U+10FFFF", "\xF4\x90\x80\x80", 0},
      {"lead F5", "\xF5\x80\x80\x80", 0},
      {"FE", "\xFE", 0},
      {"FF behind eight ASCII bytes", "12345678\xFF", 8},
      {"FF within eight bytes",
       "1234567\xFF"
       "12345678",
       7},
      {"cut two bytes", "\xC3", 0},
      {"cut three bytes", "ok\xE2\x82", 2},
      {"cut four bytes", "\xF0\x9F\x98", 0},
      {"lead then ASCII", "\xE2\x82z", 0},
      {"error behind a good character", "\xC3\xA9\xC3", 2},
  };
  for (const InvalidCase& c : cases) {
    SCOPED_TRACE(c.name);
    EXPECT_EQ(find_invalid_utf8(c.text), c.at);
    EXPECT_THROW(decode_utf8(c.text), FileError);
  }
}

TEST(Utf8, EdgesOfTheRangesAreAccepted) {
  for (const char* text : {"\x7F", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80",
                           "\xEF\xBF\xBF", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF", ""})
    EXPECT_FALSE(find_invalid_utf8(text)) << text;
}

TEST(Utf8, ErrorsNameSourceByteAndLine) {
  EXPECT_EQ(message_of<FileError>([] { require_utf8("a\nb\nc\xE9z", "book.txt"); }),
            "book.txt: byte 5 (0xe9, line 3) is not UTF-8; convert the text first, for example with iconv -f latin1 -t "
            "utf-8");
  for (const char32_t c : {0xD800u, 0xDFFFu, 0x110000u})
    EXPECT_NE(message_of<UsageError>([&] { encode_utf8(std::u32string(1, c)); }).find("is not a Unicode scalar value"),
              std::string::npos);
}

TEST(Quote, HostileNamesCannotForgeOutput) {
  EXPECT_EQ(quote("plain é"), "\"plain é\"");
  EXPECT_EQ(quote("a\"b\\c"), "\"a\\\"b\\\\c\"");
  EXPECT_EQ(quote("a\nerror: b\r\x1b[2J\x7f"), "\"a\\nerror: b\\x0d\\x1b[2J\\x7f\"");
  EXPECT_EQ(quote(std::string_view("\0\xFF\xC3", 3)), "\"\\x00\\xff\\xc3\"");
  EXPECT_EQ(quote("\xC2\x9B"
                  "2J"),
            "\"\\xc2\\x9b2J\"");  // a C1 control sequence introducer
  EXPECT_EQ(quote(std::string(200, 'x'), 5), "\"xxxxx...\"");
}

}  // namespace
}  // namespace weft
