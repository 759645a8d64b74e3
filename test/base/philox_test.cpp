#include "base/philox.hpp"

#include <gtest/gtest.h>

#include <set>

namespace weft::philox {
namespace {

// Known-answer vectors published with Random123 (kat_vectors, philox4x32 10).
TEST(Philox, PublishedVectors) {
  EXPECT_EQ(block({0, 0}, {0, 0, 0, 0}), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t ones = 0xffffffff;
  EXPECT_EQ(block({ones, ones}, {ones, ones, ones, ones}), (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(block({0xa4093822, 0x299f31d0}, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, UnitNumbersStayBelowOne) {
  EXPECT_EQ(to_unit_float(0), 0.0f);
  EXPECT_LT(to_unit_float(0xffffffff), 1.0f);
  EXPECT_LT(to_unit_double(0xffffffff, 0xffffffff), 1.0);
}

TEST(Philox, BelowReachesBothEnds) {
  EXPECT_EQ(to_below(10, 0, 0), 0u);
  EXPECT_EQ(to_below(10, 0xffffffff, 0xffffffff), 9u);
  EXPECT_EQ(to_below(1, 0x80000000, 5), 0u);
  EXPECT_EQ(to_below(10, 0x80000000, 0), 5u);
}

TEST(Philox, NamesGiveDifferentStreams) {
  std::set<std::uint64_t> seen;
  for (const char* name : {"", "a", "b", "ab", "ba", "blocks.0.weight", "blocks.1.weight"})
    seen.insert(stream_of(name));
  EXPECT_EQ(seen.size(), 7u);
  EXPECT_EQ(stream_of("a"), 0xaf63dc4c8601ec8cull);  // published FNV-1a value
}

}  // namespace
}  // namespace weft::philox
