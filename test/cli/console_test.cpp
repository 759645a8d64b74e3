#include "cli/console.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <string>

namespace weft::cli {
namespace {

TEST(Console, PlainOutputGetsALineEveryFewSeconds) {
  std::FILE* file = std::tmpfile();
  {
    Console console(file);
    EXPECT_FALSE(console.is_terminal());
    console.status("one");
    console.status("two");
    console.status("three");
    console.print("kept");
    console.status("four");
  }
  std::rewind(file);
  char text[200] = {};
  const std::size_t length = std::fread(text, 1, sizeof(text), file);
  std::fclose(file);
  EXPECT_EQ(std::string(text, length), "one\nkept\nfour\n");
}

TEST(Console, TerminalRedrawsOneLine) {
  std::FILE* file = std::tmpfile();
  {
    Console console(file, Console::Style::terminal);
    console.status("one");
    console.status("two", true);
    console.print("kept");
  }
  std::rewind(file);
  char text[200] = {};
  const std::size_t length = std::fread(text, 1, sizeof(text), file);
  std::fclose(file);
  EXPECT_EQ(std::string(text, length), "\rone\033[K\rtwo\033[K\r\033[Kkept\n");
}

TEST(Console, Numbers) {
  EXPECT_EQ(clock_text(65), "1:05");
  EXPECT_EQ(clock_text(3723), "1:02:03");
  EXPECT_EQ(clock_text(INFINITY), "-");
  EXPECT_EQ(grouped(-1234567), "-1,234,567");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(short_count(41234), "41.2k");
  EXPECT_GT(resident_bytes(), 1u << 20);
}

}  // namespace
}  // namespace weft::cli
