#include "base/name_pattern.hpp"

#include <gtest/gtest.h>

#include <string>

namespace weft {
namespace {

TEST(NamePattern, StarsAndQuestionMarks) {
  struct Case {
    const char *name, *pattern;
    bool matches;
  };
  for (const Case& c : {Case{"blk.0.ffn_up.weight", "*", true}, Case{"blk.0.ffn_up.weight", "*ffn_up*", true},
                        Case{"blk.0.ffn_up.weight", "blk.?.*.weight", true}, Case{"blk.10.x", "blk.?.x", false},
                        Case{"a", "a", true}, Case{"a", "A", false}, Case{"a", "", false}, Case{"", "", true},
                        Case{"", "**", true}, Case{"abcabd", "*abd", true}, Case{"abcabd", "*abc", false},
                        Case{"abab", "a*b*b", true}, Case{"ab", "a?b", false}, Case{"aXb", "a?b", true}})
    EXPECT_EQ(matches_pattern(c.name, c.pattern), c.matches) << c.name << " " << c.pattern;
  const std::string long_name(50'000, 'a');  // hostile patterns stay quadratic at worst
  EXPECT_FALSE(matches_pattern(long_name.substr(0, 5000), "*a*a*a*a*a*a*a*a*a*a*b"));
}

}  // namespace
}  // namespace weft
