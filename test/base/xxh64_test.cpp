#include "base/xxh64.hpp"

#include <gtest/gtest.h>

#include <string>

namespace weft {
namespace {

std::uint64_t hash(std::string_view text, std::size_t piece = 1 << 20) {
  Xxh64 h;
  for (std::size_t i = 0; i < text.size(); i += piece) h.add(text.substr(i, piece));
  return h.digest();
}

TEST(Xxh64, KnownValues) {
  EXPECT_EQ(hash(""), 0xEF46DB3751D8E999u);
  EXPECT_EQ(hash("a"), 0xD24EC4F1A98C6E5Bu);
  EXPECT_EQ(hash("abc"), 0x44BC2CF5AD770999u);
  EXPECT_EQ(hash("The quick brown fox jumps over the lazy dog"), 0x0B242D361FDA71BCu);
}

TEST(Xxh64, PiecesDoNotMatter) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += static_cast<char>('a' + i * i % 26);
  for (const std::size_t piece : {1, 3, 31, 32, 33, 64, 500}) EXPECT_EQ(hash(text, piece), hash(text)) << piece;
}

}  // namespace
}  // namespace weft
