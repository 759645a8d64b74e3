// Text of others as messages and terminals get it.
#include "base/quote.hpp"

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(Quote, ForTerminals) {
  const std::pair<std::string, std::string> cases[] = {
      {"plain \xC3\xA9 \xE6\x97\xA5 \xF0\x9F\x99\x82\n\tend", "plain \xC3\xA9 \xE6\x97\xA5 \xF0\x9F\x99\x82\n\tend"},
      {"\033]52;c;aGk=\a", "\\x1b]52;c;aGk=\\x07"},  // the clipboard
      {"a\033[2Jb\x7F", "a\\x1b[2Jb\\x7f"},
      {"\xC2\x9B"
       "2J",
       "\\xc2\\x9b2J"},  // CSI as one character
      {"\xC2\xA0", "\xC2\xA0"},
      {"\x9B"
       "2J\xFF",
       "\\x9b2J\\xff"},                             // and as one byte
      {"one\r\ntwo\rthree", "one\ntwo\\x0dthree"},  // a line end stays, going over the line does not
      {"\xE2\x80\xAE"
       "cod.exe",
       "\\xe2\\x80\\xaecod.exe"},  // writing turned around
      {"\xE2\x81\xA6", "\\xe2\\x81\\xa6"},
      {std::string("a\0b", 3), "a\\x00b"},
      {"", ""}};
  for (const auto& [text, expected] : cases) EXPECT_EQ(for_terminal(text), expected);
}

}  // namespace
}  // namespace weft
